"""The queues that a consumer owns: taken when they fall to it, given up when they do not any more."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from ariane.client.held_queue import HeldQueue, QueueJob
from ariane.client.offsets import OffsetTable
from ariane.client.start_offset import Beginning
from ariane.lifecycle import TaskSet
from ariane.model.route import MessageQueue

log = logging.getLogger(__name__)

FindBeginning = Callable[[MessageQueue], Awaitable[Beginning]]


class QueueGuard(Protocol):
    """Who else must agree before a queue changes hands: the broker's locks, in ordered consumption."""

    async def acquire(self, queue: MessageQueue) -> float | None:
        """Until when the queue is ours, on the monotonic clock; None when somebody else still has it."""

    async def settle(self, held: HeldQueue) -> None:
        """Returns when nobody works on the queue any more."""

    async def release(self, queue: MessageQueue) -> None: ...


class HeldQueues:
    def __init__(
        self,
        offsets: OffsetTable,
        find_beginning: FindBeginning,
        jobs: Sequence[QueueJob],
        guard: QueueGuard | None = None,
    ) -> None:
        self._offsets = offsets
        self._find_beginning = find_beginning
        self._jobs = jobs
        self._guard = guard
        self._held: dict[MessageQueue, HeldQueue] = {}
        self._leaving: set[MessageQueue] = set()
        self._leave_tasks = TaskSet()

    def get(self, queue: MessageQueue) -> HeldQueue | None:
        return self._held.get(queue)

    def all(self) -> list[HeldQueue]:
        return list(self._held.values())

    def of(self, topic: str) -> set[MessageQueue]:
        return {queue for queue in self._held if queue.topic == topic}

    async def take(self, queue: MessageQueue) -> bool:
        """False when it is not free yet: ask again soon."""
        if queue in self._held:
            return self._check(self._held[queue])
        if queue in self._leaving:
            return False
        locked_until = 0.0
        if self._guard is not None:
            until = await self._guard.acquire(queue)
            if until is None:
                log.info("queue still locked by another member", extra={"queue": queue})
                return False
            locked_until = until
        beginning = await self._find_beginning(queue)
        log.info("queue taken", extra={"queue": queue, "offset": beginning.offset, "reason": beginning.reason})
        held = self._held[queue] = HeldQueue(queue, beginning.offset, self._jobs)
        held.locked_until = locked_until
        held.start()
        return True

    def _check(self, held: HeldQueue) -> bool:
        """A job that has ended is a mistake of ours; the queue must not stand still for it."""
        if held.has_failed:
            log.error("work on a queue has ended: taking it anew", extra={"queue": held.queue})
            self.give_up(held.queue)
        return held.queue in self._held

    def give_up(self, queue: MessageQueue) -> None:
        """Returns at once; until the queue is really free, `take` refuses it."""
        held = self._held.pop(queue, None)
        if held is not None:
            self._leaving.add(queue)
            self._leave_tasks.spawn(self._leave(held))

    async def _leave(self, held: HeldQueue) -> None:
        try:
            if self._guard is not None:
                await self._guard.settle(held)
            held.drop()
            await self._offsets.save([held.queue])
            if self._guard is not None:
                await self._guard.release(held.queue)
            log.info("queue given up", extra={"queue": held.queue, "offset": self._offsets.get(held.queue)})
        finally:
            held.drop()
            self._offsets.forget(held.queue)
            self._leaving.discard(held.queue)

    async def leave_all(self, timeout_s: float) -> None:
        """At the end of the consumer; what does not finish in time is cut off, uncommitted."""
        for queue in list(self._held):
            self.give_up(queue)
        if not await self._leave_tasks.wait(timeout_s):
            self._leave_tasks.cancel()
            await self._leave_tasks.wait()
