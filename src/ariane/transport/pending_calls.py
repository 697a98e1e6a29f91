"""Responses matched to their requests: the calls of one connection that wait, by opaque number, and their deadlines.

One timer serves all pending calls. It is set to the earliest deadline; when it fires it checks the calls that are
pending then, and those answered in the meantime cost it nothing. With `asyncio.timeout` around each call a loop would
set and clear thousands of timers that never fire.
"""

import asyncio
from math import inf
from typing import Generic, TypeVar

T = TypeVar("T")

_TIMER_SLACK_S = 0.001  # event loops round timers to milliseconds; one that fires early would only be set again


class PendingCalls(Generic[T]):
    """Calls that wait for their response, by opaque number. A call that misses its deadline fails with TimeoutError."""

    def __init__(self) -> None:
        self._pending: dict[int, tuple[asyncio.Future[T], float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, opaque: int) -> bool:
        return opaque in self._pending

    def add(self, opaque: int, timeout_s: float) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        future: asyncio.Future[T] = asyncio.Future(loop=loop)
        self._pending[opaque] = future, deadline
        if deadline < self._timer_at:
            self._set_timer(loop, deadline)
        return future

    def resolve(self, opaque: int, response: T) -> bool:
        """Gives the response to its call; False when no call with this number is pending."""
        pending = self._pending.pop(opaque, None)
        if pending is None:
            return False
        if not pending[0].done():
            pending[0].set_result(response)
        return True

    def discard(self, opaque: int, future: asyncio.Future[T]) -> None:
        """The caller has stopped waiting; a late response will be dropped."""
        self._pending.pop(opaque, None)
        if not future.cancel() and not future.cancelled():
            future.exception()  # marks the exception as retrieved, so that asyncio does not log it

    def fail_all(self, error: Exception) -> None:
        pending, self._pending = self._pending, {}
        for future, _ in pending.values():
            if not future.done():
                future.set_exception(error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at = None, inf

    def _set_timer(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = loop.call_at(deadline, self._expire, loop), deadline

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self._timer_at = None, inf
        late_from = loop.time() + _TIMER_SLACK_S
        for opaque in [opaque for opaque, (_, deadline) in self._pending.items() if deadline <= late_from]:
            future, _ = self._pending.pop(opaque)
            if not future.done():
                future.set_exception(TimeoutError())
        if self._pending:
            self._set_timer(loop, min(deadline for _, deadline in self._pending.values()))
