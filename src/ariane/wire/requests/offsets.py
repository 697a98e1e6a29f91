"""Requests about offsets: committed offsets of groups, offset resets, and the bounds of queues.

To reset the offsets of a running group, or to query its members, an administrator sends a request to the broker (222,
223), and the broker sends one to each member over the member's own connection (220, 221).
"""

import struct

from ariane.model.ids import QueueOffset
from ariane.model.route import MessageQueue
from ariane.wire.codes import RequestCode
from ariane.wire.exchange import ServedBy, request
from ariane.wire.fields import Int32, Int64, QueueOffset64, Request, Response
from ariane.wire.json.body import JsonBody


class OffsetResponse(Response, frozen=True, kw_only=True):
    offset: QueueOffset64


@request(RequestCode.QUERY_CONSUMER_OFFSET, served_by=ServedBy.BROKER)
class GetConsumerOffset(Request[OffsetResponse], frozen=True):
    """Only the response code QUERY_NOT_FOUND means that the group has no offset here."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None
    """From 5.x clients."""


class UpdateOffsetResponse(Response, frozen=True):
    """A struct of its own, though without fields: clients expect extFields `{}` in the response."""


@request(RequestCode.UPDATE_CONSUMER_OFFSET, served_by=ServedBy.BROKER)
class UpdateConsumerOffset(Request[UpdateOffsetResponse], frozen=True):
    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: QueueOffset64
    seek: bool | None = None
    """From our clients: whether the group is moved on purpose, also back, instead of having consumed up to here."""


@request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, served_by=ServedBy.BROKER)
class SearchOffset(Request[OffsetResponse], frozen=True):
    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None
    """From 5.x clients: LOWER (the default) or UPPER, for the first or the last message with this timestamp."""


@request(RequestCode.GET_MAX_OFFSET, served_by=ServedBy.BROKER)
class GetMaxOffset(Request[OffsetResponse], frozen=True):
    topic: str
    queue_id: Int32
    committed: bool | None = None
    """From 5.x clients: count only replicated messages."""


@request(RequestCode.GET_MIN_OFFSET, served_by=ServedBy.BROKER)
class GetMinOffset(Request[OffsetResponse], frozen=True):
    topic: str
    queue_id: Int32


class StoreTimeResponse(Response, frozen=True, kw_only=True):
    timestamp: Int64
    """-1 when the queue is empty."""


@request(RequestCode.GET_EARLIEST_MSG_STORETIME, served_by=ServedBy.BROKER)
class GetEarliestStoreTime(Request[StoreTimeResponse], frozen=True):
    topic: str
    queue_id: Int32


class ConsumerOffsetTable(JsonBody, frozen=True):
    offset_table: dict[str, dict[int, int]] = {}
    """By "topic@group", then by queue id."""


class ConsumerOffsetsResponse(Response, frozen=True):
    body: ConsumerOffsetTable = ConsumerOffsetTable()


@request(RequestCode.GET_ALL_CONSUMER_OFFSET, served_by=ServedBy.BROKER)
class GetAllConsumerOffsets(Request[ConsumerOffsetsResponse], frozen=True):
    """What a slave copies from its master."""


class DelayOffsetTable(JsonBody, frozen=True):
    offset_table: dict[int, int] = {}
    """By delay level: up to which offset its queue has been delivered."""


class DelayOffsetsResponse(Response, frozen=True):
    body: DelayOffsetTable = DelayOffsetTable()


@request(RequestCode.GET_ALL_DELAY_OFFSET, served_by=ServedBy.BROKER)
class GetAllDelayOffsets(Request[DelayOffsetsResponse], frozen=True):
    """What a slave copies from its master."""


class TimerProgressResponse(Response, frozen=True, kw_only=True):
    roll_window_ms: Int64 | None = None
    """How long a message waits in the timer's topic before it is stored there again; only of Ariane."""
    body: bytes = b""
    """`TIMER_PROGRESS`: four numbers, and in later releases of 5.x a version behind them."""


@request(RequestCode.GET_TIMER_CHECK_POINT, served_by=ServedBy.BROKER)
class GetTimerProgress(Request[TimerProgressResponse], frozen=True):
    """What a slave copies from its master: how far the delivery of messages with a delivery time is."""


TIMER_PROGRESS = struct.Struct(">4q")
"""Messages for an earlier time (ms) are delivered, 0, messages of the topic before this offset are known, the same."""


class CorrectionOffsets(JsonBody, frozen=True):
    correction_offsets: dict[int, int] = {}


class CorrectionOffsetsResponse(Response, frozen=True):
    body: CorrectionOffsets = CorrectionOffsets()


@request(RequestCode.QUERY_CORRECTION_OFFSET, served_by=ServedBy.BROKER)
class GetCorrectionOffsets(Request[CorrectionOffsetsResponse], frozen=True, kw_only=True):
    """By queue id, the smallest offset of the topic's groups that lies below that of `compare_group`."""

    compare_group: str
    topic: str
    filter_groups: str | None = None
    """Groups to exclude, separated by commas."""


@request(RequestCode.CLONE_GROUP_OFFSET, served_by=ServedBy.BROKER)
class CloneGroupOffset(Request[Response], frozen=True, kw_only=True):
    src_group: str
    dest_group: str
    topic: str | None = None
    """None or empty: every topic of the source group."""
    offline: bool = False


# --- offset resets ---


class OffsetsByQueue(JsonBody, frozen=True):
    """Objects as keys, which only fastjson-compatible parsers can read."""

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
class ResetClientOffset(Request[Response], frozen=True, kw_only=True):
    topic: str
    group: str
    timestamp: Int64 = 0
    is_force: bool = False
    body: OffsetsByQueue | OffsetList = OffsetsByQueue()
    """To a C++ client an `OffsetList`, to all others `OffsetsByQueue`."""


class ResetOffsetsResponse(Response, frozen=True):
    body: OffsetsByQueue = OffsetsByQueue()


@request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, served_by=ServedBy.BROKER)
class ResetOffsets(Request[ResetOffsetsResponse], frozen=True, kw_only=True):
    topic: str
    group: str
    timestamp: Int64 = 0
    """-1: the end of each queue."""
    is_force: bool = False
    """Also allow moving forwards; otherwise an offset only moves back."""
    queue_id: Int32 | None = None
    """From 5.x: this queue alone."""
    offset: QueueOffset64 | None = None
    """From 5.x: this offset instead of a time."""


class ConsumerStatus(JsonBody, frozen=True):
    message_queue_table: dict[MessageQueue, QueueOffset] = {}
    """One member's offsets, in a member's own response."""
    consumer_table: dict[str, dict[MessageQueue, QueueOffset]] = {}
    """By client id, in a broker's response."""


class ConsumerStatusResponse(Response, frozen=True):
    body: ConsumerStatus = ConsumerStatus()


@request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, served_by=ServedBy.CLIENT)
class GetClientStatus(Request[ConsumerStatusResponse], frozen=True):
    topic: str
    group: str
    client_addr: str | None = None


@request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, served_by=ServedBy.BROKER)
class GetConsumerStatus(Request[ConsumerStatusResponse], frozen=True):
    topic: str
    group: str
    client_addr: str | None = None
    """A client id, despite its name: query this member only."""
