"""Two-phase sends: a half message is stored first, its producer decides later."""

from enum import IntEnum

from ariane.wire.codes import RequestCode
from ariane.wire.declare import ServedBy, request
from ariane.wire.fields import Answer, Int32, PhysicalOffset64, QueueOffset64, Request


class Decision(IntEnum):
    """The transaction bits of a message's sysFlag."""

    UNKNOWN = 0
    COMMIT = 8
    ROLLBACK = 12


@request(RequestCode.END_TRANSACTION, served_by=ServedBy.BROKER)
class EndTransaction(Request[Answer], frozen=True, kw_only=True):
    """Usually one-way; C++ clients wait for the answer."""

    producer_group: str
    tran_state_table_offset: QueueOffset64
    """Where the half message stands in its queue, as the answer to its send told."""
    commit_log_offset: PhysicalOffset64
    commit_or_rollback: Int32
    """A `Decision`."""
    msg_id: str
    from_transaction_check: bool = False
    transaction_id: str | None = None


@request(RequestCode.CHECK_TRANSACTION_STATE, served_by=ServedBy.CLIENT)
class CheckTransaction(Request[Answer], frozen=True, kw_only=True):
    """One-way, with the half message as body: what became of this? The client answers with an `EndTransaction`."""

    tran_state_table_offset: QueueOffset64
    commit_log_offset: PhysicalOffset64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    body: bytes = b""


@request(RequestCode.RESUME_CHECK_HALF_MESSAGE, served_by=ServedBy.BROKER)
class ResumeTransactionChecks(Request[Answer], frozen=True):
    """Ask the producer again about a half message that was given up after too many checks."""

    msg_id: str | None = None
