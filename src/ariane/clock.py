"""Wall-clock and monotonic time behind one small class, so that tests can control time (`ariane.testing.FakeClock`)."""

import asyncio
import time


class Clock:
    """The system clock."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since 1970, the unit of RocketMQ's timestamps."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that never go backwards; for deadlines."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
