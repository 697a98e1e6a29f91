"""Any history of a simulated disk, against a plain account of what may be left of it."""

import random
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.store.disk import read_all
from tests.simulation.simulated_disk import PAGE_BYTES, SimulatedDisk

ROOT = Path("store")
DIRECTORIES = [ROOT / "a", ROOT / "b"]
PATHS = [directory / name for directory in DIRECTORIES for name in "xy"]
PAGES = 3
FILE_BYTES = PAGES * PAGE_BYTES - 100
ID_BYTES = 4

paths = st.sampled_from(PATHS)
steps = st.one_of(
    st.tuples(st.just("create"), paths),
    st.tuples(st.just("write"), paths, st.integers(ID_BYTES, FILE_BYTES - 1), st.integers(1, 6_000)),
    st.tuples(st.just("sync"), paths),
    st.tuples(st.just("remove"), paths),
    st.tuples(st.just("rename"), paths, paths),
    st.tuples(st.just("sync_directory"), st.sampled_from(DIRECTORIES)),
)


class Account:
    """Does each step on a disk and notes it: what every name and every file was since its last sync, in full."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        for directory in DIRECTORIES:
            self.disk.make_directory(directory)
        self.names: dict[Path, int | None] = dict.fromkeys(PATHS)
        self.possible_names: dict[Path, set[int | None]] = {path: {None} for path in PATHS}
        self.possible_contents: dict[int, list[bytes]] = {}
        self.safe: set[int] = set()
        """Files whose name was durable and that were not removed or replaced since."""

    def do(self, kind: str, path: Path, *rest: int | Path) -> None:
        if kind in ("create", "sync_directory") or self.names[path] is not None:
            getattr(self, f"do_{kind}")(path, *rest)

    def do_create(self, path: Path) -> None:
        if self.names[path] is not None:
            return
        number = len(self.possible_contents) + 1
        file = self.disk.create(path, FILE_BYTES, allocated=number % 2 * PAGE_BYTES)
        file.write(number.to_bytes(ID_BYTES, "big"), 0)
        file.sync()
        self.possible_contents[number] = [number.to_bytes(ID_BYTES, "big").ljust(FILE_BYTES, b"\0")]
        self.put(path, number)

    def do_write(self, path: Path, position: int, length: int) -> None:
        versions = self.possible_contents[self.held(path)]
        data = bytes([len(versions) % 256]) * min(length, FILE_BYTES - position)
        self.disk.open(path, writable=True).write(data, position)
        versions.append(versions[-1][:position] + data + versions[-1][position + len(data) :])

    def do_sync(self, path: Path) -> None:
        self.disk.open(path, writable=True).sync()
        del self.possible_contents[self.held(path)][:-1]

    def do_remove(self, path: Path) -> None:
        self.disk.remove(path)
        self.safe.discard(self.held(path))
        self.put(path, None)

    def do_rename(self, source: Path, target: Path) -> None:
        self.disk.rename(source, target)
        moved, replaced = self.held(source), self.names[target]
        if replaced is not None and replaced != moved:
            self.safe.discard(replaced)
        self.put(source, None)
        self.put(target, moved)

    def do_sync_directory(self, directory: Path) -> None:
        self.disk.sync_directory(directory)
        self.safe |= {number for path, number in self.names.items() if number is not None and path.parent == directory}
        for path in PATHS:
            if path.parent == directory:
                self.possible_names[path] = {self.names[path]}

    def put(self, path: Path, number: int | None) -> None:
        self.names[path] = number
        self.possible_names[path].add(number)

    def held(self, path: Path) -> int:
        number = self.names[path]
        assert number is not None
        return number

    def check_cut(self, disk: SimulatedDisk) -> None:
        found = {path: read_all(disk, path, 2 * FILE_BYTES) for path in PATHS}
        numbers = {path: int.from_bytes(data[:ID_BYTES], "big") for path, data in found.items() if data is not None}
        assert len(set(numbers.values())) == len(numbers), "one file, two names"
        assert self.safe <= set(numbers.values()), "a durable file is gone"
        for path, data in found.items():
            assert numbers.get(path) in self.possible_names[path]
            if data is not None:
                self.check_content(data, self.possible_contents[numbers[path]])

    def check_content(self, data: bytes, possible: list[bytes]) -> None:
        assert len(data) == FILE_BYTES
        for start in range(0, FILE_BYTES, PAGE_BYTES):
            page = slice(start, start + PAGE_BYTES)
            assert data[page] in {version[page] for version in possible}

    def check_crash(self, disk: SimulatedDisk) -> None:
        for path, number in self.names.items():
            expected = None if number is None else self.possible_contents[number][-1]
            assert read_all(disk, path, 2 * FILE_BYTES) == expected


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=40), st.randoms(use_true_random=False))
def test_after_any_history_only_what_was_not_synced_is_in_doubt(
    history: list[tuple[Any, ...]], rng: random.Random
) -> None:
    account = Account()
    for step in history:
        account.do(*step)
    account.check_crash(account.disk)
    restarted = account.disk.crash_process()
    account.check_crash(restarted)
    for _ in range(3):
        account.check_cut(account.disk.cut_power(rng))
        account.check_cut(restarted.cut_power(rng))
