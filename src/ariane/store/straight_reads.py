"""Straight reads of one turn of the event loop, of which some go on where the one before ended.

A reader that does not wait for each answer asks for the next ones, too, and they all come in one chunk. The second such
read is told by where it begins. From then on the entries of several reads are taken from the file at once, and the page
cache is asked for one record half a megabyte on. A read that is alone pays nothing for that.

Nothing is kept for the next turn: by then a queue may have been cut.
"""

from bisect import bisect_right

from ariane.store.commit_log import CommitLog
from ariane.store.consume_queue import ConsumeQueue
from ariane.store.queue_entry import ENTRY, ENTRY_BYTES
from ariane.store.settings import StoreSettings
from ariane.store.straight_read import Run, straight_run

_ENTRIES_AHEAD = 256
"""Eight reads of 32: as many as the answers to one chunk are likely to have."""
_ASKED_SPAN = 512 * 1024
"""Of the log: what lies between two records that are in memory may not be, the less so the farther they are apart."""


class StraightReads:
    __slots__ = (
        "_cached_to", "_held", "_held_offset", "_log", "_memory_bytes_max", "_next_offset", "_queue", "_settings",
    )  # fmt: skip

    def __init__(self, log: CommitLog, settings: StoreSettings, memory_bytes_max: int) -> None:
        self._log = log
        self._settings = settings
        self._memory_bytes_max = memory_bytes_max
        self._queue: ConsumeQueue | None = None
        self._next_offset = 0
        self._held = b""
        self._held_offset = 0
        self._cached_to = -1
        """All from the last read to this record is in memory, as far as one can tell from both ends."""

    def find(self, queue: ConsumeQueue, offset: int, count_max: int, bytes_max: int) -> Run | None:
        """What `Reader.read` finds without a filter, when that is as simple as it nearly always is (straight_read.py)
        and does not wait for the disk."""
        limits = self._settings
        count = count_max if count_max < limits.pull_count_max else limits.pull_count_max
        if queue is self._queue and offset == self._next_offset:
            entries = self._in_a_row(queue, offset, count)
        else:
            self._queue, self._held, self._cached_to = queue, b"", -1
            entries = queue.cached_entries(offset, count)
        if entries is None:
            return None
        run = straight_run(self._log, entries, min(bytes_max, limits.pull_bytes_max), self._memory_bytes_max)
        if run is None or not (run.places[-1] <= self._cached_to or run.is_cached()):
            return None
        self._next_offset = offset + len(run.places)
        return run

    def _in_a_row(self, queue: ConsumeQueue, offset: int, count: int) -> bytes | None:
        """None when that might wait for the disk."""
        entries = self._held_from(offset, count)
        if len(entries) == count * ENTRY_BYTES:
            return entries
        if self._look_ahead(queue, offset, count):
            return self._held_from(offset, count)
        self._held, self._cached_to = b"", -1
        return queue.cached_entries(offset, count)

    def _held_from(self, offset: int, count: int) -> bytes:
        at = (offset - self._held_offset) * ENTRY_BYTES
        return self._held[at : at + count * ENTRY_BYTES]

    def _look_ahead(self, queue: ConsumeQueue, offset: int, count: int) -> bool:
        """Whether there is something to hold."""
        held = queue.cached_entries(offset, max(count, _ENTRIES_AHEAD))
        if not held:
            return False
        self._held, self._held_offset = held, offset
        physical, size, _ = ENTRY.unpack_from(held, _last_within(held, _ASKED_SPAN) * ENTRY_BYTES)
        self._cached_to = physical if self._log.is_cached(((physical, size),)) else -1
        return True


def _last_within(entries: bytes, span: int) -> int:
    """Which one is the last whose record begins not more than so many bytes behind the first one's."""
    ascending = range(len(entries) // ENTRY_BYTES)
    first = _physical(entries, 0)
    return max(0, bisect_right(ascending, first + span, key=lambda number: _physical(entries, number)) - 1)


def _physical(entries: bytes, number: int) -> int:
    return int(ENTRY.unpack_from(entries, number * ENTRY_BYTES)[0])
