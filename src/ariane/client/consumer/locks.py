"""Queue locks at the brokers: in ordered consumption a queue has one reader, also while its owner changes.

A lock expires after 60 s at the broker. The client renews it every 20 s and trusts it for 30 s, so that it stops before
another member may start, even if the broker cannot be reached.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence

from ariane.client.consumer.queues import AssignedQueue
from ariane.client.core.instance import Instance
from ariane.client.core.queue_bounds import broker_of
from ariane.errors import ArianeError
from ariane.model.route import MessageQueue
from ariane.wire.requests.clients import LockQueues, QueueLocks, UnlockQueues

log = logging.getLogger(__name__)

RENEW_INTERVAL_S = 20.0
_TRUSTED_S = 30.0
_TIMEOUT_S = 1.0  # as in Apache's clients


class QueueLockClient:
    def __init__(self, instance: Instance, group: str, handler_timeout_s: float) -> None:
        self._instance = instance
        self._group = group
        self._handler_timeout_s = handler_timeout_s

    async def acquire(self, queue: MessageQueue) -> float | None:
        until = self._instance.clock.monotonic() + _TRUSTED_S  # measured before the broker starts to count
        return until if queue in await self._lock(await broker_of(self._instance, queue), [queue]) else None

    async def wait_for_handler(self, assigned: AssignedQueue) -> None:
        """Waits for a running handler: the next owner must not start a message that is still being handled."""
        try:
            async with asyncio.timeout(self._handler_timeout_s):
                await assigned.consuming.acquire()
        except TimeoutError:
            log.warning("handler still running on a revoked queue", extra={"queue": assigned.queue})

    async def release(self, queue: MessageQueue) -> None:
        try:
            await self._instance.oneway(await broker_of(self._instance, queue), UnlockQueues(self._body([queue])))
        except ArianeError as error:  # the lock expires anyway
            log.info("queue not unlocked", extra={"queue": queue, "reason": str(error)})

    async def renew(self, queues: Sequence[AssignedQueue]) -> None:
        """Renews all locks. A lock that is refused belongs to another member: then consumption stops immediately."""
        by_broker: defaultdict[str, list[AssignedQueue]] = defaultdict(list)
        for assigned in queues:
            by_broker[assigned.queue.broker_name].append(assigned)
        for at_broker in by_broker.values():
            try:
                await self._renew_at(at_broker)
            except ArianeError as error:
                log.warning("locks not renewed", extra={"queues": len(at_broker), "reason": str(error)})

    async def _renew_at(self, at_broker: list[AssignedQueue]) -> None:
        until = self._instance.clock.monotonic() + _TRUSTED_S
        address = await broker_of(self._instance, at_broker[0].queue)
        locked = await self._lock(address, [assigned.queue for assigned in at_broker])
        for assigned in at_broker:
            if assigned.queue not in locked and assigned.locked_until > 0:
                log.warning("queue lock lost", extra={"queue": assigned.queue})
            assigned.locked_until = until if assigned.queue in locked else 0.0
            assigned.last_lock_ms = self._instance.clock.now_ms()
            assigned.notify()

    async def _lock(self, address: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        response = await self._instance.call(address, LockQueues(self._body(queues)), _TIMEOUT_S)
        return set(response.body.locked)

    def _body(self, queues: list[MessageQueue]) -> QueueLocks:
        return QueueLocks(consumer_group=self._group, client_id=self._instance.client_id, mq_set=queues)
