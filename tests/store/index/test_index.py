"""The key index: adding, querying, full files and full disks."""

import errno
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import StoreFull
from ariane.store.disk import RealDisk
from ariane.store.index.entries import KeyedMessage
from ariane.store.index.file import IndexCapacity
from ariane.store.index.index import Index
from ariane.store.layout import Layout
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.index.indexes import (
    EVER,
    NOW_MS,
    ROOT,
    TINY,
    book_hash,
    by_the_book,
    contents,
    expected,
    filled,
    found,
    indexed,
    logs,
    message,
    opened,
)

DIRECTORY = Layout.under(ROOT).index


def put_in_batches(index: Index, messages: Sequence[KeyedMessage], size: int) -> None:
    for begin in range(0, len(messages), size):
        index.put(messages[begin : begin + size])


def reopened(index: Index, disk: SimulatedDisk, capacity: IndexCapacity = TINY) -> Index:
    index.close()
    again = opened(disk, capacity)
    again.after_clean_stop()
    return again


@settings(deadline=None)
@given(logs(), st.integers(1, 50), st.sampled_from([2, 3, 8, 1000]))
def test_files_are_those_that_apache_writes(messages: list[KeyedMessage], batch: int, entries: int) -> None:
    capacity = IndexCapacity(slots=3, entries=entries)
    disk = SimulatedDisk()
    put_in_batches(opened(disk, capacity), messages, batch)
    assert contents(disk) == by_the_book(messages, capacity)


@settings(deadline=None)
@given(logs(), st.integers(1, 50), st.lists(st.integers(0, 40), max_size=3))
def test_every_key_is_found_newest_first_among_those_with_its_hash(
    messages: list[KeyedMessage], batch: int, restarts: list[int]
) -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    model: dict[int, list[int]] = {}
    for number, keyed in enumerate(messages):
        if number in restarts:
            index = reopened(index, disk)
        if number % batch == 0:
            index.put(messages[number : number + batch])
        for code in dict.fromkeys(book_hash(keyed[2], key) for key in keyed[3]):
            model.setdefault(code, []).insert(0, keyed[0])
    for topic, key in {(topic, key) for _, _, topic, keys in messages for key in keys}:
        assert found(index, key, topic) == model[book_hash(topic, key)]
    assert found(index, "no such key") == []


@given(logs(), st.data())
@settings(deadline=None)
def test_a_query_by_time_finds_all_of_it_and_little_more(messages: list[KeyedMessage], data: st.DataObject) -> None:
    in_order = [(physical, NOW_MS + physical * 7, "orders", ("a",)) for physical, *_ in messages]
    index = opened(SimulatedDisk())
    index.put(in_order)
    last = in_order[-1][1] if in_order else NOW_MS
    begin_ms = data.draw(st.integers(NOW_MS - 2000, last + 2000))
    end_ms = data.draw(st.integers(begin_ms, last + 4000))
    hits = found(index, "a", at=(begin_ms, end_ms))
    inside = {physical for physical, at_ms, *_ in in_order if begin_ms <= at_ms <= end_ms}
    near = {physical for physical, at_ms, *_ in in_order if begin_ms - 1000 < at_ms < end_ms + 1000}
    assert hits == sorted(hits, reverse=True)
    assert inside <= set(hits) <= near


def test_a_query_stops_at_its_number_and_tells_how_far_the_index_is() -> None:
    index = filled(SimulatedDisk())
    index.put([message(1000, "k0", "k10"), message(2000, "k0")])
    assert index.query("orders", "k0", 2, *EVER) == ([2000, 1000], NOW_MS + 2000, 2000)
    assert index.query("orders", "k0", 0, *EVER).offsets == []
    assert found(index, "k0") == [2000, 1000, 0]


def test_an_empty_index_answers() -> None:
    index = opened(SimulatedDisk())
    index.after_clean_stop()
    assert index.query("orders", "a", 32, *EVER) == ([], 0, 0)
    assert index.end_physical == -1


def test_a_message_is_found_once_though_two_of_its_keys_are_the_same() -> None:
    index = opened(SimulatedDisk())
    index.put([message(0, "a", "a"), message(10, *["a"] * 10)])
    assert found(index, "a", max_num=2) == [10, 0]


def test_messages_that_are_known_are_skipped() -> None:
    disk = SimulatedDisk()
    index = filled(disk)
    index.put([message(190, "again"), message(50, "again"), message(195, "new"), message(193, "late")])
    assert found(index, "again") == found(index, "late") == []
    assert found(index, "new") == [195]
    index = reopened(index, disk)
    index.put([message(195, "new")])
    assert found(index, "new") == [195]
    assert index.end_physical == 195


def test_messages_without_keys_leave_nothing() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    index.put([])
    index.put([message(0), message(10)])
    assert contents(disk) == []
    index.put([message(20), message(30, "a"), message(40)])
    assert index.end_physical == 30


@pytest.mark.parametrize("space", [0, 4096, 8192])
def test_a_full_disk_takes_nothing_of_a_batch_and_all_of_it_later(space: int) -> None:
    disk = SimulatedDisk()
    capacity = IndexCapacity(slots=3, entries=300)
    index = opened(disk, capacity)
    first = [message(number, f"k{number}") for number in range(250)]
    index.put(first)
    before = contents(disk)
    disk.space_left = space
    more = [message(number, f"k{number}", "x") for number in range(250, 1000)]
    for _ in range(2):
        with pytest.raises(StoreFull, match="cannot be written: No space left"):
            index.put(more)
        assert found(index, "x") == []
        assert index.end_physical == 249
        assert [data[:52] for data in contents(disk)] == [data[:52] for data in before]  # header and slots
    disk.space_left = None
    index.put(more)
    assert contents(disk) == by_the_book(first + more, capacity)
    assert indexed(disk, capacity) == expected(first + more)


def test_a_disk_that_fails_to_write_leaves_the_index_as_it_was() -> None:
    disk = SimulatedDisk()
    index = filled(disk)
    disk.fail_writes(OSError(errno.EIO, "Input/output error"))
    with pytest.raises(StoreFull, match="Input/output error"):
        index.put([message(number, "x") for number in range(200, 210)])
    disk.fail_writes(None)
    assert len(disk.names(DIRECTORY)) == 3
    index = reopened(index, disk)
    index.put([message(number, "x") for number in range(200, 210)])
    assert found(index, "x") == list(range(209, 199, -1))


def test_a_query_in_a_thread_may_end_after_its_file_was_dropped(tmp_path: Path) -> None:
    index = opened(RealDisk(), root=tmp_path)
    index.put([message(number * 10, "a") for number in range(20)])
    dropped = threading.Event()
    responses: list[int] = []

    def request() -> None:
        files = list(index._directory.files)
        dropped.wait()
        for file in files:
            responses.extend(file.find(book_hash("orders", "a"), *EVER))

    thread = threading.Thread(target=request)
    with index.lease():
        thread.start()
        index.drop_before(10**12)
        dropped.set()
        thread.join()
    assert responses == [*range(60, -1, -10), *range(130, 60, -10), *range(190, 130, -10)]
    index.close()


def test_queries_in_threads_see_whole_batches_while_messages_are_put(tmp_path: Path) -> None:
    index = opened(RealDisk(), IndexCapacity(slots=50, entries=1000), root=tmp_path)
    done = threading.Event()
    faults: list[list[int]] = []

    def request() -> None:
        while not done.is_set():
            hits = found(index, "a", max_num=10**6)
            if hits != list(range(len(hits) - 1, -1, -1)):
                faults.append(hits)

    threads = [threading.Thread(target=request) for _ in range(3)]
    with index.lease():
        for thread in threads:
            thread.start()
        for begin in range(0, 5000, 50):
            index.put([message(number, "a", f"k{number}") for number in range(begin, begin + 50)])
        done.set()
        for thread in threads:
            thread.join()
    assert not faults
    assert found(index, "a", max_num=10**6) == list(range(4999, -1, -1))
    index.close()
