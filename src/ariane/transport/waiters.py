"""Calls in flight on one connection: who waits for which answer, and until when.

One timer serves them all. It is set to the earliest deadline, and when it goes off it looks through whoever waits
then; calls that were answered meanwhile cost it nothing. With `asyncio.timeout` around each call a loop sets and clears
thousands of timers that never go off.
"""

import asyncio
from math import inf
from typing import Generic, TypeVar

T = TypeVar("T")

_SLACK_S = 0.001  # loops round their timers to milliseconds, and one that is early would only be set again


class Waiters(Generic[T]):
    """By opaque number. A call whose time is over ends with a TimeoutError."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[asyncio.Future[T], float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, opaque: int) -> bool:
        return opaque in self._waiting

    def add(self, opaque: int, timeout_s: float) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        waiter: asyncio.Future[T] = asyncio.Future(loop=loop)
        self._waiting[opaque] = waiter, deadline
        if deadline < self._timer_at:
            self._set_timer(loop, deadline)
        return waiter

    def settle(self, opaque: int, answer: T) -> bool:
        """Whether somebody waited for it."""
        waiting = self._waiting.pop(opaque, None)
        if waiting is None:
            return False
        if not waiting[0].done():
            waiting[0].set_result(answer)
        return True

    def drop(self, opaque: int, waiter: asyncio.Future[T]) -> None:
        """Nobody waits any more; a late answer will find nobody."""
        self._waiting.pop(opaque, None)
        if not waiter.cancel() and not waiter.cancelled():
            waiter.exception()  # perhaps it was not looked at, and it need not be

    def fail_all(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, {}
        for waiter, _ in waiting.values():
            if not waiter.done():
                waiter.set_exception(error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at = None, inf

    def _set_timer(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = loop.call_at(deadline, self._expire, loop), deadline

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self._timer_at = None, inf
        late_from = loop.time() + _SLACK_S
        for opaque in [opaque for opaque, (_, deadline) in self._waiting.items() if deadline <= late_from]:
            waiter, _ = self._waiting.pop(opaque)
            if not waiter.done():
                waiter.set_exception(TimeoutError())
        if self._waiting:
            self._set_timer(loop, min(deadline for _, deadline in self._waiting.values()))
