"""One true record at or behind any byte of the log: where splits begin, and what time it was there.

A queue's entry names a record start for certain, so the longest queue is asked first. Where it has none near, the bytes
are searched for a record that stands where it says; only a producer who foresees its message's place in the log could
put something there that passes for one.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ariane.arrow.bad_records import next_record
from ariane.arrow.log_files import LogFiles
from ariane.arrow.log_queues import QueueEntries

NEAR_BYTES = 64 * 1024 * 1024
_FINE_BYTES = 1024 * 1024

CLOCK_STEP_MS = 60_000
"""How far a broker's clock may have been set back while it wrote; ours never lets store times fall, Apache's may."""


class FoundRecord(NamedTuple):
    start: int
    stored_ms: int


class LogProbe:
    def __init__(self, files: LogFiles, queues: Sequence[QueueEntries], begin: int, end: int) -> None:
        """For the records from `begin` on and before `end`."""
        self._files = files
        self._queue = max(queues, key=len, default=None)
        self._begin = begin
        self._end = end

    def at_or_after(self, physical: int) -> FoundRecord | None:
        """A record that begins there or somewhat later, not always the next one."""
        return self.certain(physical) or self._by_search(physical)

    def certain(self, physical: int, near_bytes: int = NEAR_BYTES) -> FoundRecord | None:
        """A record that a queue names, not too far behind; None when there is none."""
        queue = self._queue
        number = queue.number_at(physical) if queue is not None else 0
        if queue is None or number >= queue.end:
            return None
        start = queue.physical(number)
        return self._record(start) if start < min(physical + near_bytes, self._end) else None

    def _by_search(self, physical: int) -> FoundRecord | None:
        for file in self._files.overlapping(physical, self._end):
            walk = self._files.walk(file, self._end)
            at = next_record(walk.source, max(physical - file.base, 0), walk.limit, file.base)
            if at < walk.limit:
                return self._record(file.base + at)
        return None

    def _record(self, start: int) -> FoundRecord | None:
        view = self._files.record_at(start, self._end)
        return None if view is None else FoundRecord(start, view.store_timestamp_ms)

    def between(self, from_ms: int | None, before_ms: int | None) -> tuple[int, int]:
        """The stretch of the log that holds all records of a time, and at its ends some others."""
        begin = self._begin if from_ms is None else self._turn(from_ms - CLOCK_STEP_MS)[0]
        end = self._end if before_ms is None else self._turn(before_ms + CLOCK_STEP_MS)[1]
        return begin, max(begin, end)

    def _turn(self, time_ms: int) -> tuple[int, int]:
        """A record start before which all is older, and a place behind which nothing is."""
        low, high = self._begin, self._end
        while high - low > _FINE_BYTES:
            middle = (low + high) // 2
            found = self.at_or_after(middle)
            if found is not None and found.start < high and found.stored_ms < time_ms:
                low = found.start
            else:
                high = middle
        return low, high
