"""How much of a tally came in the last minute, hour and day.

Every window has a ring of samples in each tally. The slot that the next sample will overwrite holds the oldest one, and
what came since is the difference to now:

    a window of 6 slots     t3  t4  t5  t0  t1  t2        t0 is the oldest: it is overwritten next
                                        ▲ next

A tally that is younger than a window has zeros there, which is how much there was of it; a broker that is younger has
its start as the time of that sample. So a rate is over the whole window, or over the broker's life.
"""

from dataclasses import dataclass
from typing import NamedTuple

from ariane.broker.tallies import COLUMNS, Tally

TICK_S = 10
"""Time between two samples of the shortest window, as Apache's."""


class Recent(NamedTuple):
    """What came within a window."""

    messages: int
    bytes: int
    times: int
    seconds: float
    """How far back the window reaches: up to one sample less than its name says, and never nothing."""


@dataclass(slots=True)
class Window:
    first_slot: int
    slots: int
    ticks: int
    """How many ticks are between two of its samples."""
    sampled_at: list[float]
    next: int = 0

    @property
    def next_slot(self) -> int:
        return self.first_slot + self.next

    def sampled(self, now: float) -> None:
        self.sampled_at[self.next] = now
        self.next = (self.next + 1) % self.slots

    def recent(self, tally: Tally, now: float) -> Recent:
        at = self.next_slot * COLUMNS
        messages, size, times = tally.samples[at : at + COLUMNS]
        seconds = max(now - self.sampled_at[self.next], 1.0)
        return Recent(tally.messages - messages, tally.bytes - size, tally.times - times, seconds)


_SHAPES = ((6, 1), (6, 60), (24, 360))  # slots, and ticks between two samples: 10 s, 10 min, 1 h


class Windows:
    SLOTS = sum(slots for slots, _ in _SHAPES)

    def __init__(self, now: float) -> None:
        self._ticks = 0
        first = 0
        made = []
        for slots, ticks in _SHAPES:
            made.append(Window(first, slots, ticks, [now] * slots))
            first += slots
        self.minute, self.hour, self.day = made

    def tick(self) -> list[Window]:
        """To be called every TICK_S: the windows that a sample is due for."""
        self._ticks += 1
        return [window for window in (self.minute, self.hour, self.day) if self._ticks % window.ticks == 0]
