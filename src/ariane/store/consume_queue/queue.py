"""A consume queue: the record locations of one queue of a topic, in order. See consume_queue/entry.py for the bytes.

    files                                        memory                          of all queues (new_entries.py)
    |---------------------------------------|    |..................|-------|    - --- - -- -- -
    ^ first file        ^ min_offset        ^    ^ tail             ^ written                  ^ max_offset

Readers see the entries before `visible_end`. That is `max_offset`, unless a gate (gate.py) holds entries back until
their records are confirmed.

An append only adds to memory, so it is visible at once and costs no system call. `write`, on a timer, moves the new
entries to the files and keeps the last few in memory, where most consumers read. What a crash loses is read again from
the commit log, and restored by `append_at`.

What the files must hold is known from the last checkpoint (`restore`). Without it, as in a store of Apache, recovery
finds the end of the entries from the files alone (recovery.py), and then compares each entry with the log (`compare`).
"""

import logging
from bisect import bisect_left, bisect_right

from ariane.errors import StoreCorrupt
from ariane.store.blocking_io import IoSteps, run_sync
from ariane.store.consume_queue.entry import ENTRY, ENTRY_BYTES, FILLER
from ariane.store.consume_queue.files import QueueFiles
from ariane.store.consume_queue.new_entries import NewEntries, pack_numbered
from ariane.store.consume_queue.recovery import ComparedEntries, find_end
from ariane.store.consume_queue.saved_state import QueueState, encode_queue
from ariane.store.disk import PendingSync
from ariane.store.index.entries import topic_hash

log = logging.getLogger(__name__)

KEPT_ENTRIES = 100
"""Most entries kept in memory after they were written: 2 KB, three pulls of 32."""

_pack = ENTRY.pack
_PHYSICAL_MAX = 2**63 - 1


class ConsumeQueue:
    """For one thread. Offsets are numbers of entries; call `recover` first when there are files.

    The public attributes are read-only; only the append path changes `max_offset`, for offsets that it takes and may
    have to give back (append/appender.py). They are not properties because every append and every pull reads them.
    """

    __slots__ = (
        "_compared", "_end_physical", "_files", "_new", "_packed", "_tail_offset", "_written",
        "max_offset", "min_offset", "number", "queue_id", "tail", "topic", "topic_hash", "topic_part",
    )  # fmt: skip
    visible_end: int
    """Where readers find the end of the queue."""

    def __init__(
        self, topic: str, queue_id: int, files: QueueFiles, new: "NewEntries[ConsumeQueue]", topic_part: bytes
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.topic_part = topic_part
        """The topic as in records, after its length byte."""
        self.topic_hash = topic_hash(topic)
        """For the keys of its messages in the index."""
        self._files = files
        self._new = new
        self._packed = new.packed
        self.number = new.register(self)
        """Identifies its entries in the common buffer."""
        self.tail = bytearray()
        """The last entries, except those that are still in `new`."""
        self._compared: ComparedEntries | None = None
        self._begin(0)

    def _begin(self, offset: int) -> None:
        """Makes the queue empty, with the next entry at `offset`."""
        self.tail.clear()
        self._tail_offset = self._written = offset
        self._end_physical = 0  # of the last entry in the files, used when the tail is empty
        self.min_offset = offset
        """The first entry whose record is still in the log."""
        self.max_offset = offset
        """Offset of the next entry."""

    def _collect_new(self) -> None:
        """Moves buffered entries to the tail, which then reaches `max_offset`; needed before anything but an append."""
        if self._packed:
            self._new.distribute()

    @property
    def max_physical(self) -> int:
        """End of the last entry's record, 0 when there is no entry."""
        self._collect_new()
        tail = self.tail
        if not tail:
            return self._end_physical
        physical, size, _ = ENTRY.unpack_from(tail, len(tail) - ENTRY_BYTES)
        return int(physical + size)

    # --- appending --------------------------------------------------------------------------------------------------

    def append(self, physical_offset: int, size: int, tags_code: int) -> int:
        """The queue offset of the new entry; no checks, no I/O. append/appender.py inlines this."""
        self._packed += pack_numbered(self.number, physical_offset, size, tags_code)
        offset = self.max_offset
        self.max_offset = offset + 1
        return offset

    def append_packed(self, entries: bytes | bytearray, count: int) -> int:
        """Appends packed entries; returns the offset of the first one."""
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
        """Adds an entry read from the log at the queue offset of its record; whether it was added.

        The log may be read again from any point, so an entry that exists already is skipped. Otherwise the record is
        right and the queue is adapted:

        * A queue without entries begins at `queue_offset`, with fillers before it in its first file.
        * Offset 0 again: the topic was deleted and created again, and so is the queue.
        * Another offset below the end: the record's queue offset is wrong. It is skipped, as Apache does it.
        * A gap: the log has lost records. So that every entry stays at its offset, the missing ones point to the next
          existing record. Apache closes the gap instead, and every later message has an offset other than its own. A
          gap of more than one file is damage: StoreCorrupt.
        """
        if self._compared is not None and self._is_as_compared(queue_offset, physical_offset, size, tags_code):
            return False
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
                log.warning("queue begins anew: its topic was deleted and created again", extra=facts)
            if self._files:
                self._files.destroy()
            self._begin(queue_offset)
            return True
        if 0 < queue_offset < self.max_offset:
            log.error("entry skipped: the queue is already past its offset", extra=facts)
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
        """Whole entries from `offset` on, at most `count`; none when `offset` is not inside what readers may see."""
        end = min(offset + count, self.visible_end)
        return self._read(offset, end) if self.min_offset <= offset < end else b""

    def stored_entries(self, offset: int, count: int) -> bytes:
        """The same, with what a gate holds back: for the broker's own queues, never for a client."""
        end = min(offset + count, self.max_offset)
        return self._read(offset, end) if self.min_offset <= offset < end else b""

    def compared_chunk(self, offset: int, count: int) -> bytes:
        """As `entries`, from the first file on."""
        return self._read(offset, min(offset + count, self.max_offset))

    def has_entry(self, offset: int, physical: int) -> bool:
        """Whether the entry at `offset` points to the record at `physical`."""
        return self._first <= offset < self.max_offset and ENTRY.unpack(self._read(offset, offset + 1))[0] == physical

    def cached_entries(self, offset: int, count: int) -> bytes | None:
        """The same if it does not block; None if it might."""
        end, tail_offset = min(offset + count, self.visible_end), self._tail_offset
        if offset >= tail_offset or not self.min_offset <= offset < end:
            return self.entries(offset, count)
        from_file = min(end, tail_offset)
        cached = self._files.read_cached(offset * ENTRY_BYTES, (from_file - offset) * ENTRY_BYTES)
        return cached if cached is None or from_file == end else cached + self._read(from_file, end)

    def warm(self, offset: int, count: int = 1) -> IoSteps[None]:
        """Caches what `entries` needs (store/blocking_io.py)."""
        end = min(offset + count, self._tail_offset)
        if self.min_offset <= offset < end:
            yield from self._files.warm(offset * ENTRY_BYTES, (end - offset) * ENTRY_BYTES)

    def write_position(self) -> tuple[str, int] | None:
        """File and position of the next write; None when that file does not exist yet."""
        files, position = self._files, self._written * ENTRY_BYTES
        at = position % files.segment_bytes
        return (files.path(position - at), at) if files.base <= position < files.end else None

    @property
    def is_write_position_cached(self) -> bool:
        """Whether the next write does not block. For a new file nothing has to be read."""
        return self.write_position() is None or self._files.read_cached(self._written * ENTRY_BYTES, 1) is not None

    def physical_offset_steps(self, offset: int) -> IoSteps[int | None]:
        """The physical offset of the entry at `offset`; None when readers see no such entry."""
        yield from self.warm(offset)
        entry = self.entries(offset, 1)
        return int(ENTRY.unpack(entry)[0]) if entry else None

    def confirmed_end(self, low: int, high: int, physical: int) -> int:
        """The first offset from `low` to before `high` whose record ends after `physical`; `high` when there is none.

        Looks from `high` backwards, where it mostly is; may block, for entries that are not in the page cache."""
        step = 1
        while high - step > low and self._end_at(high - step) > physical:
            step *= 2
        low = max(low, high - step)
        return low + bisect_right(range(low, high), physical, key=self._end_at)

    def _read(self, offset: int, end: int) -> bytes:
        self._collect_new()
        tail_offset = self._tail_offset
        if offset >= tail_offset:
            return bytes(self.tail[(offset - tail_offset) * ENTRY_BYTES : (end - tail_offset) * ENTRY_BYTES])
        if end <= tail_offset:
            return self._files.read(offset * ENTRY_BYTES, (end - offset) * ENTRY_BYTES)
        return self._read(offset, tail_offset) + self._read(tail_offset, end)

    def _end_at(self, offset: int) -> int:
        """End of an entry's record: 0 for a filler, the largest offset where no entry was written."""
        entry = self._read(offset, offset + 1)
        if entry == FILLER:
            return 0
        physical, size, _ = ENTRY.unpack(entry)
        return physical + size if size > 0 else _PHYSICAL_MAX

    def _is_entry(self, offset: int) -> bool:
        return self._read(offset, offset + 1) != FILLER

    @property
    def _first(self) -> int:
        """The first offset in the files, fillers included."""
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
            self._new.changed.add(self)
        self._new.dirty.discard(self)

    def take_unsynced(self) -> list[PendingSync]:
        """What a thread has to sync so that everything written up to now is durable."""
        return self._files.take_unsynced()

    def mark_unsynced_from(self, physical: int) -> None:
        """After a crash of the process: entries of records that end after `physical` may not be durable."""
        if self._files and self.max_physical > physical:
            first = self._first
            end = first + bisect_right(range(first, self._written), physical, key=self._end_at)
            self._files.mark_unsynced_from(end * ENTRY_BYTES)
        elif self._files:
            self._files.mark_unsynced_from(None)

    def recover(self) -> None:
        """Finds the end of the entries in the files and removes everything after it."""
        if not self._files:
            self._files.remove_unusable()
            self._begin(0)
            return
        end = find_end(self._files)
        self._files.checksum_existing(end.position)
        if self._open_at(end.position, end.last.end) and self._files.problem is None:
            self._files.problem = f"bytes behind entry {self.max_offset} are not those of an entry"

    def _open_at(self, position: int, last_end: int) -> bool:
        """The files hold the queue up to `position`; `last_end` is the end of the last entry's record. Whether there
        was more."""
        self._files.remove_unusable()
        was_more = self._files.cut(position)
        self._begin(position // ENTRY_BYTES)
        self._end_physical = last_end
        self._new.changed.add(self)
        self.min_offset = self._first
        if self.min_offset < self.max_offset and not self._is_entry(self.min_offset):
            self.min_offset += bisect_left(range(self.min_offset, self.max_offset), True, key=self._is_entry)
        return was_more

    def restore(self, state: QueueState, log_begin: int) -> int | None:
        """Opens the files as a checkpoint left them. None when they are complete; else the physical offset from which
        the log must be read again: the queue then ends, for now, before the first missing or damaged block."""
        files, checksums = self._files, state.checksums
        end, needed_from = checksums.end, checksums.first_needed(log_begin, state.last_end)
        needed_physical = checksums.first_physical(needed_from) if needed_from < end else 0
        sound_to = files.restore(checksums, needed_from)
        if files and sound_to == end:
            self._open_at(end, state.last_end)
            return None
        if needed_from == end:  # no record of the queue is left in the log: only its end has to be kept
            self._begin_anew()
            self.extend_to(end // ENTRY_BYTES)
            return None
        if files and sound_to > needed_from and (physical := checksums.first_physical(sound_to)) > log_begin:
            self._open_at(sound_to, self._end_before(sound_to))
            return physical
        self._begin_anew()
        return needed_physical

    def _end_before(self, position: int) -> int:
        """End of the record of the last entry before a position in the files."""
        entry = self._files.read(position - ENTRY_BYTES, ENTRY_BYTES)
        return 0 if entry == FILLER else sum(ENTRY.unpack(entry)[:2])

    def _begin_anew(self) -> None:
        self._files.remove_unusable()
        if self._files:
            self._files.destroy()
        self._begin(0)
        self._new.changed.add(self)

    def extend_to(self, offset: int) -> None:
        """Moves the end of the queue to `offset`, where it was before its files were lost: no offset is used twice.

        Entries whose records the log does not have any more point to the last record.
        """
        missing = offset - self.max_offset
        if missing <= 0:
            return
        if self.max_physical == 0:
            self._begin_anew()
            self._begin(offset)
            self._files.create_at(offset * ENTRY_BYTES)
            return
        self.append_packed(self._read(self.max_offset - 1, self.max_offset) * missing, missing)

    # --- a store without a saved state ------------------------------------------------------------------------------

    def compare(self) -> None:
        """From now on each record given to `append_at` is compared with the entry that the files have for it."""
        self._compared = ComparedEntries()

    def compared(self) -> str | None:
        """Ends the comparison: removes entries without a record. What was wrong with the queue, None for nothing."""
        compared, self._compared = self._compared, None
        if compared is None:
            return None
        if compared.has_records and compared.end < self.max_offset:
            self._cut_to(compared.end)
            compared.problem = compared.problem or f"entries from {compared.end} on have no record"
        return self._files.problem or compared.problem

    def _is_as_compared(self, queue_offset: int, physical: int, size: int, tags_code: int) -> bool:
        """Whether the queue has this entry. If it has another one, the queue is cut there."""
        compared = self._compared
        assert compared is not None
        is_first, compared.has_records = not compared.has_records, True
        compared.end = queue_offset + 1
        if queue_offset >= self.max_offset:
            if is_first and queue_offset > self.max_offset > 0:  # old files: the log has none of their records any more
                compared.problem = f"it ends at {self.max_offset}, before its first record, {queue_offset}"
                self._begin_anew()
            return False
        if queue_offset >= self._first and compared.matches(self, queue_offset, physical, size, tags_code):
            return True
        compared.problem = compared.problem or f"entry {queue_offset} is not that of its record at {physical}"
        compared.forget_chunk()
        self._cut_to(queue_offset)
        return False

    def _cut_to(self, offset: int) -> None:
        """Removes the entries from `offset` on."""
        self.write()
        if offset <= self._first:
            self._begin_anew()
        else:
            self._open_at(offset * ENTRY_BYTES, self._end_before(offset * ENTRY_BYTES))

    def encoded_state(self) -> bytes | None:
        """What the files hold, for the next start; None when there are none. All entries must be written."""
        if not self._files:
            return None
        return encode_queue(self.topic, self.queue_id, self._files.checksums, self.max_physical)

    def block_bounds(self, offset: int) -> tuple[int, int | None]:
        """Where the log has the records of the block of entries that holds `offset`: up to None for the last block."""
        checksums, position = self._files.checksums, offset * ENTRY_BYTES
        end = checksums.block_end(checksums.block_begin(position))
        return checksums.first_physical(position), checksums.first_physical(end) if end < checksums.end else None

    @property
    def problem(self) -> str | None:
        """What was wrong with the files when they were opened."""
        return self._files.problem

    def truncate(self, physical: int) -> None:
        """The log ends at `physical` now: drops the entries of records that do not end there or before."""
        if self.max_physical <= physical:
            return
        first = self._first
        end = first + bisect_right(range(first, self.max_offset), physical, key=self._end_at)
        self._new.changed.add(self)
        if end < self._written:
            self._files.cut(end * ENTRY_BYTES)
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
        """Advances `min_offset` past the entries of records below `log_min`, where the log begins now."""
        run_sync(self._correct_min_steps(log_min))

    def _correct_min_steps(self, log_min: int) -> IoSteps[None]:
        """Checks the first entry, then does a binary search; these entries are probably cold."""
        low, high, middle = self.min_offset, self.max_offset, self.min_offset
        while low < high:
            yield from self.warm(middle)
            entry = self.stored_entries(middle, 1)
            if not entry:  # the queue was deleted meanwhile
                return
            if ENTRY.unpack(entry)[0] < log_min:
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
        self.min_offset = low

    def drop_before(self, log_min: int) -> int:
        """Like `correct_min`, and removes files entirely before it, but never the last; returns their number."""
        return run_sync(self.drop_before_steps(log_min))

    def drop_before_steps(self, log_min: int) -> IoSteps[int]:
        """As `drop_before`, without blocking."""
        yield from self._correct_min_steps(log_min)
        removed = yield from self._files.drop_before(self.min_offset * ENTRY_BYTES)
        if removed:
            self._new.changed.add(self)
        return removed

    def destroy(self) -> None:
        """Removes the files and resets the queue."""
        self._collect_new()
        self._files.destroy()
        self._begin(0)
        self._new.dirty.discard(self)
        self._new.changed.add(self)

    def unregister(self) -> None:
        """After `destroy`, when the queue is deleted for good: another queue may get its number."""
        self._new.changed.discard(self)
        self._new.unregister(self.number)


# One slot with two names: without a gate, the end for readers costs neither an append nor a read anything.
ConsumeQueue.visible_end = vars(ConsumeQueue)["max_offset"]
