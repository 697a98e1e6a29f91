"""ProcessQueue: the committed offset is never above an unfinished message; flow limits."""

from ipaddress import IPv4Address

from hypothesis import given
from hypothesis import strategies as st

from ariane.client.consumer.message import Received
from ariane.client.consumer.pull_loop import FlowLimits
from ariane.client.consumer.queues import ProcessQueue
from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.model.message import HostPort
from ariane.model.route import MessageQueue

HOST = HostPort(IPv4Address("10.0.0.1"), 10911)
QUEUE = MessageQueue(topic="orders", broker_name="a", queue_id=0)


def message(offset: int, body: bytes = b"body") -> Received:
    return Received(
        topic="orders",
        body=body,
        queue_id=0,
        queue_offset=QueueOffset(offset),
        physical_offset=PhysicalOffset(offset * 100),
        sys_flag=0,
        born_timestamp_ms=0,
        born_host=HOST,
        store_timestamp_ms=0,
        store_host=HOST,
        queue=QUEUE,
    )


def test_the_smallest_unfinished_offset_is_committed() -> None:
    process = ProcessQueue(10)
    process.put([message(10), message(11), message(12)], 13)
    first, second, third = process.take(3)
    process.finish([third])
    assert process.commit_offset == 10
    process.finish([first])
    assert process.commit_offset == 11
    process.finish([second])
    assert process.commit_offset == 13


def test_filtered_messages_are_committed_when_nothing_is_unfinished() -> None:
    process = ProcessQueue(10)
    process.put([], 500)
    assert process.commit_offset == 500


def test_gaps_between_offsets_are_skipped() -> None:
    process = ProcessQueue(0)
    process.put([message(3), message(9)], 20)
    assert process.commit_offset == 3
    process.finish(process.take(1))
    assert process.commit_offset == 9


def test_a_repeated_response_adds_nothing_twice() -> None:
    process = ProcessQueue(0)
    process.put([message(0), message(1)], 2)
    process.put([message(1), message(2)], 3)
    assert [message.queue_offset for message in process.take(10)] == [0, 1, 2]


def test_a_response_never_moves_the_next_pull_back() -> None:
    process = ProcessQueue(10)
    process.put([], 4)
    assert process.next_offset == 10


def test_finishing_twice_counts_once() -> None:
    process = ProcessQueue(0)
    process.put([message(0)], 1)
    taken = process.take(1)
    process.finish(taken)
    process.finish(taken)
    assert (len(process), process.bytes) == (0, 0)


def test_what_is_put_back_comes_first_and_in_order() -> None:
    process = ProcessQueue(0)
    process.put([message(0), message(1), message(2)], 3)
    process.put_back(process.take(2))
    assert [message.queue_offset for message in process.take(3)] == [0, 1, 2]


def test_count_bytes_and_span_are_each_a_limit() -> None:
    process = ProcessQueue(0)
    process.put([message(0, b"x" * 50), message(40)], 41)
    assert FlowLimits().exceeded_by(process) is None
    assert FlowLimits(count=1).exceeded_by(process) == "count"
    assert FlowLimits(bytes=50).exceeded_by(process) == "bytes"
    assert FlowLimits(span=39).exceeded_by(process) == "span"
    assert FlowLimits(span=39).exceeded_by(process, ordered=True) is None


def test_the_limits_can_be_checked_for_a_response_before_it_is_decoded() -> None:
    process = ProcessQueue(0)
    process.put([message(0, b"x" * 50), message(40)], 41)
    assert not FlowLimits().exceeded_with(process, 32, 1000, 73)
    assert FlowLimits(count=33).exceeded_with(process, 32, 1000, 73)
    assert not FlowLimits(count=34).exceeded_with(process, 32, 1000, 73)
    assert FlowLimits(bytes=1053).exceeded_with(process, 32, 1000, 73)
    assert FlowLimits(span=71).exceeded_with(process, 32, 1000, 73)
    assert not FlowLimits(span=72).exceeded_with(process, 32, 1000, 73)
    assert not FlowLimits(span=71).exceeded_with(process, 32, 1000, 73, ordered=True)


@given(st.lists(st.integers(0, 200), unique=True, min_size=1), st.randoms(use_true_random=False))
def test_no_unfinished_message_is_committed_in_any_order_of_finishing(offsets: list[int], chance: object) -> None:
    process = ProcessQueue(0)
    process.put([message(offset) for offset in sorted(offsets)], 300)
    in_hand = process.take(len(offsets))
    left = set(offsets)
    committed = process.commit_offset
    chance.shuffle(in_hand)  # type: ignore[attr-defined]
    for taken in in_hand:
        process.finish([taken])
        left.discard(taken.queue_offset)
        assert process.commit_offset == min(left, default=300)
        assert process.commit_offset >= committed
        committed = process.commit_offset
        assert process.span == (max(_reach(process, offsets)) - min(left) if left else 0)
    assert process.bytes == 0


def _reach(process: ProcessQueue, offsets: list[int]) -> list[int]:
    """Finished offsets above the first unfinished one count for the span: a crash would repeat them."""
    return [offset for offset in offsets if offset >= process.commit_offset]
