"""Moving a group's offsets while its members run, and asking the members where they are.

An administrator asks the broker (222, 223); the broker asks each member over the member's own connection (220, 221).
"""

from ariane.model.ids import QueueOffset
from ariane.model.route import MessageQueue
from ariane.wire.body import JsonBody
from ariane.wire.codes import RequestCode
from ariane.wire.declare import ServedBy, request
from ariane.wire.fields import Answer, Int32, Int64, QueueOffset64, Request


class OffsetsByQueue(JsonBody, frozen=True):
    """Queues as keys, which only fastjson and those who imitate it can read."""

    offset_table: dict[MessageQueue, QueueOffset] = {}


class QueueAtOffset(JsonBody, frozen=True):
    topic: str
    broker_name: str
    queue_id: int
    offset: QueueOffset


class OffsetList(JsonBody, frozen=True):
    """The same for C++ clients, whose JSON parser takes no objects as keys."""

    offset_table: list[QueueAtOffset] = []


def as_list(offsets: OffsetsByQueue) -> OffsetList:
    return OffsetList(
        offset_table=[
            QueueAtOffset(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id, offset=offset)
            for queue, offset in offsets.offset_table.items()
        ]
    )


@request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, served_by=ServedBy.CLIENT)
class ResetClientOffset(Request[Answer], frozen=True, kw_only=True):
    topic: str
    group: str
    timestamp: Int64 = 0
    is_force: bool = False
    body: OffsetsByQueue | OffsetList = OffsetsByQueue()
    """To a C++ client an `OffsetList`, to all others `OffsetsByQueue`."""


class ResetOffsetsAnswer(Answer, frozen=True):
    body: OffsetsByQueue = OffsetsByQueue()


@request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, served_by=ServedBy.BROKER)
class ResetOffsets(Request[ResetOffsetsAnswer], frozen=True, kw_only=True):
    topic: str
    group: str
    timestamp: Int64 = 0
    """-1: the end of each queue."""
    is_force: bool = False
    """Also forwards; otherwise an offset only ever goes back."""
    queue_id: Int32 | None = None
    """From 5.x: this queue alone."""
    offset: QueueOffset64 | None = None
    """From 5.x: this offset instead of a time."""


class ConsumerStatus(JsonBody, frozen=True):
    message_queue_table: dict[MessageQueue, QueueOffset] = {}
    """One member's offsets, in a member's own answer."""
    consumer_table: dict[str, dict[MessageQueue, QueueOffset]] = {}
    """By client id, in a broker's answer."""


class ConsumerStatusAnswer(Answer, frozen=True):
    body: ConsumerStatus = ConsumerStatus()


@request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, served_by=ServedBy.CLIENT)
class GetClientStatus(Request[ConsumerStatusAnswer], frozen=True):
    topic: str
    group: str
    client_addr: str | None = None


@request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, served_by=ServedBy.BROKER)
class GetConsumerStatus(Request[ConsumerStatusAnswer], frozen=True):
    topic: str
    group: str
    client_addr: str | None = None
    """A client id, despite its name: ask this member alone."""
