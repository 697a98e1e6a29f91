"""A queue that this consumer owns for now: its messages in hand and the tasks that work on it."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ariane.client.process_queue import ProcessQueue
from ariane.lifecycle import TaskSet
from ariane.model.route import MessageQueue

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
