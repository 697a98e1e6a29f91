"""The pull request, by which every consumer receives messages."""

from enum import IntFlag
from typing import ClassVar

from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.exchange import ServedBy, request
from ariane.wire.fields import Int32, Int64, QueueOffset64, Request, Response


class PullSysFlag(IntFlag):
    COMMIT_OFFSET = 1
    """`commit_offset` is valid: store it."""
    SUSPEND = 2
    """Long polling: if there is no message, wait up to `suspend_timeout_millis` before responding."""
    SUBSCRIPTION = 4
    """Use the subscription in this request, not the one of the heartbeat."""
    CLASS_FILTER = 8
    """Obsolete, like filter servers."""
    LITE_PULL = 16
    """Informational: the consumer assigns its queues itself."""


class PullResponse(Response, frozen=True, kw_only=True):
    """The messages, and the next offset. Clients need the four numbers with every code in `accepts`."""

    accepts: ClassVar[frozenset[int]] = frozenset(
        {
            ResponseCode.SUCCESS,
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        }
    )

    suggest_which_broker_id: Int64
    next_begin_offset: QueueOffset64
    min_offset: QueueOffset64
    max_offset: QueueOffset64
    body: bytes = b""
    """Concatenated stored messages; never empty with SUCCESS."""


class Pull(Request[PullResponse], frozen=True, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: QueueOffset64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: QueueOffset64
    suspend_timeout_millis: Int64
    sub_version: Int64
    subscription: str | None = None
    expression_type: str | None = None
    """Missing (C++) or empty (Go): TAG."""
    max_msg_bytes: Int32 | None = None
    """From 5.x clients."""


@request(RequestCode.PULL_MESSAGE, served_by=ServedBy.BROKER)
class PullMessage(Pull, frozen=True, kw_only=True):
    pass


@request(RequestCode.LITE_PULL_MESSAGE, served_by=ServedBy.BROKER)
class LitePull(Pull, frozen=True, kw_only=True):
    """Sent by the lite pull consumer of 5.x, with the same meaning."""
