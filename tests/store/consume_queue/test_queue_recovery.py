"""The end of a consume queue, found from its files alone."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.store.consume_queue.entry import ENTRY, ENTRY_BYTES, FILLER
from ariane.store.consume_queue.recovery import LastRecord, ascending
from tests.store.queues import (
    FILE_BYTES,
    PER_FILE,
    Entry,
    close_queues,
    directory,
    entry,
    file_names,
    fill,
    open_queue,
    read,
)

NOTHING = bytes(ENTRY_BYTES)


def packed(*entries: Entry) -> bytes:
    return b"".join(ENTRY.pack(*entry) for entry in entries)


@pytest.mark.parametrize(
    ("chunk", "count"),
    [
        (NOTHING, 0),
        (packed((0, 100, 5)), 1),
        (packed((0, 100, 5)) + NOTHING + packed((100, 100, 5)), 1),
        (packed((0, 100, 5), (-1, 100, 5)), 1),
        (packed((0, 100, 5), (100, -1, 5)), 1),
        (packed((0, 100, 5), (100, 0, 5)), 1),
        (packed((0, 100, 5), (700, 100, 5), (750, 100, 5)), 2),
        (packed((0, 100, 5), (700, 100, 5), (400, 100, 5)), 2),
        (packed((0, 100, 5), (700, 100, 5), (700, 100, 5), (800, 1, 5)), 4),
        (packed((0, 100, 5), (2**63 - 1, 100, 5), (2**63 - 1, 100, 5)), 1),
        (FILLER * 3 + packed((0, 100, 5)), 4),
        (FILLER * 3 + packed((900, 100, 5)) + FILLER, 4),
    ],
    ids=[
        "zeros", "one", "a hole", "negative offset", "negative size", "no size", "inside the one before", "stale",
        "the same again", "past the largest offset", "fillers", "a filler behind an entry",
    ],
)  # fmt: skip
def test_entries_count_as_long_as_they_are_whole_and_ascend(chunk: bytes, count: int) -> None:
    assert ascending(chunk, LastRecord())[0] == count


def test_a_chunk_goes_on_where_the_last_one_ended() -> None:
    _, last = ascending(packed((0, 100, 5), (700, 100, 5)), LastRecord())
    assert last == LastRecord(700, 800)
    assert ascending(packed((799, 100, 5)), last) == (0, last)
    assert ascending(packed((800, 100, 5)), last) == (1, LastRecord(800, 900))
    assert ascending(FILLER, LastRecord()) == (1, LastRecord())


@settings(deadline=None)
@given(st.integers(0, 95), st.integers(0, 95))
def test_a_hole_ends_the_queue_and_nothing_behind_it_comes_back(
    tmp_path_factory: pytest.TempPathFactory, count: int, hole: int
) -> None:
    root = tmp_path_factory.mktemp("store")
    queue = open_queue(root)
    fill(queue, count)
    queue.write()
    in_last_files = count - 1 - (count - 1) % PER_FILE - 2 * PER_FILE <= hole < count
    if in_last_files:
        path = directory(root) / f"{hole // PER_FILE * FILE_BYTES:020d}"
        at = hole % PER_FILE * ENTRY_BYTES
        data = path.read_bytes()
        path.write_bytes(data[:at] + NOTHING + data[at + ENTRY_BYTES :])
    end = hole if in_last_files else count
    for _ in range(2):
        queue = open_queue(root)
        assert (queue.max_offset, queue.max_physical) == (end, end * 100)
        assert read(queue) == [entry(number) for number in range(end)]
    fill(queue, 1)
    queue.write()
    assert open_queue(root).max_offset == end + 1
    close_queues()


def test_stale_entries_of_an_apache_store_are_not_taken_for_new_ones(tmp_path: Path) -> None:
    """Apache cuts a queue by moving its own mark only: what stood behind stays, and new entries run into it."""
    path = directory(tmp_path) / f"{0:020d}"
    path.parent.mkdir(parents=True)
    stale = packed((1000, 200, 1), (1200, 200, 2), (1400, 200, 3), (1600, 200, 4), (1800, 200, 5))
    path.write_bytes(stale.ljust(FILE_BYTES, b"\0"))
    with path.open("r+b") as file:
        file.seek(2 * ENTRY_BYTES)
        file.write(packed((5000, 300, 6)))
    queue = open_queue(tmp_path)
    assert read(queue) == [(1000, 200, 1), (1200, 200, 2), (5000, 300, 6)]
    assert queue.max_physical == 5300
    assert path.read_bytes()[3 * ENTRY_BYTES :] == bytes(7 * ENTRY_BYTES)


def test_empty_files_at_the_end_are_removed_however_many(tmp_path: Path) -> None:
    """Apache makes files ahead of their use, and a broker may have been killed with several of them."""
    queue = open_queue(tmp_path)
    fill(queue, 12)
    queue.write()
    for first in range(20, 80, PER_FILE):
        (directory(tmp_path) / f"{first * ENTRY_BYTES:020d}").write_bytes(bytes(FILE_BYTES))
    queue = open_queue(tmp_path)
    assert (queue.max_offset, queue.max_physical) == (12, 1200)
    assert file_names(tmp_path) == [0, 10]


def test_a_queue_of_one_empty_file_keeps_its_place(tmp_path: Path) -> None:
    path = directory(tmp_path) / f"{3 * FILE_BYTES:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(FILE_BYTES))
    queue = open_queue(tmp_path)
    assert (queue.min_offset, queue.max_offset, queue.max_physical) == (30, 30, 0)


@settings(deadline=None)
@given(st.binary(max_size=FILE_BYTES * 2))
def test_any_bytes_are_recovered_from_into_a_queue_that_can_be_used(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    root = tmp_path_factory.mktemp("store")
    directory(root).mkdir(parents=True)
    for number in range(2):
        part = data[number * FILE_BYTES : (number + 1) * FILE_BYTES].ljust(FILE_BYTES, b"\0")
        (directory(root) / f"{number * FILE_BYTES:020d}").write_bytes(part)
    queue = open_queue(root)
    queue.truncate(2**62)
    queue.drop_before(0)
    before = read(queue)
    queue.append(2**62, 100, 7)
    queue.write()
    assert read(open_queue(root)) == [*before, (2**62, 100, 7)]
    close_queues()
