"""Entries looked at together: the same records as entry by entry, or None."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.store.commit_log.log import CommitLog
from ariane.store.consume_queue.entry import ENTRY
from ariane.store.message_store import MessageStore
from ariane.store.read.fast_reads import SegmentRead, find_segment_read
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import draft, opened, put

ANY = 1 << 40
FILE_BYTES = 8192


@pytest.fixture(scope="module")
def store() -> MessageStore:
    """Records of 1 to 600 bytes of body, in four files."""
    store = opened(SimulatedDisk(), segment_bytes=FILE_BYTES)
    put(store, *[draft(bytes([number]) * (number * 37 % 600 + 1), queue_id=number % 2) for number in range(60)])
    return store


def places_of(store: MessageStore) -> list[tuple[int, int]]:
    """Every record, where it is and how long."""
    queues = [store.components.queues.get("orders", number) for number in (0, 1)]
    entries = b"".join(queue.entries(0, 100) for queue in queues if queue is not None)
    return sorted((physical, size) for physical, size, _ in ENTRY.iter_unpack(entries))


def run_of(
    log: CommitLog, places: list[tuple[int, int]], bytes_max: int = ANY, memory: int = ANY
) -> SegmentRead | None:
    return find_segment_read(log, b"".join(ENTRY.pack(*place, 77) for place in places), bytes_max, memory)


def one_by_one(log: CommitLog, places: list[tuple[int, int]]) -> list[bytes | None]:
    return [None if (found := log.read(*place)) is None else bytes(found) for place in places]


def test_records_of_one_file_are_given_as_they_are(store: MessageStore) -> None:
    log = store.components.commit_log
    places = [place for place in places_of(store) if place[0] < FILE_BYTES][::3]
    run = run_of(log, places)
    assert run is not None
    assert [bytes(piece) for piece in run.slices()] == one_by_one(log, places)
    assert (run.size, len(run.offsets)) == (sum(size for _, size in places), len(places))


def test_records_that_follow_each_other_are_one_piece(store: MessageStore) -> None:
    places = [place for place in places_of(store) if place[0] < FILE_BYTES][2:9]
    run = run_of(store.components.commit_log, places)
    assert run is not None
    assert len(run.pieces()) == 1
    assert bytes(run.pieces()[0]) == b"".join(run.slices())


def test_what_overlaps_and_leaves_a_gap_is_not_one_piece(store: MessageStore) -> None:
    (first, a), (second, b), (third, c) = places_of(store)[:3]
    run = run_of(store.components.commit_log, [(first, a), (second - 5, b), (third, c)])
    assert run is not None
    assert first + run.size == third + c
    assert len(run.pieces()) == 3


def test_no_entries_are_for_the_general_way_and_many_are_not(store: MessageStore) -> None:
    place = places_of(store)[0]
    assert run_of(store.components.commit_log, []) is None
    run = run_of(store.components.commit_log, [place] * 1024)
    assert run is not None
    assert len(run.slices()) == 1024


def test_as_many_records_are_given_as_the_bytes_allow(store: MessageStore) -> None:
    log, places = store.components.commit_log, [place for place in places_of(store) if place[0] < FILE_BYTES]
    sizes = [size for _, size in places]
    for count in range(1, len(places)):
        for bytes_max in (sum(sizes[:count]), sum(sizes[: count + 1]) - 1):
            run = run_of(log, places, bytes_max=bytes_max)
            assert run is not None
            assert (len(run.offsets), run.size) == (count, sum(sizes[:count]))
            assert [bytes(piece) for piece in run.slices()] == one_by_one(log, places[:count])


def test_a_first_record_that_is_too_large_and_a_size_that_none_has_are_for_the_general_way(store: MessageStore) -> None:
    log, (first, second, *_) = store.components.commit_log, places_of(store)
    assert run_of(log, [first, second], bytes_max=first[1] - 1) is None
    assert run_of(log, [first, (second[0], -1)], bytes_max=first[1]) is None
    assert run_of(log, [first, (second[0], 2**31 - 1)], bytes_max=first[1]) is None


def test_two_files_and_far_behind_are_for_the_general_way(store: MessageStore) -> None:
    log, places = store.components.commit_log, places_of(store)
    first = [place for place in places if place[0] < FILE_BYTES]
    assert run_of(log, [first[0], places[-1]]) is None
    assert run_of(log, first, memory=log.max_offset) is not None
    assert run_of(log, first, memory=log.max_offset - 1) is None


def test_a_record_that_reaches_past_the_end_of_the_log_is_for_the_general_way(store: MessageStore) -> None:
    log, (*_, (before, _), (last, size)) = store.components.commit_log, places_of(store)
    assert run_of(log, [(before, 1), (last, size)]) is not None
    assert run_of(log, [(before, log.max_offset - before), (last, size)]) is not None
    assert run_of(log, [(before, log.max_offset - before + 1), (last, size)]) is None
    assert run_of(log, [(last, size + 1)]) is None


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-100, 5 * FILE_BYTES) | st.sampled_from([2**62, -(2**63)]), st.integers(-5, 700)),
        max_size=6,
    )
)
def test_any_entries_are_read_as_one_by_one_or_left(store: MessageStore, places: list[tuple[int, int]]) -> None:
    log = store.components.commit_log
    for tried in (places, sorted(places)):
        run = run_of(log, tried)
        if run is not None:
            assert [bytes(piece) for piece in run.slices()] == one_by_one(log, tried)
            assert b"".join(run.pieces()) == b"".join(run.slices())
