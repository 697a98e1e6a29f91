"""Which pages of an index are fetched before keys are added, and that nothing is lost while a thread does it."""

import random
from pathlib import Path

import pytest

from ariane.errors import StoreFull
from ariane.store.blocking_io import IoSteps, run_sync
from ariane.store.index.entries import entries_position
from ariane.store.message_store import MessageStore
from tests.simulation.simulated_disk import SimulatedDisk, SimulatedFile
from tests.store.stores import draft, opened, put

SLOTS = 100_000
PAGE = 4096


class ReadDisk(SimulatedDisk):
    """Records which positions of the index were probed and read, and may fail to read."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[int] = set()
        self.read: set[int] = set()
        self.cached: set[int] = set()
        self.is_failing = False

    def open(self, path: Path, *, writable: bool) -> SimulatedFile:
        content = super().open(path, writable=writable)._content()
        return (WatchedFile if path.parent.name == "index" else SimulatedFile)(self, path, content, writable=writable)

    def create(self, path: Path, size: int, *, allocated: int) -> SimulatedFile:
        super().create(path, size, allocated=allocated)
        return self.open(path, writable=True)

    def forget(self) -> None:
        for pages in (self.asked, self.read, self.cached):
            pages.clear()


class WatchedFile(SimulatedFile):
    _disk: ReadDisk

    def read(self, length: int, position: int) -> bytes:
        if self._disk.is_failing:
            raise OSError(5, "Input/output error")
        pages = set(range(position // PAGE, -(-(position + length) // PAGE)))
        self._disk.read |= pages
        self._disk.cached |= pages
        return super().read(length, position)

    def read_cached(self, length: int, position: int) -> bytes | None:
        self._disk.asked.add(position // PAGE)
        return super().read_cached(length, position) if position // PAGE in self._disk.cached else None


def with_keys(count: int = 300) -> tuple[ReadDisk, MessageStore]:
    """A store that was stopped and started, with so many keys; nothing of its index is in memory."""
    disk = ReadDisk()
    store = opened(disk, segment_bytes=1 << 20, index_slots=SLOTS, index_entries=10_000)
    put(store, *[draft(b"x", key=f"old{number}") for number in range(count)])
    store.close()
    store = opened(disk, segment_bytes=1 << 20, index_slots=SLOTS, index_entries=10_000)
    disk.forget()
    return disk, store


def many_keys(seed: int) -> list[str]:
    """Java's hashes of numbers would stand side by side."""
    rng = random.Random(seed)
    return [rng.randbytes(8).hex() for _ in range(300)]


def warmed(store: MessageStore) -> int:
    """How many blocking calls it took."""
    steps, count = store.derived.warm_index_steps(), 0
    for call in steps:
        assert call is not None
        call()
        count += 1
    return count


def offsets(store: MessageStore, key: str) -> list[int]:
    index = store.components.index
    assert index is not None
    return index.query("orders", key, 10, 0, 2**62).offsets


def settled(disk: ReadDisk, store: MessageStore) -> None:
    """The slots are mapped and synced, and have left memory since."""
    put(store, draft(b"x", key="first"))
    store.make_durable()
    disk.forget()


def test_without_keys_nothing_is_asked_for() -> None:
    disk, store = with_keys()
    assert warmed(store) == 0
    assert not disk.asked


def test_the_first_keys_after_a_start_find_all_slots_in_memory() -> None:
    disk, store = with_keys()
    put(store, draft(b"x", key="new"))
    warmed(store)
    assert disk.read >= set(range(entries_position(SLOTS) // PAGE))
    disk.read.clear()
    store.components.dispatcher.write_index()
    assert not disk.read
    assert len(offsets(store, "new")) == len(offsets(store, "old7")) == 1


def test_of_a_few_keys_their_own_pages_are_fetched() -> None:
    disk, store = with_keys()
    settled(disk, store)
    put(store, draft(b"x", key="new"))
    assert warmed(store) == 1
    slots_end = entries_position(SLOTS) // PAGE
    assert len([page for page in disk.read if page < slots_end]) == 2  # that of the header, and one
    assert max(disk.read) >= slots_end  # and where entries are written


def test_of_many_keys_all_slots_are_fetched_once() -> None:
    disk, store = with_keys()
    settled(disk, store)
    put(store, *[draft(b"x", key=key) for key in many_keys(1)])
    assert warmed(store) == 1
    assert disk.read >= set(range(entries_position(SLOTS) // PAGE))
    store.components.dispatcher.write_index()
    disk.read.clear()
    put(store, *[draft(b"x", key=key) for key in many_keys(2)])
    assert warmed(store) == 0


def test_what_was_touched_is_asked_for_again_behind_a_sync() -> None:
    disk, store = with_keys()
    settled(disk, store)
    for _ in range(2):
        put(store, draft(b"x", key="new"))
        assert warmed(store) == 1
        put(store, draft(b"x", key="new"))
        assert warmed(store) == 0
        store.make_durable()
        disk.forget()


def test_keys_that_come_while_a_thread_fetches_are_put_as_well() -> None:
    _, store = with_keys()
    put(store, draft(b"x", key="before"))
    steps = store.derived.warm_index_steps()
    for number, call in enumerate(steps):
        put(store, draft(b"x", key=f"meanwhile{number}"))
        assert call is not None
        call()
    store.components.dispatcher.write_index()
    assert [len(offsets(store, key)) for key in ("before", "meanwhile0", "old1")] == [1, 1, 1]
    assert store.components.dispatcher.pending_key_count == 0


def test_a_thread_that_takes_blocks_late_undoes_nothing() -> None:
    """Keys were put before its turn came: what it would write over them is old."""
    disk, store = with_keys()
    put(store, draft(b"x", key="new"))
    late = next(store.derived.warm_index_steps())
    assert late is not None
    store.components.dispatcher.write_index()
    late()
    assert len(offsets(store, "new")) == 1
    store.close()
    late()  # nor is a file written that was closed
    assert len(offsets(opened(disk, segment_bytes=1 << 20, index_slots=SLOTS, index_entries=10_000), "new")) == 1


def test_a_disk_that_cannot_read_keeps_the_keys_waiting() -> None:
    disk, store = with_keys()
    put(store, draft(b"x", key="new"))
    disk.is_failing = True
    with pytest.raises(StoreFull, match="Input/output error"):
        run_sync(store.derived.warm_index_steps())
    assert store.components.dispatcher.pending_key_count == 1
    disk.is_failing = False
    run_sync(store.derived.warm_index_steps())
    store.components.dispatcher.write_index()
    assert len(offsets(store, "new")) == 1


def test_a_disk_on_which_nothing_stays_in_memory_is_written_all_the_same() -> None:
    disk, store = with_keys()
    settled(disk, store)
    put(store, draft(b"x", key="new"))
    steps: IoSteps[None] = store.derived.warm_steps()
    for call in steps:
        assert call is not None
        call()
        disk.cached.clear()
    store.derived.write()
    assert len(offsets(store, "new")) == 1
