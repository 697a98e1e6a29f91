"""Pull responses in their receive buffers: grouped for the decoder, and decoded to batches."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from ariane.arrow.filter import Selection
from ariane.errors import StoreError
from ariane.model.ids import QueueOffset
from ariane.model.route import MessageQueue
from ariane.spark.offsets import QueueRange
from ariane.spark.options.base import read_options
from ariane.spark.options.read import ReadOptions
from ariane.spark.read.columns import columns_of, spark_schema
from ariane.spark.read.output import Output
from ariane.spark.read.pull_buffers import PullBuffers, grouped_by_buffer
from ariane.transport.blocking import Span
from ariane.wire.record.layout import encode
from tests.wire.sample_records import MESSAGE

QUEUE = MessageQueue(topic=MESSAGE.topic, broker_name="broker-a", queue_id=MESSAGE.queue_id)


def record(offset: int) -> bytes:
    return encode(replace(MESSAGE, queue_offset=QueueOffset(offset)))


def received(*bodies: bytes) -> list[Span]:
    memory = memoryview(b"header" + b"header".join(bodies))
    spans, at = [], 0
    for body in bodies:
        at += len(b"header")
        spans.append(Span(memory, at, at + len(body)))
        at += len(body)
    return spans


def offsets(responses: Iterator[PullBuffers], *, fail: str = "true") -> list[int]:
    options = read_options(
        ReadOptions, {"nameServer": "h:1", "topic": MESSAGE.topic, "columns": "queueOffset", "failOnDataLoss": fail}
    )
    with Output(options, columns_of(options, spark_schema(options)), "here") as output:
        batches = [
            batch for some in responses for batch in output.batches(some, QueueRange(QUEUE, 0, 100), Selection())
        ]
    return [offset for batch in batches for offset in batch.column("queueOffset").to_pylist()]


def test_responses_in_one_buffer_are_one_call_of_the_decoder() -> None:
    here, there = received(b"a", b"b", b"c"), received(b"d")
    assert [some.joined() for some in grouped_by_buffer([*here, *there])] == [b"abc", b"d"]
    assert list(grouped_by_buffer([])) == []


def test_responses_that_arrived_out_of_order_are_returned_in_order() -> None:
    second, first, third = received(record(2), record(0) + record(1), record(3))
    assert offsets(grouped_by_buffer([first, second, third])) == [0, 1, 2, 3]


def test_messages_outside_of_the_range_are_left_out() -> None:
    assert offsets(grouped_by_buffer(received(record(98) + record(99), record(100) + record(101)))) == [98, 99]


def test_a_damaged_record_stops_the_read_or_is_left_out_alone() -> None:
    broken = bytearray(record(1))
    broken[4] ^= 0xFF
    damaged = received(record(0), bytes(broken) + record(2), record(3))
    with pytest.raises(StoreError, match="are not a readable message"):
        offsets(grouped_by_buffer(damaged))
    assert offsets(grouped_by_buffer(damaged), fail="false") == [0, 2, 3]
