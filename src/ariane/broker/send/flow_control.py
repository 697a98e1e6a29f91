"""Back-pressure: sends are refused with SYSTEM_BUSY while the disk is too slow for them, and with SERVICE_NOT_AVAILABLE
while the role of the broker allows no writes (`MessageStore.suspend_writes`), before anything about them is done.

A producer that gets SYSTEM_BUSY at once can slow down or use another broker; one that waits in a queue times out and
sends the same message again. The prefixes are Apache's, which operators know.

    [REJECTREQUEST]         the last append took longer than osPageCacheBusyTimeOutMills
    [OVERLOAD]              sendThreadPoolQueueCapacity sends wait for a sync already
    [TIMEOUT_CLEAN_QUEUE]   the oldest of a queue of them waits longer than waitTimeMillsInSendQueue
"""

from ariane.broker.settings import BrokerSettings
from ariane.broker.writer import MessageWriter, store_error_response
from ariane.errors import RequestFailed
from ariane.store.message_store import MessageStore
from ariane.wire.codes import ResponseCode

WAITING_MAX = 10_000
"""Apache's sendThreadPoolQueueCapacity."""

QUEUE_MIN = 100
"""Fewer sends that wait for a slow sync are not a queue: the next sync covers them all."""


class FlowControl:
    def __init__(
        self, store: MessageStore, writer: MessageWriter, settings: BrokerSettings, waiting_max: int = WAITING_MAX
    ) -> None:
        self._store = store
        self._refusal = store.refusal
        self._writer = writer
        self._settings = settings
        self._waiting_max = waiting_max

    def admit(self) -> None:
        """RequestFailed when no send is accepted now: SYSTEM_BUSY, or SERVICE_NOT_AVAILABLE by the broker's role."""
        if self._refusal.suspended is not None:
            raise store_error_response(self._refusal.suspended, self._store)
        if self._store.is_busy:
            raise _busy(
                "[REJECTREQUEST]",
                f"an append took {self._store.append_s * 1000:.0f} ms",
                f"osPageCacheBusyTimeOutMills = {self._store.settings.page_cache_busy_timeout_ms}",
            )
        waiting = self._writer.waiting
        if waiting >= QUEUE_MIN:
            self._check_queue(waiting)

    def _check_queue(self, waiting: int) -> None:
        if waiting >= self._waiting_max:
            limit = f"sendThreadPoolQueueCapacity = {self._waiting_max}"
            raise _busy("[OVERLOAD]", f"{waiting} sends wait for a sync of the disk", limit)
        longest_ms = self._writer.longest_wait_ms
        if longest_ms > self._settings.send_wait_max_ms:
            raise _busy(
                "[TIMEOUT_CLEAN_QUEUE]",
                f"of {waiting} sends that wait for a sync of the disk the first has waited {longest_ms} ms",
                f"waitTimeMillsInSendQueue = {self._settings.send_wait_max_ms}",
            )


def _busy(prefix: str, state: str, limit: str) -> RequestFailed:
    return RequestFailed(
        ResponseCode.SYSTEM_BUSY,
        f"{prefix}broker busy, start flow control for a while: {state}, {limit}; send less, or again in a moment",
    )
