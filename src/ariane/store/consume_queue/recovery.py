"""Where the entries of a consume queue end, found from its files alone: for a store without a saved state, as Apache's.

Apache takes every entry with an offset and a size for valid, and when it truncates a queue it leaves the bytes after
the cut in place. New entries overwrite them one by one, and a crash meanwhile exposes the rest again, each valid by
itself:

    | 1000 | 1200 | 1400 | 5000 | 5300 | 1800 | 2000 | 0 ...
                     new entries ^^^^^   ^^^^ stale: it points back

So here entries must also ascend: each record lies after the one before it, or is the same again, which is how a queue
skips records that its log has lost.
"""

from typing import NamedTuple

import numpy as np

from ariane.store.consume_queue.entry import ENTRY, ENTRY_BYTES, FILLER
from ariane.store.consume_queue.files import QueueFiles
from ariane.store.consume_queue.scan import ENTRY_TYPE

FILES_SCANNED = 3
_CHUNK_ENTRIES_MIN = 200  # one page: most queues are short
_CHUNK_ENTRIES_MAX = 16_384
_FILLER_SIZE = ENTRY.unpack(FILLER)[1]


class LastRecord(NamedTuple):
    """The record that the last entry points to; all zero while there is none, or a filler."""

    physical: int = 0
    end: int = 0


class QueueEnd(NamedTuple):
    position: int
    last: LastRecord


def find_end(files: QueueFiles) -> QueueEnd:
    """Scans the last three files, as Apache does, and files before them only as long as it finds no entry."""
    start = max(files.base, files.end - FILES_SCANNED * files.segment_bytes)
    while True:
        end = _walk(files, start)
        if end.position > start or start == files.base:
            return end
        start -= files.segment_bytes


def _walk(files: QueueFiles, position: int) -> QueueEnd:
    last, entries = LastRecord(), _CHUNK_ENTRIES_MIN
    while position < files.end:
        chunk = files.read(position, min(entries * ENTRY_BYTES, files.end - position))
        count, last = ascending(chunk, last)
        position += count * ENTRY_BYTES
        if count * ENTRY_BYTES < len(chunk):
            break
        entries = min(entries * 4, _CHUNK_ENTRIES_MAX)
    return QueueEnd(position, last)


def ascending(chunk: bytes, last: LastRecord) -> tuple[int, LastRecord]:
    """How many entries from the start of `chunk` are valid after `last`, and the last of them."""
    entries = np.frombuffer(chunk, ENTRY_TYPE)
    physical = entries["offset"].astype(np.int64)
    size = entries["size"].astype(np.int64)
    is_filler = (physical == 0) & (size == _FILLER_SIZE)
    end = physical + np.where(is_filler, 0, size)
    physical_before = np.concatenate(([last.physical], physical[:-1]))
    end_before = np.concatenate(([last.end], end[:-1]))
    is_behind = (physical >= end_before) | ((physical == physical_before) & (end == end_before))
    is_valid = (physical >= 0) & (size > 0) & (end >= physical) & is_behind  # an end past 2^63 wraps around
    count = len(entries) if is_valid.all() else int(is_valid.argmin())
    return count, LastRecord(int(physical[count - 1]), int(end[count - 1])) if count else last
