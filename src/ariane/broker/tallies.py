"""What is counted: sums that only grow, and how they stood at the ends of the windows (windows.py)."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence

COLUMNS = 3
"""Of a sample: messages, bytes, times."""


class Tally:
    """Of one topic, or of one group and topic. Its few attributes are raised in place: that is the hot path."""

    __slots__ = ("bytes", "merged", "messages", "samples")

    def __init__(self, samples: int) -> None:
        """With room for so many samples. They begin as zeros, which is what there was before the first count."""
        self.messages = 0
        self.bytes = 0
        self.merged = 0
        """Messages that came with another one, in a batch or in the answer to one pull."""
        self.samples = array("q", bytes(8 * COLUMNS * samples))

    @property
    def times(self) -> int:
        """How often something came: a batch is one time."""
        return self.messages - self.merged

    def note(self, slot: int) -> None:
        at = slot * COLUMNS
        self.samples[at], self.samples[at + 1], self.samples[at + 2] = self.messages, self.bytes, self.times


class GroupTally(Tally):
    """What a group got from a topic, and up to where."""

    __slots__ = ("pulled",)

    def __init__(self, samples: int) -> None:
        super().__init__(samples)
        self.pulled: dict[int, int] = {}
        """By queue, the offset that the group's last pull was told to go on from."""


class Histogram:
    """How many values were not above each bound. The last count is of those above all of them."""

    __slots__ = ("bounds", "counts", "largest", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self.largest = 0.0

    def add(self, value: float, times: int = 1) -> None:
        if value <= self.bounds[0]:  # most of them
            self.counts[0] += times
        else:
            self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times
        if value > self.largest:
            self.largest = value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def up_to(self, bound: float) -> int:
        """How many values were not above `bound`, which is one of the bounds."""
        return sum(self.counts[: self.bounds.index(bound) + 1])
