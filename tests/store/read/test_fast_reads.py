"""Reads in a row: the same records as one by one, for fewer questions to the disk."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.store.commit_log.log import CommitLog
from ariane.store.consume_queue.entry import ENTRY
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.message_store import MessageStore
from ariane.store.read import fast_reads
from tests.simulation.simulated_disk import SimulatedDisk, SimulatedFile
from tests.store.stores import bodies, draft, opened, put

MESSAGES = 400


@pytest.fixture
def store() -> MessageStore:
    """Two queues in one log, all of it written long ago as far as anybody knows, and checked."""
    store = opened(SimulatedDisk(), segment_bytes=256 * 1024, queue_segment_bytes=20_000)
    put(store, *[draft(bytes(1 + number % 90), queue_id=number // 5 % 2) for number in range(2 * MESSAGES)])
    store.make_durable()
    for queue_id in range(2):
        assert len(bodies(store, "orders", queue_id)) == MESSAGES
    return store


def queue_of(store: MessageStore, queue_id: int = 0) -> ConsumeQueue:
    queue = store.components.queues.get("orders", queue_id)
    assert queue is not None
    return queue


@given(asks=st.lists(st.tuples(st.integers(0, 1), st.integers(0, MESSAGES + 2), st.integers(1, 9)), max_size=6))
@settings(max_examples=30, deadline=None)
def test_reads_in_a_row_find_what_reads_by_themselves_find(asks: list[tuple[int, int, int]]) -> None:
    store = opened(SimulatedDisk(), segment_bytes=16 * 1024, queue_segment_bytes=400)
    put(store, *[draft(bytes(1 + number % 90), queue_id=number // 5 % 2) for number in range(2 * MESSAGES)])
    reads = store.reader.read_ahead()
    for queue_id, offset, count in asks:
        queue = queue_of(store, queue_id)
        for at in range(offset, offset + 12 * count, count):
            run = reads.find(queue, at, count, 10**6)
            if run is not None:
                whole = store.reader.read("orders", queue_id, at, count)
                assert [bytes(piece) for piece in run.slices()] == [bytes(piece) for piece in whole.slices]
                assert at + len(run.offsets) == whole.next_offset


def test_a_row_asks_the_disk_less_often_than_its_reads_by_themselves(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    read_cached = SimulatedFile.read_cached

    def counting(self: SimulatedFile, length: int, position: int) -> bytes | None:
        asked.append(position)
        return read_cached(self, length, position)

    monkeypatch.setattr(SimulatedFile, "read_cached", counting)
    offsets = range(0, 160, 10)
    by_themselves = [store.reader.read_ahead().find(queue_of(store), at, 10, 10**6) for at in offsets]
    one_by_one = len(asked)
    asked.clear()
    reads = store.reader.read_ahead()
    in_a_row = [reads.find(queue_of(store), at, 10, 10**6) for at in offsets]
    assert in_a_row == by_themselves
    assert None not in in_a_row
    assert len(asked) * 3 < one_by_one


def test_a_row_that_has_left_the_page_cache_is_for_the_general_way(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = store.reader.read_ahead()
    assert reads.find(queue_of(store), 0, 10, 10**6) is not None
    monkeypatch.setattr(SimulatedFile, "read_cached", lambda self, length, position: None)
    assert reads.find(queue_of(store), 10, 10, 10**6) is None


def test_between_two_records_that_are_in_memory_and_far_apart_others_are_asked_for(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One reader has read the beginning, another one the end."""
    queue = queue_of(store)
    cold = range(*(ENTRY.unpack(queue.entries(offset, 1))[0] for offset in (100, 140)))
    monkeypatch.setattr(fast_reads, "_PROBE_SPAN_BYTES", 2000)
    monkeypatch.setattr(CommitLog, "is_ready", lambda log, places: all(place not in cold for place, _ in places))
    reads = store.reader.read_ahead()
    found = [reads.find(queue, offset, 10, 10**6) is not None for offset in range(0, 200, 10)]
    assert found[:10] == [True] * 10
    assert not any(found[10:14])
