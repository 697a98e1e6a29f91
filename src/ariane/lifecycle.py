"""Structured concurrency: background jobs, task sets, periodic jobs and back-off. The only module that creates tasks.

A long-running job runs in `background()`, which waits for it and fails with it. The tasks of a connection are in a
`TaskSet`, which its owner drains. So no task outlives its owner and no exception is lost.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from ariane.clock import Clock

Job = Callable[[], Coroutine[Any, Any, None]]


@asynccontextmanager
async def background(*jobs: Job) -> AsyncIterator[None]:
    """Runs `jobs` while the body runs. A job that fails cancels the body; leaving the body cancels the jobs."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(job(), name=getattr(job, "__qualname__", repr(job))) for job in jobs]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def every(clock: Clock, seconds: float, action: Callable[[], Awaitable[None] | None], first: float) -> None:
    """Calls `action` after `first` seconds and then every `seconds`, forever. An exception of `action` ends the job."""
    delay = first
    while True:
        await clock.sleep(delay)
        awaitable = action()
        if awaitable is not None:
            await awaitable
        delay = seconds


class TaskSet:
    """Tasks that belong to one owner."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the tasks; whether all ended within the timeout."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout_s)
        return not self._tasks


class Backoff:
    """Exponential back-off with jitter, so that many clients do not reconnect at the same moment."""

    def __init__(self, first_s: float = 0.05, factor: float = 2.0, longest_s: float = 5.0) -> None:
        self._first_s = first_s
        self._factor = factor
        self._longest_s = longest_s
        self._next_s = first_s

    def next_s(self) -> float:
        pause_s, self._next_s = self._next_s, min(self._next_s * self._factor, self._longest_s)
        return pause_s * random.uniform(0.75, 1.25)  # noqa: S311 - spreads load, protects nothing

    def reset(self) -> None:
        self._next_s = self._first_s
