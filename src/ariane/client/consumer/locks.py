"""Locks at the brokers: in ordered consumption a queue has one reader, also while it changes hands.

A lock lives for 60 s at the broker. We ask for it again every 20 s and count on it for 30 s, so that we stop before
anybody else may begin, even when the broker cannot be reached.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence

from ariane.client.consumer.queues import HeldQueue
from ariane.client.core.instance import Instance
from ariane.client.core.queue_bounds import broker_of
from ariane.errors import ArianeError
from ariane.model.route import MessageQueue
from ariane.wire.requests.clients import LockQueues, UnlockQueues
from ariane.wire.requests.clients import QueueLocks as LockBody

log = logging.getLogger(__name__)

RENEW_INTERVAL_S = 20.0
_TRUSTED_S = 30.0
_TIMEOUT_S = 1.0  # as in Apache's clients


class QueueLocks:
    def __init__(self, instance: Instance, group: str, settle_s: float) -> None:
        self._instance = instance
        self._group = group
        self._settle_s = settle_s

    async def acquire(self, queue: MessageQueue) -> float | None:
        until = self._instance.clock.monotonic() + _TRUSTED_S  # counted from before the broker counts
        return until if queue in await self._lock(await broker_of(self._instance, queue), [queue]) else None

    async def settle(self, held: HeldQueue) -> None:
        """Waits for the handler at work: the next owner must not start on a message that it has not finished."""
        try:
            async with asyncio.timeout(self._settle_s):
                await held.consuming.acquire()
        except TimeoutError:
            log.warning("handler still at work on a queue that is given up", extra={"queue": held.queue})

    async def release(self, queue: MessageQueue) -> None:
        try:
            await self._instance.oneway(await broker_of(self._instance, queue), UnlockQueues(self._body([queue])))
        except ArianeError as error:  # it runs out by itself
            log.info("queue not unlocked", extra={"queue": queue, "reason": str(error)})

    async def renew(self, queues: Sequence[HeldQueue]) -> None:
        """Asks for all locks again. A lock that is refused belongs to somebody else: stop at once."""
        by_broker: defaultdict[str, list[HeldQueue]] = defaultdict(list)
        for held in queues:
            by_broker[held.queue.broker_name].append(held)
        for at_broker in by_broker.values():
            try:
                await self._renew_at(at_broker)
            except ArianeError as error:
                log.warning("locks not renewed", extra={"queues": len(at_broker), "reason": str(error)})

    async def _renew_at(self, at_broker: list[HeldQueue]) -> None:
        until = self._instance.clock.monotonic() + _TRUSTED_S
        address = await broker_of(self._instance, at_broker[0].queue)
        locked = await self._lock(address, [held.queue for held in at_broker])
        for held in at_broker:
            if held.queue not in locked and held.locked_until > 0:
                log.warning("queue lock lost", extra={"queue": held.queue})
            held.locked_until = until if held.queue in locked else 0.0
            held.last_lock_ms = self._instance.clock.now_ms()
            held.tell()

    async def _lock(self, address: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        response = await self._instance.call(address, LockQueues(self._body(queues)), _TIMEOUT_S)
        return set(response.body.locked)

    def _body(self, queues: list[MessageQueue]) -> LockBody:
        return LockBody(consumer_group=self._group, client_id=self._instance.client_id, mq_set=queues)
