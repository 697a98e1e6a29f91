"""Assigned queues: the unfinished messages of each queue, and the tasks that pull and consume them.

`ProcessQueue` (Apache's term) has the messages that were pulled and are not finished:

                 commit_offset           next_offset
                      ▼                       ▼
    ... finished │ pulled ── waiting ──  │ still at the broker
                   (some of them finished)

Handlers finish in any order, but the broker stores one offset per queue. So the smallest unfinished offset is
committed: after a crash a message may be delivered twice, but none is lost.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from operator import lt
from typing import Any, Protocol

from ariane.client.consumer.message import Received
from ariane.client.consumer.offsets import OffsetTable, StartOffset
from ariane.lifecycle import TaskSet
from ariane.model.route import MessageQueue


class ProcessQueue:
    """Messages of one queue that are pulled and not finished; no I/O. `begin` is the first offset to pull."""

    def __init__(self, begin: int) -> None:
        self.next_offset = begin
        """Where the next pull begins: all messages before it were pulled, or filtered out."""
        self.bytes = 0
        self.dropped = False
        """Whether the queue was revoked or its offset reset. Then results of handlers are ignored."""
        self._waiting: deque[Received] = deque()
        self._order: deque[int] = deque()
        self._unfinished: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._unfinished)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def commit_offset(self) -> int:
        return self._order[0] if self._order else self.next_offset

    @property
    def last_offset(self) -> int:
        """The largest unfinished offset; the one before `next_offset` if there is none."""
        return self._order[-1] if self._order else self.next_offset - 1

    @property
    def span(self) -> int:
        """The distance between the first and the last unfinished offset: one stuck message makes it grow."""
        return self._order[-1] - self._order[0] if self._order else 0

    def put(self, messages: Sequence[Received], next_offset: int) -> None:
        """Adds the messages of a pull. Offsets that were added before are skipped: a broker may repeat messages."""
        offsets = [message.queue_offset for message in messages]
        if not _are_increasing(offsets, self.next_offset):
            messages = list(_increasing(messages, self.next_offset))
            offsets = [message.queue_offset for message in messages]
        sizes = [len(message.body) for message in messages]
        self._waiting.extend(messages)
        self._order.extend(offsets)
        self._unfinished.update(zip(offsets, sizes, strict=True))
        self.bytes += sum(sizes)
        self.next_offset = max(self.next_offset, next_offset, offsets[-1] + 1 if offsets else 0)

    def take(self, count: int) -> list[Received]:
        """The next messages, in order; they count as unfinished until `finish`."""
        if count >= len(self._waiting):
            taken = list(self._waiting)
            self._waiting.clear()
            return taken
        return [self._waiting.popleft() for _ in range(count)]

    def put_back(self, messages: Sequence[Received]) -> None:
        """Taken but not finished: they come first again, for ordered consumption."""
        self._waiting.extendleft(reversed(messages))

    def finish(self, messages: Sequence[Received]) -> None:
        unfinished, order = self._unfinished, self._order
        self.bytes -= sum([unfinished.pop(message.queue_offset, 0) for message in messages])
        if not unfinished:
            order.clear()
        while order and order[0] not in unfinished:
            order.popleft()


def _are_increasing(offsets: Sequence[int], begin: int) -> bool:
    """As in the responses of a correct broker."""
    return not offsets or (offsets[0] >= begin and all(map(lt, offsets, offsets[1:])))


def _increasing(messages: Sequence[Received], begin: int) -> Iterator[Received]:
    for message in messages:
        if message.queue_offset >= begin:
            yield message
            begin = message.queue_offset + 1


# --- assigned queues ---

QueueJob = Callable[["AssignedQueue"], Coroutine[Any, Any, None]]
"""A task of the consumer for each of its queues; runs until it is cancelled."""


class AssignedQueue:
    """One queue that is assigned to this consumer, with its tasks."""

    def __init__(self, queue: MessageQueue, begin: int, jobs: Sequence[QueueJob]) -> None:
        self.queue = queue
        self.process = ProcessQueue(begin)
        self.paused = False
        self.locked_until = 0.0
        """Ordered consumption only: until when, on the monotonic clock, the broker's lock is trusted."""
        self.last_lock_ms = 0
        self.last_pull_ms = 0
        self.last_consume_ms = 0
        self.consuming = asyncio.Lock()
        """Ordered consumption only: held while a handler runs."""
        self._jobs = jobs
        self._is_started = False
        self._tasks = TaskSet()
        self._changed: set[asyncio.Event] = set()

    def start(self) -> None:
        self._is_started = True
        for job in self._jobs:
            self._tasks.spawn(job(self))

    @property
    def has_failed(self) -> bool:
        """Whether a task has ended by itself, which only happens through a bug."""
        return self._is_started and len(self._tasks) < len(self._jobs)

    def stop_tasks(self) -> None:
        self._is_started = False
        self._tasks.cancel()
        self._tasks = TaskSet()

    def drop(self) -> None:
        """Stops immediately: results of handlers that still run are ignored."""
        self.process.dropped = True
        self.stop_tasks()

    def restart(self, begin: int) -> None:
        """Continues at another offset immediately, without waiting for a long poll that is in flight."""
        self.drop()
        self.consuming = asyncio.Lock()
        self.replace(begin)
        self.start()

    def replace(self, begin: int) -> None:
        self.process.dropped = True
        self.process = ProcessQueue(begin)
        self.notify()

    def notify(self) -> None:
        """Wakes `wait_until`: messages arrived or were finished, or the pause or lock state changed."""
        for event in self._changed:
            event.set()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Returns when `condition` holds; it is checked after each `notify`."""
        event = asyncio.Event()
        self._changed.add(event)
        try:
            while not condition():
                event.clear()
                await event.wait()
        finally:
            self._changed.discard(event)


log = logging.getLogger(__name__)

FindStartOffset = Callable[[MessageQueue], Awaitable[StartOffset]]


class QueueGuard(Protocol):
    """What a change of a queue's owner must wait for: the broker's lock, in ordered consumption."""

    async def acquire(self, queue: MessageQueue) -> float | None:
        """Until when the lock is trusted, on the monotonic clock; None if another member still has it."""

    async def wait_for_handler(self, assigned: AssignedQueue) -> None:
        """Returns when no handler works on the queue any more."""

    async def release(self, queue: MessageQueue) -> None: ...


class AssignedQueues:
    """The queues that are assigned to this consumer: `assign` starts their tasks, `revoke` stops them."""

    def __init__(
        self,
        offsets: OffsetTable,
        find_start_offset: FindStartOffset,
        jobs: Sequence[QueueJob],
        guard: QueueGuard | None = None,
    ) -> None:
        self._offsets = offsets
        self._find_start_offset = find_start_offset
        self._jobs = jobs
        self._guard = guard
        self._queues: dict[MessageQueue, AssignedQueue] = {}
        self._assigning: set[MessageQueue] = set()
        self._revoking: dict[MessageQueue, AssignedQueue | None] = {}  # None: only its lock is still to be released
        self._revoke_tasks = TaskSet()

    def get(self, queue: MessageQueue) -> AssignedQueue | None:
        return self._queues.get(queue)

    def all(self) -> list[AssignedQueue]:
        return list(self._queues.values())

    def locked(self) -> list[AssignedQueue]:
        """Those that need their lock: also revoked ones, whose handler may still be running."""
        return [*self._queues.values(), *(assigned for assigned in self._revoking.values() if assigned is not None)]

    def is_free(self, queue: MessageQueue) -> bool:
        """Whether this consumer has nothing to do with the queue, now and soon."""
        return not any(queue in queues for queues in (self._queues, self._assigning, self._revoking))

    def of(self, topic: str) -> set[MessageQueue]:
        return {queue for queue in self._queues if queue.topic == topic}

    async def assign(self, queue: MessageQueue) -> bool:
        """False if the queue is not free yet: try again soon."""
        if queue in self._queues:
            return self._check(self._queues[queue])
        if queue in self._revoking:
            return False
        self._assigning.add(queue)
        try:
            locked_until = 0.0 if self._guard is None else await self._guard.acquire(queue)
            if locked_until is None:
                log.info("queue still locked by another member", extra={"queue": queue})
                return False
            start_offset = await self._find_start_offset(queue)
        except BaseException:
            # The broker may have locked it for this member, which then would keep the queue from all others.
            self._unlock_unassigned(queue)
            raise
        finally:
            self._assigning.discard(queue)
        log.info("queue assigned", extra={"queue": queue, "offset": start_offset.offset, "reason": start_offset.reason})
        assigned = self._queues[queue] = AssignedQueue(queue, start_offset.offset, self._jobs)
        assigned.locked_until = locked_until
        assigned.start()
        return True

    def _unlock_unassigned(self, queue: MessageQueue) -> None:
        if self._guard is not None:
            self._revoking[queue] = None
            self._revoke_tasks.spawn(self._unlock(self._guard, queue))

    async def _unlock(self, guard: QueueGuard, queue: MessageQueue) -> None:
        try:
            await guard.release(queue)
        finally:
            self._revoking.pop(queue, None)

    def _check(self, assigned: AssignedQueue) -> bool:
        """A task that has ended is a bug, but the queue must not get stuck: it is assigned again."""
        if assigned.has_failed:
            log.error(
                "a task of a queue has ended unexpectedly: assigning the queue again", extra={"queue": assigned.queue}
            )
            self.revoke(assigned.queue)
        return assigned.queue in self._queues

    def revoke(self, queue: MessageQueue) -> None:
        """Returns immediately; `assign` refuses the queue until it is free."""
        assigned = self._queues.pop(queue, None)
        if assigned is not None:
            self._revoking[queue] = assigned
            self._revoke_tasks.spawn(self._release(assigned))

    async def _release(self, assigned: AssignedQueue) -> None:
        try:
            if self._guard is not None:
                await self._guard.wait_for_handler(assigned)
            assigned.drop()
            await self._offsets.save([assigned.queue])
            if self._guard is not None:
                await self._guard.release(assigned.queue)
            log.info("queue revoked", extra={"queue": assigned.queue, "offset": self._offsets.get(assigned.queue)})
        finally:
            assigned.drop()
            self._offsets.forget(assigned.queue)
            self._revoking.pop(assigned.queue, None)

    async def revoke_all(self, timeout_s: float) -> None:
        """On close. Queues that are not released in time are cancelled, with their last offsets uncommitted."""
        for queue in list(self._queues):
            self.revoke(queue)
        if not await self._revoke_tasks.wait(timeout_s):
            self._revoke_tasks.cancel()
            await self._revoke_tasks.wait()
