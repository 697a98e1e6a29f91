"""The ranges of a micro-batch, and how much goes into the next one."""

from hypothesis import given
from hypothesis import strategies as st

from ariane.model.route import MessageQueue
from ariane.spark.offsets import QueueRange, StreamOffset
from ariane.spark.read.planning import Minimum, limited, rows_for_bytes, stream_ranges

Q = [MessageQueue(topic="t", broker_name="b", queue_id=number) for number in range(4)]


def test_a_micro_batch_has_a_range_of_each_queue_between_two_offsets() -> None:
    end = StreamOffset({Q[1]: 9, Q[0]: 7})
    assert stream_ranges(StreamOffset({Q[0]: 3, Q[1]: 9}), end) == [QueueRange(Q[0], 3, 7), QueueRange(Q[1], 9, 9)]


def test_a_queue_that_is_new_begins_where_the_checkpoint_says() -> None:
    end = StreamOffset({Q[0]: 7, Q[1]: 9, Q[2]: 2}, begins={Q[1]: 4})
    new = stream_ranges(StreamOffset({Q[0]: 7}), end)[1:]
    assert new == [QueueRange(Q[1], 4, 9), QueueRange(Q[2], 0, 2)]


def test_a_queue_that_was_created_again_gives_an_empty_range() -> None:
    assert stream_ranges(StreamOffset({Q[0]: 7}), StreamOffset({Q[0]: 5})) == [QueueRange(Q[0], 7, 7)]


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
