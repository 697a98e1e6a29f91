"""So many a second, evenly."""

from ariane.clock import Clock

_BEHIND_MAX_S = 0.1
"""Time that was lost beyond this is not made up for: whoever was slow does not get a crowd later."""


class Pace:
    def __init__(self, rate: float, clock: Clock) -> None:
        self._gap_s = 1.0 / rate
        self._clock = clock
        self._next = clock.monotonic()

    async def turn(self) -> None:
        """Returns when the next one may go."""
        now = self._clock.monotonic()
        if self._next > now:
            await self._clock.sleep(self._next - now)
        self._next = max(self._next, now - _BEHIND_MAX_S) + self._gap_s
