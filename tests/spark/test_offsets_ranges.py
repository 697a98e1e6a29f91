"""Splitting the offset ranges of queues into Spark partitions."""

from hypothesis import given
from hypothesis import strategies as st

from ariane.model.route import MessageQueue
from ariane.spark.offsets import QueueRange, SplitLimits, split_ranges

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
