"""Splitting the offset ranges of queues into Spark partitions."""

from hypothesis import given
from hypothesis import strategies as st

from ariane.model.route import MessageQueue
from ariane.spark.offsets import QueueRange, SplitLimits, split_ranges
from ariane.spark.read.planning import Minimum, limited, rows_for_bytes

Q = [MessageQueue(topic="t", broker_name="b", queue_id=number) for number in range(4)]
_RANGES = st.lists(
    st.builds(
        lambda q, start, size: QueueRange(Q[q], start, start + size),
        st.integers(0, 3),
        st.integers(0, 50),
        st.integers(0, 500),
    ),
    max_size=5,
)
_MAYBE = st.none() | st.integers(1, 60)


@given(_RANGES, _MAYBE, _MAYBE, _MAYBE)
def test_split_ranges_cover_the_same_offsets_once(
    ranges: list[QueueRange], partitions: int | None, records: int | None, size: int | None
) -> None:
    limits = SplitLimits(partitions_min=partitions, records_max=records, bytes_max=size)
    pieces = split_ranges(ranges, limits, dict.fromkeys(Q, 10.0))
    offsets = sorted((piece.queue.queue_id, at) for piece in pieces for at in range(piece.start, piece.end))
    assert offsets == sorted(
        (given_range.queue.queue_id, at) for given_range in ranges for at in range(given_range.start, given_range.end)
    )
    total = sum(len(given_range) for given_range in ranges)
    assert len(pieces) >= min(partitions or 0, total)
    assert records is None or all(len(piece) <= records for piece in pieces)
    assert size is None or all(len(piece) <= max(1, size // 10) for piece in pieces)


def test_an_empty_range_makes_no_partition() -> None:
    assert split_ranges([QueueRange(Q[0], 5, 5)], SplitLimits(partitions_min=4)) == []


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 999)), min_size=1, max_size=4), st.integers(1, 500))
def test_a_limited_batch_gives_every_queue_with_messages_at_least_one(
    queues: list[tuple[int, int]], rows_max: int
) -> None:
    start = {Q[number]: at for number, (at, _) in enumerate(queues)}
    head = {Q[number]: at + waiting for number, (at, waiting) in enumerate(queues)}
    chosen = limited(start, head, rows_max)
    for queue, end in head.items():
        assert start[queue] <= chosen[queue] <= end
        assert (chosen[queue] > start[queue]) == (end > start[queue])
    assert sum(chosen[queue] - start[queue] for queue in start) <= max(rows_max, 0) + len(queues)


def test_bytes_become_rows_by_the_mean_size() -> None:
    start, head = {Q[0]: 0, Q[1]: 0}, {Q[0]: 100, Q[1]: 300}
    assert rows_for_bytes(start, head, {Q[0]: 40.0, Q[1]: 80.0}, 7000) == 100
    assert rows_for_bytes(start, start, {}, 7000) == float("inf")


def test_a_minimum_waits_for_rows_or_for_the_delay() -> None:
    minimum = Minimum(rows_min=10, delay_max_s=5)
    assert not minimum.is_enough(0, 0)
    assert not minimum.is_enough(3, 100)
    assert not minimum.is_enough(4, 104)
    assert minimum.is_enough(4, 105)
    assert not minimum.is_enough(3, 106)
    assert minimum.is_enough(10, 107)
