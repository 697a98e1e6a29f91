"""Wall and monotonic time behind one small object, so that tests can own time (`ariane.testing.FakeClock`)."""

import asyncio
import time


class Clock:
    """The machine's own time."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970, as RocketMQ's timestamps are."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that never go back; for deadlines."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
