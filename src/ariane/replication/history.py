"""When a log had which end, so that a distance in bytes can be given in seconds. Values, without clock and sockets.

A master notes the end of its log once a second. A slave that has everything below an offset has all that there was when
the log last ended there: so long ago it was up to date. Appends cost nothing, and idle time does not count.
"""

from bisect import bisect_right

SAMPLES_MAX = 4096


class LogHistory:
    def __init__(self, samples_max: int = SAMPLES_MAX) -> None:
        """`samples_max`: beyond it the older half is thinned out. What is asked of them is a little too long then."""
        self._samples_max = samples_max
        self._ends: list[int] = []
        self._last_seen: list[float] = []

    def __len__(self) -> int:
        return len(self._ends)

    def note(self, end: int, now: float) -> None:
        """The log ends at `end` now."""
        if self._ends and end <= self._ends[-1]:
            self._last_seen[-1] = now
            return
        if len(self._ends) >= self._samples_max:
            half = self._samples_max // 2
            self._ends[:half], self._last_seen[:half] = self._ends[:half:2], self._last_seen[:half:2]
        self._ends.append(end)
        self._last_seen.append(now)

    def age_s(self, offset: int, now: float) -> float | None:
        """How long ago the log ended at or before `offset`; 0 if it still does; None if that was before the first note.

        Call `note` first: what was appended since then counts."""
        if not self._ends or offset < self._ends[0]:
            return None
        number = bisect_right(self._ends, offset) - 1
        return 0.0 if number == len(self._ends) - 1 else now - self._last_seen[number]
