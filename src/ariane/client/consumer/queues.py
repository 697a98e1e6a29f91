"""A queue that this consumer owns for now: its messages in hand and the tasks that work on it."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from operator import lt
from typing import Any, Protocol

from ariane.client.consumer.message import Received
from ariane.client.consumer.offsets import Beginning, OffsetTable
from ariane.lifecycle import TaskSet
from ariane.model.route import MessageQueue

# --- process_queue ---
#
# Messages of one queue that a consumer has in hand: pulled, and not finished.
#
#                  commit_offset           next_offset
#                       ▼                       ▼
#     ... finished │ in hand ── waiting ── │ still at the broker
#                    (some of them finished)
#
# Handlers finish in any order, but the broker keeps one number per queue. So what is committed is the smallest
# unfinished offset: after a crash a message may come twice, never not at all.


class ProcessQueue:
    """Pure. `begin` is the offset of the first message to pull."""

    def __init__(self, begin: int) -> None:
        self.next_offset = begin
        """Where the next pull begins: all below was handed to us, or passed over by the filter."""
        self.bytes = 0
        self.dropped = False
        """Whether the queue was given up or moved. What handlers then still finish counts for nothing."""
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
        """The largest offset in hand; that before the next one to pull when there is none."""
        return self._order[-1] if self._order else self.next_offset - 1

    @property
    def span(self) -> int:
        """How far the offsets in hand reach: one stuck message among many quick ones makes it grow."""
        return self._order[-1] - self._order[0] if self._order else 0

    def put(self, messages: Sequence[Received], next_offset: int) -> None:
        """What a pull brought. Offsets that were here before are passed over: a broker may repeat itself."""
        offsets = [message.queue_offset for message in messages]
        if not _rises(offsets, self.next_offset):
            messages = list(_rising(messages, self.next_offset))
            offsets = [message.queue_offset for message in messages]
        sizes = [len(message.body) for message in messages]
        self._waiting.extend(messages)
        self._order.extend(offsets)
        self._unfinished.update(zip(offsets, sizes, strict=True))
        self.bytes += sum(sizes)
        self.next_offset = max(self.next_offset, next_offset, offsets[-1] + 1 if offsets else 0)

    def take(self, count: int) -> list[Received]:
        """The next messages, in order; they stay in hand until they are finished."""
        if count >= len(self._waiting):
            taken = list(self._waiting)
            self._waiting.clear()
            return taken
        return [self._waiting.popleft() for _ in range(count)]

    def put_back(self, messages: Sequence[Received]) -> None:
        """Taken but not finished: they come first again, as ordered consumption wants it."""
        self._waiting.extendleft(reversed(messages))

    def finish(self, messages: Sequence[Received]) -> None:
        unfinished, order = self._unfinished, self._order
        self.bytes -= sum([unfinished.pop(message.queue_offset, 0) for message in messages])
        if not unfinished:
            order.clear()
        while order and order[0] not in unfinished:
            order.popleft()


def _rises(offsets: Sequence[int], begin: int) -> bool:
    """As the answers of a sound broker do."""
    return not offsets or (offsets[0] >= begin and all(map(lt, offsets, offsets[1:])))


def _rising(messages: Sequence[Received], begin: int) -> Iterator[Received]:
    for message in messages:
        if message.queue_offset >= begin:
            yield message
            begin = message.queue_offset + 1


# ---

QueueJob = Callable[["HeldQueue"], Coroutine[Any, Any, None]]
"""What a kind of consumer does with each of its queues, until it is cancelled."""


class HeldQueue:
    def __init__(self, queue: MessageQueue, begin: int, jobs: Sequence[QueueJob]) -> None:
        self.queue = queue
        self.process = ProcessQueue(begin)
        self.paused = False
        self.locked_until = 0.0
        """Ordered consumption only: until when, on the monotonic clock, we may count on the broker's lock."""
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
        """Whether a job has ended by itself, which none does unless by a mistake of ours."""
        return self._is_started and len(self._tasks) < len(self._jobs)

    def stop_tasks(self) -> None:
        self._is_started = False
        self._tasks.cancel()
        self._tasks = TaskSet()

    def drop(self) -> None:
        """Gives it up at once: what handlers still finish counts for nothing."""
        self.process.dropped = True
        self.stop_tasks()

    def renew(self, begin: int) -> None:
        """Goes on elsewhere, at once: a long poll that is under way must not keep it waiting."""
        self.drop()
        self.consuming = asyncio.Lock()
        self.replace(begin)
        self.start()

    def replace(self, begin: int) -> None:
        self.process.dropped = True
        self.process = ProcessQueue(begin)
        self.tell()

    def tell(self) -> None:
        """Something changed: messages came or were finished, it was paused or resumed, its lock came or went."""
        for event in self._changed:
            event.set()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Returns when `condition` holds; it is looked at after each change."""
        event = asyncio.Event()
        self._changed.add(event)
        try:
            while not condition():
                event.clear()
                await event.wait()
        finally:
            self._changed.discard(event)


# --- held_queues ---
#
# The queues that a consumer owns: taken when they fall to it, given up when they do not any more.

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
