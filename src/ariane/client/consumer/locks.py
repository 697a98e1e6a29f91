"""Queue locks at the brokers: in ordered consumption a queue has one reader, also while its owner changes.

A lock expires after 60 s at the broker. The client renews it every 20 s and trusts it for 30 s, so that it stops before
another member may start, even if the broker cannot be reached. A queue whose lock another member has, or may have had
meanwhile, is given up and assigned again: the messages in hand may be consumed already.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ariane.client.consumer.queues import AssignedQueue
from ariane.client.core.instance import Instance
from ariane.client.core.queue_bounds import owner_of
from ariane.errors import ArianeError
from ariane.model.route import MessageQueue
from ariane.wire.requests.clients import LockQueues, QueueLocks, UnlockQueues

log = logging.getLogger(__name__)

RENEW_INTERVAL_S = 20.0
RETRY_INTERVAL_S = 2.0
"""After a renewal that failed: a restarted broker has it long before the lock is in doubt."""
_TRUSTED_S = 30.0
_LIFE_S = 60.0
_TIMEOUT_S = 1.0  # as in Apache's clients


@dataclass(frozen=True, slots=True)
class Renewal:
    lost: list[MessageQueue]
    is_complete: bool
    """False if a broker could not be asked."""


class QueueLockClient:
    def __init__(self, instance: Instance, group: str, handler_timeout_s: float) -> None:
        self._instance = instance
        self._group = group
        self._handler_timeout_s = handler_timeout_s
        self._unreleased: set[MessageQueue] = set()
        """Not assigned any more, but perhaps still locked: the broker could not be asked to unlock them."""
        self._releasing: set[MessageQueue] = set()

    async def acquire(self, queue: MessageQueue) -> float | None:
        if queue in self._releasing:
            return None
        self._unreleased.discard(queue)
        until = self._instance.clock.monotonic() + _TRUSTED_S  # measured before the broker starts to count
        return until if queue in await self._lock(await owner_of(self._instance, queue), [queue]) else None

    async def wait_for_handler(self, assigned: AssignedQueue) -> None:
        """Waits for a running handler: the next owner must not start a message that is still being handled."""
        try:
            async with asyncio.timeout(self._handler_timeout_s):
                await assigned.consuming.acquire()
        except TimeoutError:
            log.warning("handler still running on a revoked queue", extra={"queue": assigned.queue})

    async def release(self, queue: MessageQueue) -> None:
        """Waits for the response: an unlock that arrived after the next lock of this member would undo it."""
        self._releasing.add(queue)
        try:
            address = await owner_of(self._instance, queue)
            await self._instance.call(address, UnlockQueues(self._body([queue])), _TIMEOUT_S)
        except ArianeError as error:
            log.info("queue not unlocked yet", extra={"queue": queue, "reason": str(error)})
            self._unreleased.add(queue)
        else:
            self._unreleased.discard(queue)
        finally:
            self._releasing.discard(queue)

    def release_later(self, queue: MessageQueue) -> None:
        """Only for a queue that is free."""
        self._unreleased.add(queue)

    async def release_again(self) -> bool:
        """Unlocks what could not be unlocked before; returns whether nothing is left. Without this, the next owner of
        such a queue would wait for the life of the lock."""
        for queue in sorted(self._unreleased):
            if queue in self._unreleased:  # it may have been assigned again meanwhile
                await self.release(queue)
        return not self._unreleased

    async def renew(self, queues: Sequence[AssignedQueue]) -> "Renewal":
        """Renews all locks. Consumption stops immediately where one was refused: another member has it."""
        by_broker: defaultdict[str, list[AssignedQueue]] = defaultdict(list)
        for assigned in queues:
            by_broker[assigned.queue.broker_name].append(assigned)
        lost, is_complete = list[MessageQueue](), True
        for at_broker in by_broker.values():
            try:
                lost += await self._renew_at(at_broker)
            except ArianeError as error:
                log.warning("locks not renewed", extra={"queues": len(at_broker), "reason": str(error)})
                is_complete = False
        return Renewal(lost, is_complete)

    async def _renew_at(self, at_broker: list[AssignedQueue]) -> list[MessageQueue]:
        """The queues whose lock another member has, or may have had since it was last renewed."""
        now = self._instance.clock.monotonic()
        address = await owner_of(self._instance, at_broker[0].queue)
        locked = await self._lock(address, [assigned.queue for assigned in at_broker])
        lost = []
        for assigned in at_broker:
            is_kept = assigned.queue in locked and now - assigned.locked_until < _LIFE_S - _TRUSTED_S
            if not is_kept:
                log.warning("queue lock lost", extra={"queue": assigned.queue})
                lost.append(assigned.queue)
            assigned.locked_until = now + _TRUSTED_S if is_kept else 0.0
            assigned.last_lock_ms = self._instance.clock.now_ms()
            assigned.notify()
        return lost

    async def _lock(self, address: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        response = await self._instance.call(address, LockQueues(self._body(queues)), _TIMEOUT_S)
        return set(response.body.locked)

    def _body(self, queues: list[MessageQueue]) -> QueueLocks:
        return QueueLocks(consumer_group=self._group, client_id=self._instance.client_id, mq_set=queues)
