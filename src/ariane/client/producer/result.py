"""The result of a send, and user callbacks for results."""

import logging
from collections.abc import Callable
from enum import StrEnum
from itertools import count, repeat

import msgspec

from ariane.model.ids import QueueOffset
from ariane.model.route import MessageQueue
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.send import SendResponse


class SendStatus(StrEnum):
    """The message is stored in every case; the difference is how safely. Names are those of Apache's clients."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


_STATUS_BY_CODE: dict[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class SendResult(msgspec.Struct, frozen=True, gc=False):
    status: SendStatus
    message_id: str
    """The unique key, made by the producer: the same in every attempt and for every consumer."""
    offset_message_id: str
    """Where the broker stored the message; empty if the broker did not return it."""
    queue: MessageQueue
    queue_offset: QueueOffset
    transaction_id: str | None = None
    region: str = "DefaultRegion"
    trace_on: bool = True

    @property
    def is_ok(self) -> bool:
        """Whether it is stored as safely as the broker is configured to store it."""
        return self.status is SendStatus.SEND_OK


def result_of(response: SendResponse, queue: MessageQueue, unique_key: str) -> SendResult:
    """The result of a single message: as `results_of`, without its lists."""
    return SendResult(
        _STATUS_BY_CODE[response.code],
        unique_key,
        response.msg_id,
        _stored_in(queue, response.queue_id),
        response.queue_offset,
        response.transaction_id,
        response.msg_region,
        response.trace_on,
    )


def results_of(response: SendResponse, queue: MessageQueue, unique_keys: list[str]) -> list[SendResult]:
    """A result for each message of a send. A batch is stored in one append: ids in order, consecutive offsets.

    With `map` over columns: half the time of a loop.
    """
    ids = response.msg_id.split(",")[: len(unique_keys)]
    ids += repeat("", len(unique_keys) - len(ids))  # brokers of 5.x may return one id for the batch
    return list(
        map(
            SendResult,
            repeat(_STATUS_BY_CODE[response.code]),
            unique_keys,
            ids,
            repeat(_stored_in(queue, response.queue_id)),
            count(response.queue_offset),
            repeat(response.transaction_id),
            repeat(response.msg_region),
            repeat(response.trace_on),
        )
    )


def _stored_in(queue: MessageQueue, queue_id: int) -> MessageQueue:
    """The broker may choose another queue than the requested one."""
    return queue if queue_id == queue.queue_id else msgspec.structs.replace(queue, queue_id=queue_id)


# --- callbacks ---

log = logging.getLogger(__name__)

Callback = Callable[[SendResult | None, Exception | None], None]
"""Called once: with the result, or with the error."""


def call_back(callback: Callback, result: SendResult | None, failure: Exception | None) -> None:
    try:
        callback(result, failure)
    except Exception:  # the edge of a user's function
        log.exception("the callback of a send failed")
