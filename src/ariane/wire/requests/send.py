"""Requests that send messages: sends, batches, replies, redelivery, and transactions (two-phase sends).

One set of fields has two encodings: `SendMessage` uses Apache's long names, `SendMessageV2` the letters a to n, which
save bytes. The attributes are the same, so a handler takes a `Send`, whichever it was.
"""

from enum import IntEnum
from typing import ClassVar

from msgspec import field

from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.exchange import ServedBy, request
from ariane.wire.fields import Int32, Int64, PhysicalOffset64, QueueOffset64, Request, Response


class SendResponse(Response, frozen=True, kw_only=True):
    """Where the message was stored. Clients fail without the first three fields, so these have no default."""

    # Except for SUCCESS: stored, but not flushed or replicated as requested. The caller decides.
    accepts: ClassVar[frozenset[int]] = frozenset(
        {
            ResponseCode.SUCCESS,
            ResponseCode.FLUSH_DISK_TIMEOUT,
            ResponseCode.SLAVE_NOT_AVAILABLE,
            ResponseCode.FLUSH_SLAVE_TIMEOUT,
        }
    )

    msg_id: str
    """The offset id; for a batch one per message, joined by commas."""
    queue_id: Int32
    queue_offset: QueueOffset64
    transaction_id: str | None = None
    msg_region: str = field(name="MSG_REGION", default="DefaultRegion")
    trace_on: bool = field(name="TRACE_ON", default=True)


class Send(Request[SendResponse], frozen=True, kw_only=True):
    """The fields of every send, under their long names."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    batch: bool | int = False
    """Read it through `is_batch`."""
    broker_name: str | None = field(name="bname", default=None)
    body: bytes = b""

    @property
    def is_batch(self) -> bool:
        """Whether the body contains several messages. Only this field decides, never the request code.

        Only the word "true" counts. C++ 1.x sends `batch=1`, which is false in Java: the body is stored as one message.
        """
        return self.batch is True


class SendV2(Send, frozen=True, kw_only=True):
    """The same fields under one-letter names."""

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: Int32 = field(name="d")
    queue_id: Int32 = field(name="e")
    sys_flag: Int32 = field(name="f")
    born_timestamp: Int64 = field(name="g")
    flag: Int32 = field(name="h")
    properties: str | None = field(name="i", default=None)
    reconsume_times: Int32 | None = field(name="j", default=None)
    unit_mode: bool = field(name="k", default=False)
    max_reconsume_times: Int32 | None = field(name="l", default=None)
    batch: bool | int = field(name="m", default=False)
    broker_name: str | None = field(name="n", default=None)


@request(RequestCode.SEND_MESSAGE, served_by=ServedBy.BROKER)
class SendMessage(Send, frozen=True, kw_only=True):
    pass


@request(RequestCode.SEND_MESSAGE_V2, served_by=ServedBy.BROKER)
class SendMessageV2(SendV2, frozen=True, kw_only=True):
    pass


@request(RequestCode.SEND_BATCH_MESSAGE, served_by=ServedBy.BROKER)
class SendBatch(SendV2, frozen=True, kw_only=True):
    pass


@request(RequestCode.SEND_REPLY_MESSAGE, served_by=ServedBy.BROKER)
class SendReply(Send, frozen=True, kw_only=True):
    """The reply to a request message; the property REPLY_TO_CLIENT names the client that waits for it."""


@request(RequestCode.SEND_REPLY_MESSAGE_V2, served_by=ServedBy.BROKER)
class SendReplyV2(SendV2, frozen=True, kw_only=True):
    pass


@request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, served_by=ServedBy.CLIENT)
class PushReply(Request[Response], frozen=True, kw_only=True):
    """A reply on its way to the client that waits for it, matched there by the property CORRELATION_ID."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    store_host: str
    store_timestamp: Int64 = 0
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    body: bytes = b""


@request(RequestCode.CONSUMER_SEND_MSG_BACK, served_by=ServedBy.BROKER)
class SendBack(Request[Response], frozen=True, kw_only=True):
    """A consumer failed to process a message: redeliver it later, or store it as a dead letter."""

    offset: PhysicalOffset64
    group: str
    delay_level: Int32
    """Below 0: a dead letter immediately. 0: the broker chooses by the number of attempts."""
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    """None from old clients: the group's own maximum applies."""


# --- transactions: a half message is stored first, its producer commits it or rolls it back later ---


class Decision(IntEnum):
    """The transaction bits of a message's sysFlag."""

    UNKNOWN = 0
    COMMIT = 8
    ROLLBACK = 12


@request(RequestCode.END_TRANSACTION, served_by=ServedBy.BROKER)
class EndTransaction(Request[Response], frozen=True, kw_only=True):
    """Most clients send it one-way; C++ clients wait for the response."""

    producer_group: str
    tran_state_table_offset: QueueOffset64
    """The queue offset of the half message, as in the response to its send."""
    commit_log_offset: PhysicalOffset64
    commit_or_rollback: Int32
    """A `Decision`."""
    msg_id: str
    from_transaction_check: bool = False
    transaction_id: str | None = None


@request(RequestCode.CHECK_TRANSACTION_STATE, served_by=ServedBy.CLIENT)
class CheckTransaction(Request[Response], frozen=True, kw_only=True):
    """Transaction check: one-way, with the half message as body. The client sends an `EndTransaction`."""

    tran_state_table_offset: QueueOffset64
    commit_log_offset: PhysicalOffset64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    body: bytes = b""


@request(RequestCode.RESUME_CHECK_HALF_MESSAGE, served_by=ServedBy.BROKER)
class ResumeTransactionChecks(Request[Response], frozen=True):
    """Resume the checks of a half message that was abandoned after too many checks."""

    msg_id: str | None = None
