"""What nearly every pull finds: all entries count, and all of their records are in one file and in memory.

The general way (query.py) looks at each entry. Here all of them are unpacked by one call and looked at together, by
functions that run in C: 13 us for 32 records against 19. Whatever is not so simple is None, and left to that way.
"""

import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import add
from typing import NamedTuple

from ariane.store.commit_log import CommitLog
from ariane.store.queue_entry import ENTRY_BYTES
from ariane.store.segments import Segment
from ariane.wire.record import RECORD_BYTES_MAX


@lru_cache(maxsize=64)
def _unpacker(count: int) -> Callable[[bytes], tuple[int, ...]]:
    """Of so many entries: their physical offsets and sizes in turn, the tags codes left out. Both are read as unsigned:
    what is below zero becomes far too large, and needs no look of its own."""
    return struct.Struct(">" + "QI8x" * count).unpack


class Run(NamedTuple):
    """Records that one read gives, in the order of their queue."""

    log: CommitLog
    segment: Segment
    places: tuple[int, ...]
    sizes: tuple[int, ...]
    size: int
    """Of all of them."""
    is_joined: bool
    """Whether each begins where the one before it ends, as those of a batch do."""

    def is_cached(self) -> bool:
        """Whether they can be looked at without a wait for the disk."""
        places, sizes = self.places, self.sizes
        return self.log.is_cached(((places[0], sizes[0]), (places[-1], sizes[-1])))

    def slices(self) -> list[memoryview]:
        """Of the mapped file, one for each record."""
        base, view = self.segment.base, self.segment.file.view()
        return [view[(at := place - base) : at + size] for place, size in zip(self.places, self.sizes, strict=True)]

    def pieces(self) -> list[memoryview]:
        """The same bytes, in one piece when that is possible."""
        if not self.is_joined:
            return self.slices()
        at = self.places[0] - self.segment.base
        return [self.segment.file.view()[at : at + self.size]]


def straight_run(log: CommitLog, entries: bytes, bytes_max: int, memory_bytes_max: int) -> Run | None:
    """The records of `entries`, or as many of them as `bytes_max` lets be given, when all of these are there."""
    if not entries:
        return None
    fields = _unpacker(len(entries) // ENTRY_BYTES)(entries)
    places, sizes = fields[::2], fields[1::2]
    size = sum(sizes)
    if size > bytes_max:
        count = _fitting(sizes, bytes_max)
        if not count:
            return None
        places, sizes = places[:count], sizes[:count]
        size = sum(sizes)
    first, log_end = places[0], log.max_offset
    segment = log.segments.find(first)
    if segment is None or log_end - first > memory_bytes_max:
        return None
    # Offsets within a queue grow. If they do not, or if a size is 0, an entry is damaged, or another writer's.
    is_joined = _follow_each_other(places, sizes, size)
    if not all(sizes) or not (is_joined or list(places) == sorted(places)):
        return None
    # Far from the end, where even all bytes would fit behind the last offset, nobody has to look where each one ends.
    limit = min(segment.end, log_end)
    if places[-1] + size > limit and max(map(add, places, sizes)) > limit:
        return None
    return Run(log, segment, places, sizes, size, is_joined)


def _follow_each_other(places: tuple[int, ...], sizes: tuple[int, ...], size: int) -> bool:
    """Where the last one ends nearly always tells that they do not. Those that do need no look whether they grow."""
    first = places[0]
    return first + size == places[-1] + sizes[-1] and (*accumulate(sizes[:-1], initial=first),) == places


def _fitting(sizes: Sequence[int], bytes_max: int) -> int:
    """How many of the first records fit. None, when one has a size that no record has: the general way knows more."""
    return 0 if max(sizes) > RECORD_BYTES_MAX else bisect_right([*accumulate(sizes)], bytes_max)
