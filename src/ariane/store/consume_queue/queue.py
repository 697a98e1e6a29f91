"""One queue of a topic: for each message, in order, where its record is. See queue_entry.py for the bytes.

    files                                        memory                          of all queues (new_entries.py)
    |---------------------------------------|    |..................|-------|    - --- - -- -- -
    ^ first file        ^ min_offset        ^    ^ tail             ^ written                  ^ max_offset

An append only adds to memory, so it is visible at once and costs no system call. `write`, on a tick, moves the new
entries to the files and keeps the last few in memory, where the readers are that wait for more. What a crash takes is
read again from the commit log, and comes back through `append_at`.
"""

import logging
from bisect import bisect_left, bisect_right
from typing import NamedTuple

import numpy as np

from ariane.errors import StoreCorrupt
from ariane.store.blocking_io import IoSteps, run_sync
from ariane.store.consume_queue.entry import ENTRY, ENTRY_BYTES, FILLER
from ariane.store.consume_queue.files import QueueFiles
from ariane.store.consume_queue.new_entries import NewEntries, pack_numbered
from ariane.store.consume_queue.scan import ENTRY_TYPE
from ariane.store.disk import PendingSync

# --- queue_recovery ---
#
# Where the entries of a consume queue end, found from its files alone.
#
# Apache takes every entry with an offset and a size for valid, and when it cuts a queue it leaves the bytes behind the
# cut in place. New entries overwrite them one by one, and a crash meanwhile shows the rest again, valid by themselves:
#
#     | 1000 | 1200 | 1400 | 5000 | 5300 | 1800 | 2000 | 0 ...
#                      new entries ^^^^^   ^^^^ stale: it points back
#
# So here entries must also ascend: each record lies behind the one before it, or is the same again, which is how a
# queue passes over records that its log has lost.

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
    """Walks the last three files, as Apache does, and files before them only as long as it finds no entry."""
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
    """How many entries from the start of `chunk` are valid behind `last`, and the last of them."""
    entries = np.frombuffer(chunk, ENTRY_TYPE)
    physical = entries["offset"].astype(np.int64)
    size = entries["size"].astype(np.int64)
    is_filler = (physical == 0) & (size == _FILLER_SIZE)
    end = physical + np.where(is_filler, 0, size)
    physical_before = np.concatenate(([last.physical], physical[:-1]))
    end_before = np.concatenate(([last.end], end[:-1]))
    is_behind = (physical >= end_before) | ((physical == physical_before) & (end == end_before))
    is_valid = (physical >= 0) & (size > 0) & (end >= physical) & is_behind  # a sum past 2^63 wraps around
    count = len(entries) if is_valid.all() else int(is_valid.argmin())
    return count, LastRecord(int(physical[count - 1]), int(end[count - 1])) if count else last


# ---

log = logging.getLogger(__name__)

KEPT_ENTRIES = 100
"""How many of the entries that were written last stay in memory, at most: 2 KB, three pulls of 32."""

_pack = ENTRY.pack
_PHYSICAL_MAX = 2**63 - 1


class ConsumeQueue:
    """For one thread. Offsets are numbers of entries; `recover` comes first when there are files.

    The public attributes are for reading; only a run of records changes `max_offset`, for numbers that it takes and may
    have to give back (append_run.py). They are no properties because every append and every pull looks at them.
    """

    __slots__ = (
        "_end_physical", "_files", "_new", "_packed", "_tail_offset", "_written",
        "max_offset", "min_offset", "number", "queue_id", "tail", "topic", "topic_part",
    )  # fmt: skip

    def __init__(
        self, topic: str, queue_id: int, files: QueueFiles, new: "NewEntries[ConsumeQueue]", topic_part: bytes
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.topic_part = topic_part
        """The topic as records hold it, behind its length."""
        self._files = files
        self._new = new
        self._packed = new.packed
        self.number = new.register(self)
        """What its new entries are marked with."""
        self.tail = bytearray()
        """The last entries but those that `new` still has."""
        self._begin(0)

    def _begin(self, offset: int) -> None:
        """Empty, the next entry at `offset`."""
        self.tail.clear()
        self._tail_offset = self._written = offset
        self._end_physical = 0  # of the last entry in the files, for when the tail has none
        self.min_offset = offset
        """The first entry whose record is still there."""
        self.max_offset = offset
        """Where the next entry will be."""

    def _collect_new(self) -> None:
        """So that the tail has all entries up to `max_offset`: before anything but an append."""
        if self._packed:
            self._new.distribute()

    @property
    def max_physical(self) -> int:
        """Where the record of the last entry ends, 0 when there is no entry."""
        self._collect_new()
        tail = self.tail
        if not tail:
            return self._end_physical
        physical, size, _ = ENTRY.unpack_from(tail, len(tail) - ENTRY_BYTES)
        return int(physical + size)

    # --- appending --------------------------------------------------------------------------------------------------

    def append(self, physical_offset: int, size: int, tags_code: int) -> int:
        """The queue offset of the new entry; no checks, no I/O. The loop in append_run.py does the same in a line."""
        self._packed += pack_numbered(self.number, physical_offset, size, tags_code)
        offset = self.max_offset
        self.max_offset = offset + 1
        return offset

    def append_packed(self, entries: bytes | bytearray, count: int) -> int:
        """Many at once, back to back. The offset of the first one."""
        assert len(entries) == count * ENTRY_BYTES
        offset = self.max_offset
        if count:
            self._collect_new()
            self.tail += entries
            self._new.dirty.add(self)
            self._new.distributed += count
            self.max_offset = offset + count
        return offset

    def append_at(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> bool:
        """An entry read from the log, for the offset that its record names; whether it was taken.

        The log may be read again from any point, so an entry that is here already is passed over. Otherwise the record
        is right and the queue gives way:

        * A queue without entries begins at `queue_offset`, with fillers before it in its first file.
        * Offset 0 once more: the topic was deleted and made anew, as the queue is now.
        * Another offset below the end: the record's number is wrong. It is passed over, as Apache does it.
        * A gap: the log has lost records. So that every entry stands at its offset, the missing ones point to the next
          record there is. Apache moves up instead, and every later message has another offset than it says. A gap of
          more than a file is no gap but damage: StoreCorrupt.
        """
        if physical_offset + size <= self.max_physical:
            return False
        if queue_offset != self.max_offset and not self._reconcile_offset(
            queue_offset, physical_offset, size, tags_code
        ):
            return False
        self.tail += _pack(physical_offset, size, tags_code)
        self.max_offset = queue_offset + 1
        self._new.dirty.add(self)
        return True

    def _reconcile_offset(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> bool:
        facts = {"topic": self.topic, "queue": self.queue_id, "offset": queue_offset, "end": self.max_offset}
        if queue_offset == 0 or (self.max_physical == 0 and queue_offset > 0):
            if self.max_physical:
                log.warning("queue begins anew: its topic was deleted and made again", extra=facts)
            if self._files:
                self._files.destroy()
            self._begin(queue_offset)
            return True
        if 0 < queue_offset < self.max_offset:
            log.error("entry passed over: the queue is already past its offset", extra=facts)
            return False
        missing = queue_offset - self.max_offset
        if not 0 < missing <= self._files.segment_bytes // ENTRY_BYTES:
            raise StoreCorrupt(
                f"queue {self.queue_id} of topic {self.topic} ends at {self.max_offset}, and the record at physical "
                f"offset {physical_offset} says that it is number {queue_offset}: one of them is damaged. Restore the "
                f"commit log from a copy or a replica, or move {self._files.directory} away to begin at that number"
            )
        log.error("entries are missing: they will point to the next record", extra=facts)
        self.append_packed(_pack(physical_offset, size, tags_code) * missing, missing)
        return True

    # --- reading ----------------------------------------------------------------------------------------------------

    def entries(self, offset: int, count: int) -> bytes:
        """Whole entries from `offset` on, at most `count`; none when `offset` is not inside the queue."""
        end = min(offset + count, self.max_offset)
        return self._read(offset, end) if self.min_offset <= offset < end else b""

    def cached_entries(self, offset: int, count: int) -> bytes | None:
        """The same, if that does not wait for the disk; None when it might."""
        end, tail_offset = min(offset + count, self.max_offset), self._tail_offset
        if offset >= tail_offset or not self.min_offset <= offset < end:
            return self.entries(offset, count)
        from_file = min(end, tail_offset)
        found = self._files.read_cached(offset * ENTRY_BYTES, (from_file - offset) * ENTRY_BYTES)
        return found if found is None or from_file == end else found + self._read(from_file, end)

    def warm(self, offset: int, count: int = 1) -> IoSteps[None]:
        """So that `entries` does not wait for the disk (cold_reads.py)."""
        end = min(offset + count, self._tail_offset)
        if self.min_offset <= offset < end:
            yield from self._files.warm(offset * ENTRY_BYTES, (end - offset) * ENTRY_BYTES)

    def write_position(self) -> tuple[str, int] | None:
        """The file, and where in it, that the next entry is written to; None when that file is still to be made."""
        files, position = self._files, self._written * ENTRY_BYTES
        at = position % files.segment_bytes
        return (files.path(position - at), at) if files.base <= position < files.end else None

    @property
    def is_write_position_cached(self) -> bool:
        """Whether that write would not wait for the disk. Of a file that is made for it nothing is read."""
        return self.write_position() is None or self._files.read_cached(self._written * ENTRY_BYTES, 1) is not None

    def physical_offset_steps(self, offset: int) -> IoSteps[int | None]:
        """Where the record of the entry at `offset` is; None when the queue has no such entry."""
        yield from self.warm(offset)
        entry = self.entries(offset, 1)
        return int(ENTRY.unpack(entry)[0]) if entry else None

    def _read(self, offset: int, end: int) -> bytes:
        self._collect_new()
        tail_offset = self._tail_offset
        if offset >= tail_offset:
            return bytes(self.tail[(offset - tail_offset) * ENTRY_BYTES : (end - tail_offset) * ENTRY_BYTES])
        if end <= tail_offset:
            return self._files.read(offset * ENTRY_BYTES, (end - offset) * ENTRY_BYTES)
        return self._read(offset, tail_offset) + self._read(tail_offset, end)

    def _end_at(self, offset: int) -> int:
        """Where the record of an entry ends: for a filler before all, where there is no entry behind all."""
        entry = self._read(offset, offset + 1)
        if entry == FILLER:
            return 0
        physical, size, _ = ENTRY.unpack(entry)
        return physical + size if size > 0 else _PHYSICAL_MAX

    def _is_entry(self, offset: int) -> bool:
        return self._read(offset, offset + 1) != FILLER

    @property
    def _first(self) -> int:
        """The first offset that has a place, be it a filler's."""
        return self._files.base // ENTRY_BYTES if self._files else self._tail_offset

    # --- files ------------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Moves new entries to the files. StoreFull when it fails: nothing is lost, and the next call tries again."""
        self._collect_new()
        written, end, tail_offset = self._written, self.max_offset, self._tail_offset
        if written < end:
            self._files.write(written * ENTRY_BYTES, self.tail[(written - tail_offset) * ENTRY_BYTES :])
            self._written = end
            kept_from = max(written, end - KEPT_ENTRIES)
            del self.tail[: (kept_from - tail_offset) * ENTRY_BYTES]
            self._tail_offset = kept_from
        self._new.dirty.discard(self)

    def take_unsynced(self) -> list[PendingSync]:
        """What a thread has to sync so that everything written until now is durable."""
        return self._files.take_unsynced()

    def mark_unsynced_from(self, physical: int) -> None:
        """After a crash of the process: entries for records that end behind `physical` may not be durable."""
        if self._files and self.max_physical > physical:
            first = self._first
            end = first + bisect_right(range(first, self._written), physical, key=self._end_at)
            self._files.mark_unsynced_from(end * ENTRY_BYTES)
        elif self._files:
            self._files.mark_unsynced_from(None)

    def recover(self) -> None:
        """Finds the end of the entries in the files and removes whatever stands behind it."""
        end = find_end(self._files)
        self._files.drop_from(end.position)
        self._files.zero_from(end.position)
        self._begin(end.position // ENTRY_BYTES)
        self._end_physical = end.last.end
        self.min_offset = self._first
        if self.min_offset < self.max_offset and not self._is_entry(self.min_offset):
            self.min_offset += bisect_left(range(self.min_offset, self.max_offset), True, key=self._is_entry)

    def truncate(self, physical: int) -> None:
        """The log ends at `physical` now: drops the entries of records that do not end there or before."""
        if self.max_physical <= physical:
            return
        first = self._first
        end = first + bisect_right(range(first, self.max_offset), physical, key=self._end_at)
        if end < self._written:
            self._files.drop_from(end * ENTRY_BYTES)
            self._files.zero_from(end * ENTRY_BYTES)
        if end == first:
            self._begin(end)
            return
        self._written = min(self._written, end)
        self._tail_offset = min(self._tail_offset, end)
        del self.tail[(end - self._tail_offset) * ENTRY_BYTES :]
        self.max_offset = end
        self.min_offset = min(self.min_offset, end)
        self._end_physical = self._end_at(end - 1)

    def correct_min(self, log_min: int) -> None:
        """The log begins at `log_min` now: entries that point below it count no more."""
        run_sync(self._correct_min_steps(log_min))

    def _correct_min_steps(self, log_min: int) -> IoSteps[None]:
        """Looks at the first entry, then halves what is left: nobody has read these for days."""
        low, high, middle = self.min_offset, self.max_offset, self.min_offset
        while low < high:
            physical = yield from self.physical_offset_steps(middle)
            if physical is None:  # the queue was deleted meanwhile
                return
            if physical < log_min:
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
        self.min_offset = low

    def drop_before(self, log_min: int) -> int:
        """Like `correct_min`, and removes the files whose entries all count no more, but never the last; how many."""
        return run_sync(self.drop_before_steps(log_min))

    def drop_before_steps(self, log_min: int) -> IoSteps[int]:
        """The same step by step."""
        yield from self._correct_min_steps(log_min)
        return (yield from self._files.drop_before(self.min_offset * ENTRY_BYTES))

    def destroy(self) -> None:
        """Removes the files; the queue is as new."""
        self._collect_new()
        self._files.destroy()
        self._begin(0)
        self._new.dirty.discard(self)

    def unregister(self) -> None:
        """For good, after `destroy`: another queue may have its number."""
        self._new.unregister(self.number)
