"""Pulls to a broker without a socket, by the fast path or without it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ariane.model.group import ConsumeFromWhere, ConsumeType, GroupConfig, MessageModel, Subscription
from ariane.model.topic import TopicConfig
from ariane.testing import FakeClock
from ariane.wire.codes import Serialization
from ariane.wire.exchange import request_command
from ariane.wire.frame import FrameDecoder, encode_frame
from ariane.wire.requests.clients import ConsumerData, Heartbeat, HeartbeatData
from ariane.wire.requests.pull import Pull
from tests.broker.in_process_broker import GROUP, TOPIC, a_send, in_process_broker
from tests.broker.send.test_fast_path import FakeConnection

CLOSED = "closed"
BIG = "big"
SMALL_FILES = {"segment_bytes": 32 * 1024}
TOPICS = (
    TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4),
    TopicConfig(topic_name=BIG),
    TopicConfig(topic_name=CLOSED, perm=2),
)


@asynccontextmanager
async def connection_to(tmp_path: Path, *, fast_path: bool = True, **changes: Any) -> AsyncIterator[FakeConnection]:
    async with in_process_broker(tmp_path, FakeClock(), topics=TOPICS, **changes) as broker:
        yield FakeConnection(broker, fast_path=fast_path)


def cut(data: bytes) -> Iterator[bytes]:
    while data:
        end = 4 + int.from_bytes(data[:4], "big")
        yield data[:end]
        data = data[end:]


async def responses(to: FakeConnection, data: bytes) -> dict[int, bytes]:
    """Frames by opaque number: the order of answers is nobody's business."""
    to.connection.data_received(data)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    frames, to.sink.written = list(cut(to.sink.written)), b""
    return {opaque_of(frame): frame for frame in frames}


def opaque_of(frame: bytes) -> int:
    decoder = FrameDecoder()
    decoder.feed(frame)
    return next(decoder).opaque


def pull_frames(*requests: Pull, first: int = 1, **changes: Any) -> bytes:
    return b"".join(encode_frame(command(request, number, **changes)) for number, request in enumerate(requests, first))


def command(request: Any, opaque: int, flag: int = 0, serialization: Serialization = Serialization.JSON) -> Any:
    made = request_command(request, opaque=opaque, serialization=serialization)
    made.flag, made.language = flag, "JAVA"
    return made


def a_heartbeat(subscriptions: list[Subscription], model: MessageModel = MessageModel.CLUSTERING) -> Heartbeat:
    consumer = ConsumerData(
        group_name=GROUP,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=model,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscription_data_set=subscriptions,
    )
    return Heartbeat(body=HeartbeatData(client_id="client-1", consumer_data_set=[consumer]))


def counted(to: FakeConnection) -> Any:
    """What the counters, the tables of offsets and of groups say."""
    counters = to.broker.writer.counters
    gets = {
        key: (tally.messages, tally.bytes, tally.merged, dict(tally.pulled)) for key, tally in counters.gets.items()
    }
    totals = (counters.found, counters.missed, counters.messages_out, counters.bytes_out)
    return gets, totals, to.broker.offsets.table(), set(to.broker.groups.all()), len(to.broker.pull_waiters)


async def fill(to: FakeConnection) -> None:
    """Two queues of small messages with tags, one whose records follow each other, and one of large ones."""
    tags = ("paid", "sent", "é")
    large = [a_send(bytes(2000 + 37 * number), topic=BIG) for number in range(60)]
    small = [a_send(b"%d" % number, {"TAGS": tags[number % 3]}, queue_id=number % 2) for number in range(60)]
    in_a_row = [a_send(b"in a row %d" % number, queue_id=2) for number in range(40)]
    sends = [*large[:30], *small, *in_a_row, *large[30:]]
    for first in range(0, len(sends), 8):
        await responses(to, b"".join(encode_frame(command(request, 9)) for request in sends[first : first + 8]))
    to.general = 0


def confirm_most(to: FakeConnection) -> None:
    """Where messages wait to be confirmed: of each queue that `fill` has filled the first ones, and none of the last
    ten of the large ones."""
    store = to.broker.store
    if store.gate is not None:
        last = store.components.queues.by_topic[BIG][0]
        store.gate.begin_epoch(1)
        store.gate.confirm(int.from_bytes(last.stored_entries(50, 1)[:8], "big"), epoch=1)
        assert (last.visible_end, last.max_offset) == (50, 60)
        to.sink.written = b""


def apply(to: FakeConnection, change: TopicConfig | GroupConfig | int | None) -> None:
    if isinstance(change, TopicConfig):
        to.broker.topics.put(change)
    elif isinstance(change, GroupConfig):
        to.broker.groups.put(change)
    elif change is not None:  # the broker's own permission
        object.__setattr__(to.broker.settings, "permission", change)
