"""One index file: entries added, found, published and synced."""

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import StoreMismatch
from ariane.store.index.entries import Header, KeyedMessage, entries_position, file_bytes
from ariane.store.index.file import IndexCapacity, IndexFile
from ariane.store.index.pending_keys import PendingKeys
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.index.index_files import PATH, SHAPE, content, found, new_file, put, reopened
from tests.store.index.indexes import NOW_MS, TINY, by_the_book, checked, logs, message


@settings(deadline=None)
@given(logs(), st.integers(1, 9), st.sampled_from([1, 2, 3, 7, 1000]))
def test_batches_write_the_bytes_that_apache_writes_one_by_one(
    messages: list[KeyedMessage], batch: int, slots: int
) -> None:
    capacity = IndexCapacity(slots, entries=400)
    disk = SimulatedDisk()
    file = new_file(disk, capacity)
    for begin in range(0, len(messages), batch):
        put(file, *messages[begin : begin + batch])
    if file.is_empty:
        assert not any(content(disk))
    else:
        assert [content(disk)] == by_the_book(messages, capacity)


def test_a_full_file_has_no_room_and_is_still_read() -> None:
    disk = SimulatedDisk()
    file = new_file(disk, TINY)
    assert file.room == 7  # entry 0 is never used
    put(file, *(message(number * 10, "a") for number in range(7)))
    assert file.room == 0
    assert found(file, "a") == [60, 50, 40, 30, 20, 10, 0]


def test_the_newest_message_comes_first_and_other_keys_of_the_slot_do_not() -> None:
    file = new_file(SimulatedDisk(), IndexCapacity(slots=1, entries=100))
    put(file, message(0, "a", "b"), message(100, "b"), message(200, "a"))
    put(file, message(300, "c", "a"))
    assert found(file, "a") == [300, 200, 0]
    assert found(file, "b") == [100, 0]
    assert found(file, "never") == []


def test_a_busy_key_is_followed_over_many_stretches_of_the_file() -> None:
    file = new_file(SimulatedDisk(), IndexCapacity(slots=100, entries=200_000))
    put(file, *(message(n, "busy" if n % 3 else f"k{n}") for n in range(60_000)))
    put(file, *(message(n, f"k{n}") for n in range(60_000, 90_000)))
    assert found(file, "busy") == [n for n in range(59_999, -1, -1) if n % 3]
    assert found(file, "k0") == [0]


def test_a_query_by_time_finds_every_message_of_its_first_second() -> None:
    file = new_file(SimulatedDisk())
    put(file, *(message(n, "a", at_ms=NOW_MS + n * 400) for n in range(10)))
    # Entries know whole seconds: 1600 ms counts as 1000. Apache would not find it from 1500 on.
    assert found(file, "a", NOW_MS + 1500, NOW_MS + 2000) == [7, 6, 5, 4, 3]
    assert found(file, "a", NOW_MS + 9000) == []


def test_the_first_entry_of_a_file_is_found_at_its_own_time() -> None:
    hour_ms = 3_600_000
    disk = SimulatedDisk()
    file = IndexFile.create(disk, PATH, SHAPE, Header.following(NOW_MS - hour_ms, 5))
    put(file, message(10, "a", at_ms=NOW_MS), message(20, "a", at_ms=NOW_MS + 2000))
    assert [entry.seconds for entry in checked(content(disk), SHAPE)] == [3600, 2]  # as Apache writes it
    assert found(file, "a", NOW_MS, NOW_MS + 500) == [10]


def test_a_clock_that_was_set_back_hides_no_message() -> None:
    file = new_file(SimulatedDisk())
    put(file, message(0, "a"), message(10, "a", at_ms=NOW_MS - 60_000))
    assert file.header.overlaps(NOW_MS, NOW_MS + 1000)
    assert found(file, "a", NOW_MS, NOW_MS + 1000) == [10, 0]


def test_what_was_staged_is_not_seen_before_it_is_published() -> None:
    disk = SimulatedDisk()
    file = new_file(disk)
    put(file, message(0, "a"))
    before = file.header
    staged = file.write_entries(PendingKeys.of([message(10, "a")]).rows(-1))
    assert found(file, "a") == [0]
    assert file.header == before == reopened(disk).header
    file.publish(staged)
    assert found(file, "a") == found(reopened(disk), "a") == [10, 0]


def test_a_file_of_another_shape_is_refused_with_the_fix() -> None:
    disk = SimulatedDisk()
    put(new_file(disk, TINY), message(0, "a"))
    with pytest.raises(StoreMismatch, match="set the numbers that the index was written with, or remove"):
        IndexFile.open(disk, PATH, SHAPE)


@pytest.mark.parametrize("size", [0, 39, entries_position(TINY.slots), file_bytes(*TINY) - 1])
def test_a_file_whose_making_was_cut_off_is_none(size: int) -> None:
    disk = SimulatedDisk()
    disk.create(PATH, size, allocated=size)
    assert IndexFile.open(disk, PATH, TINY) is None


def test_a_new_file_of_apache_that_counts_from_zero_is_empty() -> None:
    disk = SimulatedDisk()
    disk.create(PATH, file_bytes(*TINY), allocated=0)
    file = reopened(disk, capacity=TINY)
    assert file.is_empty
    assert file.end_physical == -1
    put(file, message(0, "a"), message(10, "a"))
    assert [content(disk)] == by_the_book([message(0, "a"), message(10, "a")], TINY)


def test_the_holes_of_an_opened_file_are_filled_before_its_slots_are_mapped() -> None:
    capacity = IndexCapacity(slots=600_000, entries=10)
    disk = SimulatedDisk()
    disk.create(PATH, file_bytes(*capacity), allocated=0).sync()
    disk.space_left = 100_000
    file = reopened(disk, capacity=capacity)
    with pytest.raises(OSError, match="No space left") as full:
        put(file, message(0, "a"))
    assert full.value.errno == errno.ENOSPC
    disk.space_left = None
    put(file, message(0, "a"))  # SimulatedDisk does not map what has no blocks
    assert found(file, "a") == [0]


def test_a_sync_that_failed_once_is_not_believed_again() -> None:
    disk = SimulatedDisk()
    file = new_file(disk)
    disk.fail_syncs(OSError(errno.EIO, "Input/output error"))
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    disk.fail_syncs(None)
    with pytest.raises(OSError, match="earlier sync failed"):
        file.sync()
