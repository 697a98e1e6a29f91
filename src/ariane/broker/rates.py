"""How fast the broker as a whole works: over 10, 60 and 600 seconds, as runtime info tells it, and since midnight."""

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ariane.broker.counters import Counters
from ariane.clock import Clock

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


class Mornings(NamedTuple):
    """How many messages had been put and got when a day began, or when the broker started."""

    yesterday: tuple[int, int] = (0, 0)
    today: tuple[int, int] = (0, 0)


class Rates:
    """`sample` is to be called every second."""

    def __init__(self, counters: Counters, clock: Clock) -> None:
        self._counters = counters
        self._clock = clock
        self._samples: deque[Totals] = deque([self._now()], maxlen=SPANS_S[-1] + 1)
        self._day = self._today()
        self.mornings = Mornings()

    def sample(self) -> None:
        self._samples.append(self._now())
        day = self._today()
        if day != self._day:
            self._day = day
            counted = self._counters.messages_in, self._counters.messages_out
            self.mornings = Mornings(self.mornings.today, counted)

    def texts(self) -> dict[str, str]:
        """Under the names of runtime info. 4.x and 5.x tools spell one of them differently."""
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
        """The newest sample that is not younger than `at`; the oldest when the broker has not run for so long."""
        return next((totals for totals in reversed(self._samples) if totals.at <= at), self._samples[0])

    def _now(self) -> Totals:
        return Totals.of(self._counters, self._clock.monotonic())

    def _today(self) -> tuple[int, int]:
        local = time.localtime(self._clock.now_ms() / 1000)
        return local.tm_year, local.tm_yday


def _text(over: list[tuple[Totals, Totals]], number: Callable[[Totals], int]) -> str:
    rates = [(number(now) - number(then)) / max(now.at - then.at, _SPAN_MIN_S) for now, then in over]
    return " ".join(f"{rate:.4f}" for rate in rates)
