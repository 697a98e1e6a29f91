"""Broker statistics under the names that mqadmin and dashboards request, sampled from the counters every second.

    TOPIC_PUT_NUMS, TOPIC_PUT_SIZE                        by topic
    GROUP_GET_NUMS, GROUP_GET_SIZE                        by topic@group
    GROUP_GET_FROM_DISK_NUMS, GROUP_GET_FROM_DISK_SIZE    by topic@group
    SNDBCK_PUT_NUMS, DLQ_PUT_NUMS                         by topic@group, with the original topic
    BROKER_PUT_NUMS, BROKER_GET_NUMS                      by cluster name

Apache has more. GROUP_GET_LATENCY is in whole milliseconds and would always be 0 here. No request of Apache returns how
far reads are behind (GROUP_GET_FALL_SIZE, GROUP_GET_FALL_TIME); here the metrics contain the lag.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

from ariane.broker.stats.counters import TICK_S, Counters, SlidingWindow, SlidingWindows, TrafficCounter, WindowTotals
from ariane.clock import Clock
from ariane.lifecycle import background, every

SPANS_S = (10, 60, 600)
_SPAN_MIN_S = 1.0


class Totals(NamedTuple):
    at: float
    put: int
    found: int
    missed: int
    transferred: int

    @classmethod
    def of(cls, counters: Counters, at: float) -> "Totals":
        return cls(at, counters.messages_in, counters.found, counters.missed, counters.messages_out)


class DayStartTotals(NamedTuple):
    """Messages put and got until the start of a day, or until the start of the broker."""

    yesterday: tuple[int, int] = (0, 0)
    today: tuple[int, int] = (0, 0)


class Rates:
    """Rates of the whole broker over 10, 60 and 600 seconds, and totals since midnight. Call `sample` every second."""

    def __init__(self, counters: Counters, clock: Clock) -> None:
        self._counters = counters
        self._clock = clock
        self._samples: deque[Totals] = deque([self._now()], maxlen=SPANS_S[-1] + 1)
        self._day = self._today()
        self.day_start = DayStartTotals()

    def sample(self) -> None:
        self._samples.append(self._now())
        day = self._today()
        if day != self._day:
            self._day = day
            counted = self._counters.messages_in, self._counters.messages_out
            self.day_start = DayStartTotals(self.day_start.today, counted)

    def texts(self) -> dict[str, str]:
        """By the keys of runtime information. Tools of 4.x and 5.x spell one of them differently."""
        now = self._now()
        over = [(now, self._before(now.at - span_s)) for span_s in SPANS_S]
        transferred = _text(over, lambda totals: totals.transferred)
        return {
            "putTps": _text(over, lambda totals: totals.put),
            "getFoundTps": _text(over, lambda totals: totals.found),
            "getMissTps": _text(over, lambda totals: totals.missed),
            "getTotalTps": _text(over, lambda totals: totals.found + totals.missed),
            "getTransferedTps": transferred,
            "getTransferredTps": transferred,
        }

    def _before(self, at: float) -> Totals:
        """The newest sample not later than `at`; the oldest sample if the broker has not run that long."""
        return next((totals for totals in reversed(self._samples) if totals.at <= at), self._samples[0])

    def _now(self) -> Totals:
        return Totals.of(self._counters, self._clock.monotonic())

    def _today(self) -> tuple[int, int]:
        local = time.localtime(self._clock.now_ms() / 1000)
        return local.tm_year, local.tm_yday


def _text(over: list[tuple[Totals, Totals]], number: Callable[[Totals], int]) -> str:
    rates = [(number(now) - number(then)) / max(now.at - then.at, _SPAN_MIN_S) for now, then in over]
    return " ".join(f"{rate:.4f}" for rate in rates)


# --- statistics by name ---

_COUNTERS_PER_YIELD = 2_000  # about a millisecond, then yield to the event loop
_KEY_SEPARATOR = "@"


class Statistic(NamedTuple):
    """Traffic in the last minute, hour and day."""

    minute: WindowTotals
    hour: WindowTotals
    day: WindowTotals


class Statistics:
    """Create it with `open`, which samples for the length of the body."""

    def __init__(self, counters: Counters, clock: Clock, cluster: str) -> None:
        self.counters = counters
        self.rates = Rates(counters, clock)
        self._clock = clock
        self._cluster = cluster
        self._windows = SlidingWindows(clock.monotonic())
        self._seconds = 0
        self._puts = TrafficCounter(SlidingWindows.SLOTS)
        self._gets = TrafficCounter(SlidingWindows.SLOTS)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        counters: Counters,
        clock: Clock,
        cluster: str,
        is_topic: Callable[[str], bool] = lambda topic: True,
        is_group: Callable[[str], bool] = lambda group: True,
    ) -> AsyncIterator["Statistics"]:
        """Samples while the body runs, and removes the counters of deleted topics and groups."""
        statistics = cls(counters, clock, cluster)

        async def second() -> None:
            if await statistics.sample():
                counters.remove_unknown(is_topic, is_group)

        async with background(partial(every, clock, 1.0, second, 1.0)):
            yield statistics

    # --- sampling ---------------------------------------------------------------------------------------------------

    async def sample(self) -> bool:
        """Call every second; returns True every ten minutes, when counters of deleted topics should be removed."""
        self.rates.sample()
        self._seconds += 1
        if self._seconds % TICK_S:
            return False
        due = self._windows.tick()
        await self._note(due)
        return self._windows.hour in due

    async def _note(self, due: list[SlidingWindow]) -> None:
        now = self._clock.monotonic()
        slots = [window.next_slot for window in due]
        for window in due:  # first, so that a concurrent read does not take the new sample for the oldest one
            window.sampled(now)
        for number, counter in enumerate([*self._of_broker(), *self.counters.all()], 1):
            for slot in slots:
                counter.sample(slot)
            if number % _COUNTERS_PER_YIELD == 0:
                await asyncio.sleep(0)

    def _of_broker(self) -> tuple[TrafficCounter, TrafficCounter]:
        counters = self.counters
        self._puts.messages, self._puts.bytes = counters.messages_in, counters.bytes_in
        self._puts.merged = counters.merged_in
        self._gets.messages, self._gets.bytes = counters.messages_out, counters.bytes_out
        self._gets.merged = counters.messages_out - counters.found
        return self._puts, self._gets

    # --- queries ----------------------------------------------------------------------------------------------------

    def find(self, name: str, key: str) -> Statistic | None:
        """A statistic by Apache's name and key; None if it does not exist."""
        counter = self._counter(name, key)
        if counter is None:
            return None
        now, windows = self._clock.monotonic(), self._windows
        return Statistic(*(window.recent(counter, now) for window in (windows.minute, windows.hour, windows.day)))

    def _counter(self, name: str, key: str) -> TrafficCounter | None:
        puts, gets = self._of_broker()
        if name in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS"):
            return (puts if name == "BROKER_PUT_NUMS" else gets) if key == self._cluster else None
        if name in ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"):
            return self.counters.puts.get(key)
        topic, _, group = key.partition(_KEY_SEPARATOR)
        return self._by_group().get(name, {}).get((topic, group))

    def _by_group(self) -> dict[str, Mapping[tuple[str, str], TrafficCounter]]:
        counters = self.counters
        return {
            "GROUP_GET_NUMS": counters.gets,
            "GROUP_GET_SIZE": counters.gets,
            "GROUP_GET_FROM_DISK_NUMS": counters.cold_gets,
            "GROUP_GET_FROM_DISK_SIZE": counters.cold_gets,
            "SNDBCK_PUT_NUMS": counters.send_backs,
            "DLQ_PUT_NUMS": counters.dead_letters,
        }

    def names(self) -> list[str]:
        return sorted(["BROKER_PUT_NUMS", "BROKER_GET_NUMS", "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE", *self._by_group()])

    def consume_rate(self, group: str, topic: str) -> float:
        """Messages per second that a group consumed from a topic in the last minute."""
        counter = self.counters.gets.get((topic, group))
        if counter is None:
            return 0.0
        recent = self._windows.minute.recent(counter, self._clock.monotonic())
        return recent.messages / recent.seconds
