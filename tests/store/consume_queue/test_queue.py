"""One consume queue: appending, reading, writing to files and full disks."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import StoreCorrupt, StoreError, StoreFull
from ariane.store.consume_queue.entry import ENTRY, ENTRY_BYTES
from ariane.store.consume_queue.queue import KEPT_ENTRIES, ConsumeQueue
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.queues import (
    FILE_BYTES,
    bounds,
    close_queues,
    directory,
    entry,
    file_names,
    fill,
    is_dirty,
    numbers,
    open_queue,
    read,
)


@pytest.fixture
def queue(tmp_path: Path) -> ConsumeQueue:
    return open_queue(tmp_path)


# --- appending and reading ------------------------------------------------------------------------------------------


def test_a_new_queue_is_empty_and_has_no_file(tmp_path: Path, queue: ConsumeQueue) -> None:
    assert bounds(queue) == (0, 0, 0)
    assert not is_dirty(queue)
    assert queue.entries(0, 10) == b""
    queue.write()
    assert not list(tmp_path.iterdir())


def test_an_entry_is_there_at_once_and_without_a_system_call(tmp_path: Path, queue: ConsumeQueue) -> None:
    assert queue.append(0, 100, -7) == 0
    assert queue.append(300, 50, 8) == 1
    assert read(queue) == [(0, 100, -7), (300, 50, 8)]
    assert bounds(queue) == (0, 2, 350)
    assert is_dirty(queue)
    assert not list(tmp_path.iterdir())


def test_a_batch_is_appended_as_it_is_packed(queue: ConsumeQueue) -> None:
    queue.append(0, 100, 0)
    batch = b"".join(ENTRY.pack(*entry(number)) for number in range(1, 26))
    assert queue.append_packed(batch, 25) == 1
    assert queue.append_packed(b"", 0) == 26
    assert numbers(queue) == list(range(26))
    assert bounds(queue) == (0, 26, 2600)


def test_written_entries_are_in_the_files_and_the_rest_is_zeros(tmp_path: Path, queue: ConsumeQueue) -> None:
    fill(queue, 25)
    queue.write()
    assert not is_dirty(queue)
    assert file_names(tmp_path) == [0, 10, 20]
    data = b"".join(path.read_bytes() for path in sorted(directory(tmp_path).iterdir()))
    assert data == b"".join(ENTRY.pack(*entry(number)) for number in range(25)) + bytes(5 * ENTRY_BYTES)


def test_the_end_of_a_queue_is_read_from_memory(tmp_path: Path, queue: ConsumeQueue) -> None:
    fill(queue, 2 * KEPT_ENTRIES)
    queue.write()
    for path in directory(tmp_path).iterdir():
        path.write_bytes(bytes(FILE_BYTES))
    assert queue.entries(KEPT_ENTRIES, 1) == ENTRY.pack(*entry(KEPT_ENTRIES))
    assert queue.entries(KEPT_ENTRIES - 1, 1) == bytes(ENTRY_BYTES)


@settings(deadline=None)
@given(st.data())
def test_any_range_is_read_across_files_and_memory(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    queue = open_queue(tmp_path_factory.mktemp("store"))
    fill(queue, data.draw(st.integers(0, 250), "written"))
    queue.write()
    fill(queue, data.draw(st.integers(0, 30), "new"))
    offset = data.draw(st.integers(-3, queue.max_offset + 3), "offset")
    count = data.draw(st.integers(-1, 300), "count")
    expected = range(offset, min(offset + count, queue.max_offset)) if offset >= 0 else ()
    found = queue.entries(offset, count)
    assert [tags for _, _, tags in ENTRY.iter_unpack(found)] == list(expected)
    begin = offset * ENTRY_BYTES
    in_one_file = begin // FILE_BYTES == (begin + len(found) - 1) // FILE_BYTES
    assert queue.cached_entries(offset, count) in ([found] if in_one_file or not found else [found, None])
    close_queues()


def test_a_file_that_was_cut_while_open_is_store_corrupt(tmp_path: Path, queue: ConsumeQueue) -> None:
    fill(queue, 2 * KEPT_ENTRIES)
    queue.write()
    os.truncate(directory(tmp_path) / f"{0:020d}", 30)
    with pytest.raises(StoreCorrupt, match="ends before byte 40"):
        queue.entries(0, 2)


def test_a_file_that_vanished_is_a_store_error(tmp_path: Path, queue: ConsumeQueue) -> None:
    fill(queue, 2 * KEPT_ENTRIES)
    queue.write()
    (directory(tmp_path) / f"{0:020d}").unlink()
    with pytest.raises(StoreError, match="cannot be read"):
        queue.entries(0, 2)


# --- a full disk ----------------------------------------------------------------------------------------------------


def test_a_write_that_finds_no_space_is_repeated_later_and_nothing_is_lost() -> None:
    disk = SimulatedDisk()
    queue = open_queue(Path("store"), disk)
    fill(queue, 15)
    queue.write()
    fill(queue, 10)
    disk.fail_writes(OSError(errno.ENOSPC, "No space left on device"))
    for _ in range(3):
        with pytest.raises(StoreFull, match="No space left"):
            queue.write()
        assert is_dirty(queue)
        fill(queue, 10)
        assert numbers(queue) == list(range(queue.max_offset))
    disk.fail_writes(None)
    queue.write()
    assert not is_dirty(queue)
    assert numbers(open_queue(Path("store"), disk)) == list(range(55))


def test_a_disk_that_fills_up_in_the_middle_of_a_write_leaves_it_repeatable() -> None:
    for pages in range(8):
        disk = SimulatedDisk(space_left=pages * 4096)
        queue = open_queue(Path("store"), disk)
        fill(queue, 75)
        with pytest.raises(StoreFull):
            queue.write()
        disk.space_left = None
        fill(queue, 1)
        queue.write()
        assert numbers(open_queue(Path("store"), disk)) == list(range(76))


def test_a_first_file_without_space_for_its_fillers_is_not_left_behind() -> None:
    disk = SimulatedDisk(space_left=0)
    queue = open_queue(Path("store"), disk)
    queue.append_at(37, *entry(37))
    with pytest.raises(StoreFull):
        queue.write()
    assert disk.names(directory(Path("store"))) == []
    disk.space_left = None
    queue.write()
    assert bounds(open_queue(Path("store"), disk)) == (37, 38, 3800)


def test_a_failed_write_can_be_kept_while_entries_are_appended() -> None:
    """The error holds on to its frames; the tail must not be locked by what they refer to."""
    disk = SimulatedDisk()
    queue = open_queue(Path("store"), disk)
    fill(queue, 5)
    disk.fail_writes(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(StoreFull) as failure:
        queue.write()
    fill(queue, 5000)
    assert failure.value.retriable
    assert queue.max_offset == 5005
