"""Structured concurrency: background jobs, task sets, periodic jobs, long work in slices, and back-off.

The only module that creates tasks.

A long-running job runs in `background()`, which waits for it and fails with it. The tasks of a connection are in a
`TaskSet`, which its owner drains. So no task outlives its owner and no exception is lost.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from ariane.clock import Clock

Job = Callable[[], Coroutine[Any, Any, None]]
P = ParamSpec("P")
T = TypeVar("T")


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
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return self._spawned(work)

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which runs to its end also if the caller is cancelled."""
        return await asyncio.shield(self._spawned(work))

    def _spawned(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the tasks; whether all ended within the timeout."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout_s)
        return not self._tasks


# --- long work ---

SLICE_S = 0.005
"""How long work in slices keeps the event loop at a time."""

_long_work: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


def _turn() -> asyncio.Lock:
    """One at a time on each loop, first come, first served: a hundred long requests must not add up to a long pause."""
    return _long_work.setdefault(asyncio.get_running_loop(), asyncio.Lock())


class Slices:
    """Long work on the event loop, in slices: `async with Slices() as slices`, and `await slices.pause()` at least
    every millisecond. Others run between two slices, also other long work."""

    def __init__(self) -> None:
        self._has_turn = False
        self._began = 0.0

    async def __aenter__(self) -> "Slices":
        await self._take_turn()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._has_turn:
            _turn().release()

    async def pause(self) -> None:
        """Returns at once while the slice has time left."""
        if time.perf_counter() - self._began >= SLICE_S:
            self._has_turn = False
            _turn().release()
            await asyncio.sleep(0)
            await self._take_turn()

    async def _take_turn(self) -> None:
        await _turn().acquire()
        self._has_turn = True
        self._began = time.perf_counter()


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Long computing in a thread, for example of a large text; one at a time, because threads compete for the GIL."""
    async with _turn():
        return await asyncio.to_thread(function, *args, **kwargs)


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
