"""Reading a queue: Apache's statuses and next offsets, its limits, and filters."""

from dataclasses import dataclass
from typing import Any

import pytest

from ariane.settings import change
from ariane.store.blocking_io import run_sync
from ariane.store.message_store import MessageStore
from ariane.store.read.reader import Reader, TagMatch
from ariane.store.read.result import ReadResult, ReadStatus
from ariane.wire.hashes import tags_code
from ariane.wire.record.read import RecordView, verify
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import draft, opened, put, shortened

EVER = 2**62


def queue_of(*sizes: int, segment_bytes: int = 8192, **limits: Any) -> MessageStore:
    store = opened(SimulatedDisk(), segment_bytes=segment_bytes, **limits)
    put(store, *[draft(bytes(size)) for size in sizes])
    return store


def read(store: MessageStore, offset: int, count: int = 32) -> ReadResult:
    return store.reader.read("orders", 0, offset, count)


# --- the table of statuses --------------------------------------------------------------------------------------------


def test_a_queue_that_nobody_wrote_to_is_not_there() -> None:
    result = opened(SimulatedDisk()).reader.read("orders", 0, 7, 32)
    assert (result.status, result.next_offset) == (ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0)


def test_a_queue_without_messages() -> None:
    store = opened(SimulatedDisk())
    put(store, draft(b"", sys_flag=0x4))
    assert (read(store, 5).status, read(store, 5).next_offset) == (ReadStatus.NO_MESSAGE_IN_QUEUE, 0)


@dataclass
class Case:
    offset: int
    status: ReadStatus
    following: int


@pytest.mark.parametrize(
    "case",
    [
        Case(0, ReadStatus.FOUND, 3),
        Case(2, ReadStatus.FOUND, 3),
        Case(3, ReadStatus.OFFSET_OVERFLOW_ONE, 3),
        Case(4, ReadStatus.OFFSET_OVERFLOW_BADLY, 3),
        Case(-1, ReadStatus.OFFSET_TOO_SMALL, 0),
    ],
    ids=lambda case: f"{case.offset}",
)
def test_offsets_of_a_queue_that_begins_at_0(case: Case) -> None:
    result = read(queue_of(1, 1, 1), case.offset)
    assert (result.status, result.next_offset) == (case.status, case.following)
    assert (result.min_offset, result.max_offset) == (0, 3)


@pytest.mark.parametrize(
    "case",
    [
        Case(0, ReadStatus.OFFSET_TOO_SMALL, 2),
        Case(1, ReadStatus.OFFSET_TOO_SMALL, 2),
        Case(2, ReadStatus.FOUND, 4),
        Case(4, ReadStatus.OFFSET_OVERFLOW_ONE, 4),
        Case(5, ReadStatus.OFFSET_OVERFLOW_BADLY, 4),
    ],
    ids=lambda case: f"{case.offset}",
)
def test_offsets_of_a_queue_whose_beginning_was_deleted(case: Case) -> None:
    result = read(shortened(), case.offset)
    assert (result.status, result.next_offset) == (case.status, case.following)
    assert (result.min_offset, result.max_offset) == (2, 4)


def test_messages_deleted_under_their_entries_are_passed_over() -> None:
    """Between the deletion of a log file and that of the entries: a reader meets entries without a record."""
    store = queue_of(5000, 5000, 5000)
    run_sync(store.components.commit_log.segments.drop_first_steps())
    result = read(store, 0)
    assert (result.status, result.next_offset, len(result.slices)) == (ReadStatus.FOUND, 3, 2)


def test_nothing_but_deleted_messages() -> None:
    store = queue_of(5000, 5000)
    run_sync(store.components.commit_log.segments.drop_first_steps())
    put(store, draft(b"", queue_id=1))
    result = store.reader.read("orders", 0, 0, 32, tag_match=lambda code: False)
    assert (result.status, result.next_offset) == (ReadStatus.MESSAGE_WAS_REMOVING, 2)


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "got"), [(1, 1), (5, 5), (32, 32), (100, 32)])
def test_a_read_is_limited_by_count(asked: int, got: int) -> None:
    result = read(queue_of(*[10] * 40), 3, asked)
    assert (len(result.slices), result.next_offset) == (got, 3 + got)


def test_a_read_is_limited_by_bytes() -> None:
    store = queue_of(*[903] * 10)
    result = store.reader.read("orders", 0, 0, 32, bytes_max=3000)
    assert (len(result.slices), result.next_offset) == (3, 3)
    exactly = store.reader.read("orders", 0, 0, 32, bytes_max=2999)
    assert len(exactly.slices) == 2


def is_found(code: int) -> bool:
    return True


WITH_AND_WITHOUT = pytest.mark.parametrize("tag_match", [None, is_found], ids=["straight", "entry by entry"])


@WITH_AND_WITHOUT
@pytest.mark.parametrize(("asked", "got"), [(200, 128), (128, 128), (127, 127), (1, 1)])
def test_a_store_can_be_set_to_return_more_at_once(asked: int, got: int, tag_match: TagMatch | None) -> None:
    store = queue_of(*[10] * 150, segment_bytes=64 * 1024, pull_count_max=128)
    result = store.reader.read("orders", 0, 3, asked, tag_match=tag_match)
    assert (len(result.slices), result.next_offset) == (got, 3 + got)


@WITH_AND_WITHOUT
def test_a_store_can_be_set_to_return_fewer_bytes(tag_match: TagMatch | None) -> None:
    store = queue_of(*[903] * 10, pull_bytes_max=3000)
    for wanted in (10**6, 3000):
        assert len(store.reader.read("orders", 0, 0, 32, wanted, tag_match).slices) == 3
    assert len(store.reader.read("orders", 0, 0, 32, 2999, tag_match).slices) == 2
    assert len(store.reader.read("orders", 0, 0, 32, tag_match=tag_match).slices) == 3


@pytest.mark.parametrize(("limits", "got"), [((2, 10**6), 2), ((5, 700), 3), ((40, 10**6), 40)])
def test_who_is_far_behind_has_limits_of_its_own(limits: tuple[int, int], got: int) -> None:
    store = queue_of(*[100] * 40, far_pull_count_max=limits[0], far_pull_bytes_max=limits[1])
    assert len(far_behind(store, 1000).read("orders", 0, 0, 100).slices) == got
    assert len(read(store, 0, 100).slices) == 32


def test_a_limit_that_changes_counts_for_the_next_read() -> None:
    store = queue_of(*[10] * 40)
    change(store.settings, {"maxTransferCountOnMessageInMemory": "5", "maxTransferCountOnMessageInDisk": "3"})
    assert (len(read(store, 0).slices), len(far_behind(store, 0).read("orders", 0, 0, 32).slices)) == (5, 3)
    change(store.settings, {"maxTransferBytesOnMessageInMemory": "1", "maxTransferBytesOnMessageInDisk": "1"})
    assert (len(read(store, 0).slices), len(far_behind(store, 0).read("orders", 0, 0, 32).slices)) == (1, 1)


def test_the_first_message_is_read_however_large() -> None:
    result = queue_of(5000, 10).reader.read("orders", 0, 0, 32, bytes_max=1)
    assert (len(result.slices), result.next_offset) == (1, 1)


def test_slices_are_the_records_themselves_and_ranges_tell_where() -> None:
    store = queue_of(1, 2, 3)
    result = read(store, 0)
    assert all(piece.readonly for piece in result.slices)
    assert [bytes(store.lookup.record_at(physical) or b"") for physical, _ in result.ranges] == [
        bytes(piece) for piece in result.slices
    ]
    assert [size for _, size in result.ranges] == [len(piece) for piece in result.slices]


def far_behind(store: MessageStore, memory_bytes: int) -> Reader:
    parts = store.components
    return Reader(parts.commit_log, parts.queues, lambda queue, place: 0, memory_bytes, store.settings)


def test_a_reader_that_is_far_behind_gets_less_and_the_hint_to_ask_a_slave() -> None:
    store = queue_of(*[100] * 40)
    behind = far_behind(store, 1000).read("orders", 0, 0, 32)
    assert (len(behind.slices), behind.suggest_slave) == (8, True)
    near = far_behind(store, 1000).read("orders", 0, 36, 32)
    assert (len(near.slices), near.suggest_slave) == (4, False)
    assert not read(store, 0).suggest_slave


def test_a_reader_that_is_far_behind_gets_at_most_64_kib() -> None:
    store = queue_of(*[30_000] * 5, segment_bytes=64 * 1024)
    assert len(far_behind(store, 0).read("orders", 0, 0, 32).slices) == 2
    assert len(read(store, 0).slices) == 5


# --- filters ----------------------------------------------------------------------------------------------------------


def tagged(*tags: str) -> MessageStore:
    store = opened(SimulatedDisk())
    put(store, *[draft(b"%d" % number, tag=tag) for number, tag in enumerate(tags)])
    return store


def found_bodies(result: ReadResult) -> list[bytes]:
    views = [(verify(piece), piece) for piece in result.slices]
    return [view.body(piece) for view, piece in views if isinstance(view, RecordView)]


def test_a_filter_by_tag_advances_past_what_it_leaves_out() -> None:
    store = tagged("a", "b", "a", "b", "b")
    wanted = tags_code("a")
    result = store.reader.read("orders", 0, 0, 32, tag_match=lambda code: code == wanted)
    assert (found_bodies(result), result.next_offset) == ([b"0", b"2"], 5)


def test_a_filter_that_matches_nothing_says_so_and_moves_on() -> None:
    result = tagged("a", "b").reader.read("orders", 0, 0, 32, tag_match=lambda code: False)
    assert (result.status, result.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 2)


def test_a_filter_that_matches_nothing_gives_up_after_800_entries() -> None:
    store = tagged(*["a"] * 900)
    result = store.reader.read("orders", 0, 0, 32, tag_match=lambda code: False)
    assert (result.status, result.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 800)


def test_a_filter_may_look_at_the_record() -> None:
    result = tagged("a", "b", "c").reader.read("orders", 0, 0, 32, record_match=lambda record: b"b" in bytes(record))
    assert (found_bodies(result), result.next_offset) == ([b"1"], 3)
