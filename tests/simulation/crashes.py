"""Simulated disks for tests: how to make one, and every way in which it may be found after a crash."""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from ariane.store.disk import read_all
from tests.simulation.simulated_disk import PAGE_BYTES, PowerCut, SimulatedDisk, SimulatedFile

ROOT = Path("store")
PATH = ROOT / "file"


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    return disk


def durable_file(disk: SimulatedDisk, pages: int, *, path: Path = PATH, fill: bytes = b"-") -> SimulatedFile:
    file = disk.create(path, pages * PAGE_BYTES, allocated=pages * PAGE_BYTES)
    file.write(fill * (pages * PAGE_BYTES), 0)
    file.sync()
    disk.sync_directory(path.parent)
    return file


def cuts(disk: SimulatedDisk, seeds: int = 200) -> Iterator[SimulatedDisk]:
    return (disk.cut_power(random.Random(seed)) for seed in range(seeds))


def content(disk: SimulatedDisk, path: Path = PATH) -> bytes | None:
    return read_all(disk, path, 1 << 20)


def page_letters(disk: SimulatedDisk, path: Path = PATH) -> str:
    """A letter for each page, all of whose bytes must be that letter."""
    pages = [page * PAGE_BYTES for page in range((disk.size(path) or 0) // PAGE_BYTES)]
    file = disk.open(path, writable=False)
    letters = [file.read(1, start) for start in pages]
    assert all(
        file.read(PAGE_BYTES, start) == letter * PAGE_BYTES for start, letter in zip(pages, letters, strict=True)
    )
    return b"".join(letters).decode()


def outcomes(disk: SimulatedDisk) -> set[str]:
    return {page_letters(after) for after in cuts(disk)}


Scenario = Callable[[SimulatedDisk], object]


def after_each_crash(setup: Scenario, scenario: Scenario, seeds: int = 40) -> Iterator[SimulatedDisk]:
    """The disks that may be found after a crash before each operation of a scenario, and after its last."""
    counted = new_disk()
    setup(counted)
    first = counted.operations + 1
    scenario(counted)
    for operation in range(first, counted.operations + 2):
        disk = new_disk()
        setup(disk)
        disk.crash_at(operation)
        with suppress(PowerCut):
            scenario(disk)
        yield disk.crash_process()
        yield from cuts(disk, seeds)
