"""Sleep until a wall time, or until somebody knows of an earlier one."""

import asyncio

from ariane.clock import Clock
from ariane.lifecycle import TaskSet

LOOK_AT_CLOCK_S = 10.0
"""A sleep counts its seconds and does not see that the wall clock was set: so often it is looked at."""

_NEVER_MS = 1 << 62


class Alarm:
    """One waiter. While nobody waits, calls for a wake-up are ignored: the waiter looks at all there is before it waits
    again, and must not be suspended between that look and `wait`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._woken = asyncio.Event()
        self._at_ms = 0

    def ring_by(self, at_ms: int) -> None:
        """Something is due at `at_ms`: wakes the waiter if it means to sleep longer."""
        if at_ms < self._at_ms:
            self._woken.set()

    async def wait(self, at_ms: int | None) -> None:
        """Returns at `at_ms`, or earlier: the waiter looks at the clock itself. None: only `ring_by` ends it."""
        self._woken.clear()
        self._at_ms = _NEVER_MS if at_ms is None else at_ms
        sleep = TaskSet()
        if at_ms is not None:
            sleep.spawn(self._ring_after(min(max(at_ms - self._clock.now_ms(), 0) / 1000, LOOK_AT_CLOCK_S)))
        try:
            await self._woken.wait()
        finally:
            self._at_ms = 0
            sleep.cancel()

    async def _ring_after(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._woken.set()
