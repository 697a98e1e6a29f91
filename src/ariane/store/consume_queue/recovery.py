"""Where the entries of a consume queue end, found from its files alone, and whether they are those of the log.

For a store without a saved state, as Apache's.

Apache takes every entry with an offset and a size for valid, and when it truncates a queue it leaves the bytes after
the cut in place. New entries overwrite them one by one, and a crash meanwhile exposes the rest again, each valid by
itself:

    | 1000 | 1200 | 1400 | 5000 | 5300 | 1800 | 2000 | 0 ...
                     new entries ^^^^^   ^^^^ stale: it points back

So here entries must also ascend: each record lies after the one before it, or is the same again, which is how a queue
skips records that its log has lost.
"""

from typing import NamedTuple, Protocol

import numpy as np

from ariane.model.system_topics import SCHEDULE
from ariane.store.consume_queue.entry import ENTRY, ENTRY_BYTES, FILLER, extension_offset
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


# --- comparison with the log ------------------------------------------------------------------------------------------


class _Queue(Protocol):
    @property
    def topic(self) -> str: ...

    def compared_chunk(self, offset: int, count: int) -> bytes: ...


class ComparedEntries:
    """The entries of a queue in chunks, to be compared with all records of the log, in their order."""

    __slots__ = ("_chunk", "_chunk_offset", "end", "has_records", "problem")

    def __init__(self) -> None:
        self._chunk = b""
        self._chunk_offset = 0
        self.end = 0
        """After the entry of the last record seen."""
        self.has_records = False
        self.problem: str | None = None

    def forget_chunk(self) -> None:
        """The queue has changed."""
        self._chunk = b""

    def matches(self, queue: _Queue, offset: int, physical: int, size: int, tags_code: int) -> bool:
        at = (offset - self._chunk_offset) * ENTRY_BYTES
        if not 0 <= at < len(self._chunk):
            self._chunk, self._chunk_offset, at = queue.compared_chunk(offset, _CHUNK_ENTRIES_MIN), offset, 0
        found_physical, found_size, found_tags = ENTRY.unpack_from(self._chunk, at)
        if found_physical != physical or found_size != size:
            return False
        # An address in consumequeue_ext, or a delivery time, which depends on the delay levels of that day.
        return bool(found_tags == tags_code or extension_offset(found_tags) is not None or queue.topic == SCHEDULE)
