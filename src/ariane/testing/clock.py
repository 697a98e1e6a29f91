"""A fake clock for tests: time passes only through `advance()` and `jump()`.

    with running_broker(clock=FakeClock()) as broker:
        broker.send("orders", b"later", delay_level=18)         # two hours
        broker.advance(2 * 3600)
        broker.wait_for_messages("orders", 1)

The clock belongs to one event loop: `broker.advance` jumps on the broker's own.
"""

import asyncio
import heapq
from itertools import count

from ariane.clock import Clock


class FakeClock(Clock):
    """Time stands still until `advance()`, by which sleepers wake in order, each at its own moment; or `jump()`."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = now_ms
        self._elapsed_s = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []
        self._ticket = count()

    def now_ms(self) -> int:
        return self._start_ms + round(self._elapsed_s * 1000)

    def monotonic(self) -> float:
        return self._elapsed_s

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:  # as the system clock: no `advance` may follow
            await asyncio.sleep(0)
            return
        woken = asyncio.Event()
        heapq.heappush(self._sleepers, (self._elapsed_s + seconds, next(self._ticket), woken))
        await woken.wait()

    async def advance(self, seconds: float) -> None:
        """Moves time forward and lets all tasks run that waited for it."""
        target = self._elapsed_s + seconds
        await _let_others_run()
        while self._sleepers and self._sleepers[0][0] <= target:
            self._elapsed_s, _, woken = heapq.heappop(self._sleepers)
            woken.set()
            await _let_others_run()
        self._elapsed_s = target

    async def jump(self, seconds: float) -> None:
        """Moves time forward at once, as for a machine that was suspended: each sleeper that is due wakes once."""
        self._elapsed_s += seconds
        while self._sleepers and self._sleepers[0][0] <= self._elapsed_s:
            heapq.heappop(self._sleepers)[2].set()
        await _let_others_run()


async def _let_others_run() -> None:
    """A few event-loop iterations: enough for a woken task to run and to sleep again."""
    for _ in range(10):
        await asyncio.sleep(0)
