"""One file of the index: a batch of entries goes in at once, the chain of a slot comes out newest first.

Entries are appended by plain writes. Header and slots are a mapping, because a batch touches as many places of it as
it has keys; its blocks are taken beforehand, so that a full disk is an OSError of a call and never a SIGBUS.

    stage     slots are read, entries written behind the last        may fail: nothing is seen of it
    publish   header, then slots, in memory                          cannot fail

Before them, who must not wait for the disk asks `cold`, and has a thread do what that tells.
"""

import threading
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ariane.errors import StoreFull, StoreMismatch
from ariane.store.blocking_io import BlockingCall
from ariane.store.disk import Disk, File
from ariane.store.index.entries import (
    ENTRY_BYTES,
    HEADER,
    HEADER_BYTES,
    SECOND_MS,
    SLOT_BYTES,
    SLOT_TYPE,
    Header,
    Int32s,
    KeyRows,
    entries_position,
    file_bytes,
    pack_entries,
    previous_entries,
    rebuild_slots,
    seconds_since,
)
from ariane.store.index.reader import IndexReader

# --- index_pages ---
#
# Which pages of an index file the event loop may touch without a wait for the disk.
#
# Keys fall into slots all over a file of 20 MB, and most of its pages may have left memory since they were last
# touched: each would be a page fault. So they are asked for before keys are put, and a thread fetches what is missing:
#
#     touched since the last sync        in memory: the kernel is not asked
#     a few others                       asked for, page by page; those that are not there are fetched
#     many others                        all slots are fetched, in order: one by one would take longer
#
# Entries are written behind the last one. A page that a write changes only in part is read first, so the first and the
# last page of theirs are asked for as well.

_PAGE_BYTES = 4096
_SLOTS_OF_A_PAGE = _PAGE_BYTES // SLOT_BYTES
_SLOTS_OF_HEADER = HEADER_BYTES // SLOT_BYTES
assert HEADER_BYTES % SLOT_BYTES == 0, "no slot lies over two pages"
_PROBED_MAX = 64
_FETCHED_BYTES = 1 << 20
_AHEAD_BYTES = 1 << 20
"""Of the entries' places, what is fetched at once: the next rounds want it."""


class IndexPages:
    """Of one file. For the loop; the errands are for a thread."""

    def __init__(self, file: File, slots: int, *, is_new: bool) -> None:
        """Of a new file nothing has to be read: it is allocated and empty, and a hole behind its last entry."""
        self._file = file
        self._is_new = is_new
        self._slots = np.int32(slots)
        self._slots_end = entries_position(slots)
        self._is_warm: NDArray[np.bool_] = np.full(-(-self._slots_end // _PAGE_BYTES), is_new)
        self._are_all_warm = is_new

    def cold_fetch(self, hashes: Int32s, begin: int, end: int) -> BlockingCall | None:
        """What has to be done before keys of these hashes are put, whose entries are written from `begin` to `end`.

        None when that would not wait. What is asked for is taken to be touched: do it now.
        """
        pages = [] if self._are_all_warm else self._unknown(hashes)
        is_many = len(pages) > _PROBED_MAX
        cold_pages = [] if is_many else [page for page in pages if not self._is_cached(page * _PAGE_BYTES)]
        # behind the first page, a file that another process began may hold what it forgot in a crash
        cold_ends = [at for at in ((begin,) if self._is_new else (begin, end - 1)) if not self._is_cached(at)]
        if is_many:
            return partial(self._fetch_all, cold_ends)
        if cold_pages or cold_ends:
            return partial(self._fetch, cold_pages, cold_ends)
        self._is_warm[pages] = True
        return None

    def _unknown(self, hashes: Int32s) -> list[int]:
        """Pages of the header and of the slots, of which it is not known whether they are in memory."""
        pages = (hashes % self._slots + _SLOTS_OF_HEADER) // _SLOTS_OF_A_PAGE
        unknown = set(pages[~self._is_warm[pages]].tolist())
        return sorted(unknown if self._is_warm[0] else unknown | {0})

    def _is_cached(self, position: int) -> bool:
        return self._file.read_cached(1, position) is not None

    def synced(self) -> None:
        """What was touched before may leave memory from now on."""
        self._is_warm[:] = self._are_all_warm = False

    # --- for a thread -------------------------------------------------------------------------------------------------

    def _fetch(self, pages: list[int], ends: Iterable[int]) -> None:
        for page in pages:
            self._file.read(1, page * _PAGE_BYTES)
        self._is_warm[pages] = True
        self._fetch_ahead(ends)

    def _fetch_all(self, ends: Iterable[int]) -> None:
        for position in range(0, self._slots_end, _FETCHED_BYTES):
            self._file.read(min(_FETCHED_BYTES, self._slots_end - position), position)
        self._is_warm[:] = self._are_all_warm = True
        self._fetch_ahead(ends)

    def _fetch_ahead(self, ends: Iterable[int]) -> None:
        for position in ends:
            self._file.read(1 if self._is_new else _AHEAD_BYTES, position)


# ---

_COPY_BYTES = 1 << 20


class IndexCapacity(NamedTuple):
    """The two numbers that all files of an index share."""

    slots: int
    entries: int


class PendingEntries(NamedTuple):
    """Entries that are written but not yet visible."""

    header: Header
    slots: Int32s
    first_number: int


class IndexFile:
    """One writer; `find` may run in a thread meanwhile."""

    def __init__(self, path: Path, file: File, capacity: IndexCapacity, header: Header, *, is_allocated: bool) -> None:
        self.path = path
        self.changes = 0
        """Grows with every change, so that a sync knows what it has covered."""
        self.changes_synced = -1  # what another process wrote may not be durable, either
        self._file = file
        self._capacity = capacity
        self._header = header
        self._is_allocated = is_allocated
        self._allocation_lock = threading.Lock()
        self._pages = IndexPages(file, capacity.slots, is_new=is_allocated)
        self._map: memoryview | None = None
        self._reader = IndexReader(path, file, capacity.slots)
        self._sync_failed = False

    @classmethod
    def create(cls, disk: Disk, path: Path, capacity: IndexCapacity, header: Header) -> "IndexFile":
        file = disk.create(path, file_bytes(*capacity), allocated=entries_position(capacity.slots))
        try:
            file.sync()  # its size before its first entry: a file of another size that has entries is another broker's
        except OSError:
            file.close()
            disk.remove(path)
            raise
        return cls(path, file, capacity, header, is_allocated=True)

    @classmethod
    def open(cls, disk: Disk, path: Path, capacity: IndexCapacity) -> "IndexFile | None":
        """None when the file was never finished being made; StoreMismatch when it was made for another shape."""
        file = disk.open(path, writable=True)
        head = file.read(HEADER_BYTES, 0)
        if file.size == file_bytes(*capacity):
            return cls(path, file, capacity, Header.parse(head), is_allocated=False)
        file.close()
        if not any(head):
            return None
        raise StoreMismatch(
            f"{path} has {file.size} bytes, {capacity.slots} slots and {capacity.entries} entries need "
            f"{file_bytes(*capacity)}: set the numbers that the index was written with, or remove its directory to "
            "have it built anew"
        )

    @property
    def header(self) -> Header:
        return self._header

    @property
    def is_empty(self) -> bool:
        return self._header.is_empty

    @property
    def room(self) -> int:
        """How many entries still fit."""
        return max(self._capacity.entries - self._header.entry_count, 0)

    @property
    def end_physical(self) -> int:
        """The last message that this file, or the one before it, knows of; -1 for none."""
        return self._header.end_physical if self._header.end_physical > 0 or not self.is_empty else -1

    def cold_fetch(self, rows: KeyRows) -> BlockingCall | None:
        """What a thread has to do before `stage` and `publish`, so that they do not wait for the disk; None if nothing.

        Asked again behind it, this may tell of more: others may have put keys meanwhile.
        """
        if not self._is_allocated:
            return self._allocate_blocks
        begin = self._reader.position(self._header.entry_count)
        return self._pages.cold_fetch(rows.hashes, begin, begin + len(rows.hashes) * ENTRY_BYTES)

    def write_entries(self, rows: KeyRows) -> PendingEntries:
        """Writes entries, at least one and at most `room` of them. OSError, and nothing has happened, if it cannot."""
        number = self._header.entry_count
        slots = rows.hashes % np.int32(self._capacity.slots)
        heads = self._heads()[slots].astype(np.int32)
        heads[heads.view(np.uint32) >= number] = 0  # negative ones are large then, and no entry either
        previous = previous_entries(slots, heads, number)
        entries = pack_entries(rows, self._seconds(rows), previous)
        self._file.write(entries.tobytes(), self._reader.position(number))
        return PendingEntries(self._header.with_rows(rows, int(np.count_nonzero(previous == 0))), slots, number)

    def publish(self, pending: PendingEntries) -> None:
        """Shows what was staged last. The header first: a reader in a thread that sees a head then sees its entry."""
        assert self._map is not None, "stage() maps the slots"
        self._header = pending.header
        HEADER.pack_into(self._map, 0, *pending.header)
        # of entries in the same slot the last one stays
        self._heads()[pending.slots] = np.arange(pending.first_number, pending.header.entry_count)
        self.changes += 1
        if not self.room:
            self._map = None

    def _seconds(self, rows: KeyRows) -> Int32s:
        begin_ms = self._header.begin_timestamp_ms
        if not self.is_empty:
            return seconds_since(begin_ms, rows.timestamps_ms)
        # As Apache counts: the first entry still from the end of the file before, the others from the first.
        seconds = seconds_since(int(rows.timestamps_ms[0]), rows.timestamps_ms)
        seconds[:1] = seconds_since(begin_ms, rows.timestamps_ms[:1])
        return seconds

    def _heads(self) -> Int32s:
        """The slots as an array over the mapping."""
        if self._map is None:
            self._allocate_blocks()
            self._map = self._file.writable_view(entries_position(self._capacity.slots))
        return np.frombuffer(self._map, SLOT_TYPE, offset=HEADER_BYTES)

    def _allocate_blocks(self) -> None:
        """Writes header and slots over themselves: Apache's files, and copies of any, have holes where slots are 0.

        A thread may do it before anything is put. Who comes meanwhile waits: what was read here must not be written
        over something newer, nor to a file that was closed.
        """
        end = entries_position(self._capacity.slots)
        with self._allocation_lock:
            if self._is_allocated:
                return
            for position in range(0, end, _COPY_BYTES):
                self._file.write(self._file.read(min(_COPY_BYTES, end - position), position), position)
            self._is_allocated = True

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Physical offsets, newest first, under that hash and time. StoreCorrupt where a chain breaks off.

        An entry knows its second only. Apache takes the begin of that second for the time, and so misses messages of
        the first second of a query; here they are found, at the price of those stored up to a second earlier.
        """
        slot = key_hash % self._capacity.slots
        head = self._head(slot)
        header = self._header  # looked at after the head, so that it knows the entry
        for numbers, entries in self._reader.chain(slot, head, min(header.entry_count, self._capacity.entries)):
            times_ms = header.times_ms(numbers, entries["seconds"])
            found = (entries["hash"] == key_hash) & (times_ms <= end_ms) & (times_ms > begin_ms - SECOND_MS)
            yield from entries["physical"][found].tolist()
            if times_ms[-1] <= begin_ms - SECOND_MS:
                return

    def _head(self, slot: int) -> int:
        mapped = self._map  # the writer may let go of it between two looks
        if mapped is None:
            return self._reader.head(slot)
        position = HEADER_BYTES + slot * SLOT_BYTES
        return int.from_bytes(mapped[position : position + SLOT_BYTES], "big", signed=True)

    def has_valid_first_entry(self) -> bool:
        """Whether header and first entry agree. Both are written once, so they do in a file that was ever synced."""
        if self._header.begin_timestamp_ms < 0:  # no clock tells that, and no query would find what is counted from it
            return False
        return self.is_empty or self._reader.physical_at(1) == self._header.begin_physical

    def is_sound(self) -> bool:
        """Whether the header agrees with the first and the last entry."""
        if self._header.entry_count > self._capacity.entries or not self.has_valid_first_entry():
            return False
        return self.is_empty or self._reader.physical_at(self._header.entry_count - 1) == self._header.end_physical

    def keep_before(self, physical: int) -> int:
        """Forgets the messages from `physical` on, and makes header and slots anew from the entries that stay.

        Returns `physical`, or less when an entry made no sense: it ends what stays, and because the message before it
        may have lost some of its keys, that one goes as well.
        """
        begin, end = self._header.begin_physical, min(self._header.entry_count, self._capacity.entries)
        rebuilt = rebuild_slots(self._reader.scan(end), self._capacity.slots, begin, physical)
        if rebuilt.entry_count < end and not rebuilt.reached_limit:
            physical = min(physical, rebuilt.last_physical)
            rebuilt = rebuild_slots(self._reader.scan(end), self._capacity.slots, begin, physical)
        slot_count = int(np.count_nonzero(rebuilt.heads))
        header = self._header.truncated(rebuilt.entry_count, slot_count, rebuilt.last_physical, rebuilt.last_seconds)
        self._rewrite(header, rebuilt.heads.tobytes())
        return physical

    def _rewrite(self, header: Header, slots: bytes) -> None:
        try:
            self._file.write(HEADER.pack(*header) + slots, 0)
        except OSError as error:
            raise StoreFull(f"{self.path} cannot be written: {error.strerror}") from error
        self._header, self._is_allocated, self._map = header, True, None
        self.changes += 1

    def sync(self) -> None:
        """Makes all of it durable, for a thread to call.

        After one failure it fails for good: the kernel has dropped what it could not write, so a later success would
        say nothing.
        """
        if self._sync_failed:
            raise OSError(None, "an earlier sync failed")
        try:
            self._file.sync()
        except OSError:
            self._sync_failed = True
            raise

    def synced(self, changes: int) -> None:
        """On the loop: the sync that began when there were so many changes is done."""
        self.changes_synced = changes
        self._pages.synced()

    def close(self) -> None:
        with self._allocation_lock:
            self._map = None
            self._file.close()
