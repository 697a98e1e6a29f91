"""An index file that is cut, or whose bytes are not what they were."""

import random
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import StoreCorrupt
from ariane.store.disk import RealDisk
from ariane.store.index.entries import Header, KeyedMessage, entries_position, file_bytes
from ariane.store.index.file import IndexCapacity, IndexFile
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.index.index_files import PATH, SHAPE, content, found, new_file, put, reopened
from tests.store.index.indexes import EVER, HEADER, NOW_MS, TINY, book_hash, by_the_book, checked, logs, message


@settings(deadline=None)
@given(logs(), st.data())
def test_a_cut_file_is_one_that_never_saw_the_rest(messages: list[KeyedMessage], data: st.DataObject) -> None:
    disk = SimulatedDisk()
    file = new_file(disk)
    put(file, *messages)
    if file.is_empty:
        return
    limit = data.draw(st.integers(0, messages[-1][0] + 1))
    assert file.keep_before(limit) == limit
    kept = [message for message in messages if message[0] < limit]
    assert file.is_empty == (not any(keys for *_, keys in kept))
    put(file, *(message for message in messages if message[0] >= limit))
    assert [content(disk)] == by_the_book(messages, SHAPE)


@settings(deadline=None)
@given(st.integers(0, 4000))
def test_a_cut_file_still_covers_the_time_of_its_last_message(last_ms: int) -> None:
    file = new_file(SimulatedDisk())
    put(file, message(0, "a", at_ms=NOW_MS), message(1, "a", at_ms=NOW_MS + last_ms))
    put(file, message(2, "a", at_ms=NOW_MS + 9000))
    file.keep_before(2)
    assert 0 <= file.header.end_timestamp_ms - (NOW_MS + last_ms) < 1000
    assert file.header.overlaps(NOW_MS + last_ms, NOW_MS + last_ms)


def test_slots_are_made_anew_from_the_entries() -> None:
    disk = SimulatedDisk()
    file = new_file(disk)
    put(file, *(message(number, "a", f"k{number}") for number in range(50)))
    whole = content(disk)
    junk = random.Random(1).randbytes(SHAPE.slots * 4)
    disk.open(PATH, writable=True).write(junk, HEADER.size)
    reopened(disk).keep_before(50)
    assert content(disk) == whole


def test_an_entry_without_sense_ends_what_stays_and_takes_its_message_along() -> None:
    disk = SimulatedDisk()
    file = new_file(disk)
    put(file, message(10, "a"), message(20, "b", "c", "d"), message(30, "e"))
    disk.open(PATH, writable=True).write(bytes(20), entries_position(SHAPE.slots) + 20 * 4)
    assert file.keep_before(1000) == 20
    assert [entry.physical for entry in checked(content(disk), SHAPE)] == [10]


def test_a_file_without_any_sense_keeps_nothing() -> None:
    disk = SimulatedDisk()
    file = new_file(disk)
    put(file, message(10, "a"))
    disk.open(PATH, writable=True).write(b"\xff" * 20, entries_position(SHAPE.slots) + 20)
    assert not file.is_sound()
    assert file.keep_before(1000) == 10
    assert file.is_empty


@pytest.mark.parametrize("link", [1, 2, 3, -1, 2**31 - 1, -(2**31)])
def test_a_chain_that_does_not_lead_back_is_corrupt(link: int) -> None:
    disk = SimulatedDisk()
    file = new_file(disk, IndexCapacity(slots=1, entries=100))
    put(file, message(0, "a"), message(1, "a"))
    # entry 1 is the end of the chain, until now
    disk.open(PATH, writable=True).write(link.to_bytes(4, "big", signed=True), entries_position(1) + 20 + 16)
    hits = file.find(book_hash("orders", "a"), *EVER)
    assert [next(hits), next(hits)] == [1, 0]
    with pytest.raises(StoreCorrupt, match="leads to entry"):
        next(hits)


def test_a_head_in_another_slot_is_corrupt() -> None:
    disk = SimulatedDisk()
    file = new_file(disk)
    put(file, *(message(number, f"k{number}") for number in range(20)))
    heads = np.frombuffer(content(disk), ">i4", SHAPE.slots, HEADER.size)
    disk.open(PATH, writable=True).write(np.roll(heads, 1).tobytes(), HEADER.size)
    with pytest.raises(StoreCorrupt, match="of another slot"):
        found(file, "k0")


def test_a_file_truncated_while_it_is_open_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / PATH.name
    file = IndexFile.create(RealDisk(), path, SHAPE, Header.following(0, 0))
    put(file, message(0, "a"))
    with path.open("r+b") as raw:
        raw.truncate(entries_position(SHAPE.slots))
    with pytest.raises(StoreCorrupt, match="it was truncated"):
        found(file, "a")
    assert not file.is_sound()
    file.close()


@settings(deadline=None)
@given(st.binary(min_size=file_bytes(*TINY), max_size=file_bytes(*TINY)), st.integers(0, 2**31 - 1), st.integers())
def test_random_bytes_end_every_walk(data: bytes, code: int, limit: int) -> None:
    disk = SimulatedDisk()
    disk.create(PATH, len(data), allocated=len(data)).write(data, 0)
    file = reopened(disk, capacity=TINY)
    with suppress(StoreCorrupt):
        assert len(list(file.find(code, *EVER))) < TINY.entries
    file.is_sound()
    file.keep_before(limit)
    if not file.is_empty:
        checked(content(disk), TINY)
