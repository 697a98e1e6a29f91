"""What nearly every pull finds: all entries count, and all of their records are in one file and in memory.

The general way (query.py) looks at each entry. Here all of them are unpacked by one call and looked at together, by
functions that run in C: 13 us for 32 records against 19. Whatever is not so simple is None, and left to that way.
"""

import struct
from operator import add
from typing import NamedTuple

from ariane.store.commit_log import CommitLog
from ariane.store.queue_entry import ENTRY_BYTES
from ariane.store.segments import Segment

COUNT_MAX = 32
_unpackers = [struct.Struct(">" + "QI8x" * count).unpack for count in range(COUNT_MAX + 1)]
"""By number of entries: their physical offsets and sizes in turn, the tags codes left out. Both are read as unsigned:
what is below zero becomes far too large, and needs no look of its own."""


class Run(NamedTuple):
    """Records that one read gives, in the order of their queue."""

    log: CommitLog
    segment: Segment
    places: tuple[int, ...]
    sizes: tuple[int, ...]
    size: int
    """Of all of them."""

    def is_cached(self) -> bool:
        """Whether they can be looked at without a wait for the disk."""
        places, sizes = self.places, self.sizes
        return self.log.is_cached(((places[0], sizes[0]), (places[-1], sizes[-1])))

    def slices(self) -> list[memoryview]:
        """Of the mapped file, one for each record."""
        base, view = self.segment.base, self.segment.file.view()
        return [view[(at := place - base) : at + size] for place, size in zip(self.places, self.sizes, strict=True)]

    def pieces(self) -> list[memoryview]:
        """The same bytes in one piece when the records follow each other, as those of a batch do."""
        places, first = self.places, self.places[0]
        if first + self.size == places[-1] + self.sizes[-1] and places[1:] == (*map(add, places, self.sizes),)[:-1]:
            at = first - self.segment.base
            return [self.segment.file.view()[at : at + self.size]]
        return self.slices()


def straight_run(log: CommitLog, entries: bytes, bytes_max: int, memory_bytes_max: int) -> Run | None:
    """The records of `entries`, when all of them are there and may be given at once."""
    count = len(entries) // ENTRY_BYTES
    if not 0 < count <= COUNT_MAX:
        return None
    fields = _unpackers[count](entries)
    places, sizes = fields[::2], fields[1::2]
    first, size, log_end = places[0], sum(sizes), log.max_offset
    segment = log.segments.find(first)
    if segment is None or size > bytes_max or log_end - first > memory_bytes_max:
        return None
    # Offsets within a queue grow. If they do not, or if a size is 0, an entry is damaged, or another writer's.
    if list(places) != sorted(places) or not all(sizes):
        return None
    # Far from the end, where even all bytes would fit behind the last offset, nobody has to look where each one ends.
    limit = min(segment.end, log_end)
    if places[-1] + size > limit and max(map(add, places, sizes)) > limit:
        return None
    return Run(log, segment, places, sizes, size)
