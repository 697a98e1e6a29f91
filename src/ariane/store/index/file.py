"""An index file: adds entries in batches and reads the chain of a slot, newest first.

Entries are appended by plain writes. Header and slots are mapped, because a batch touches as many positions of them as
it has keys; their blocks are allocated beforehand, so that a full disk is an OSError of a call and never a SIGBUS.

    write_entries   slots are read, entries written after the last       may fail: nothing is visible yet
    publish         header, then slots, in memory                        cannot fail

The event loop, which must not block, first lets a thread execute the call that `cold_fetch` returns (`IndexPages`).
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
from ariane.wire.hashes import running_crc32

_PAGE_BYTES = 4096
_SLOTS_OF_A_PAGE = _PAGE_BYTES // SLOT_BYTES
_SLOTS_OF_HEADER = HEADER_BYTES // SLOT_BYTES
assert HEADER_BYTES % SLOT_BYTES == 0, "no slot crosses two pages"
_PROBED_MAX = 64
_FETCHED_BYTES = 1 << 20
_AHEAD_BYTES = 1 << 20
"""How much of the entries' positions is fetched at once: the next batches need it."""


class IndexPages:
    """Which pages of one index file the event loop may touch without blocking; threads fetch the others.

    Keys fall into slots all over a file of 20 MB, and most of its pages may have been evicted since they were last
    touched: each would be a page fault. So they are probed before keys are added, and a thread fetches cold ones:

        touched since the last sync        count as cached, no system call
        a few others                       probed, page by page; cold ones are fetched
        many others                        all slots are fetched, in order: one by one would take longer

    Entries are written after the last one. A write that changes only part of a page reads it first, so the first and
    the last page of the new entries are probed as well.
    """

    def __init__(self, file: File, slots: int, *, is_new: bool) -> None:
        """A new file needs no reads: its slots are allocated and empty, and after its last entry is a hole."""
        self._file = file
        self._is_new = is_new
        self._slots = np.int32(slots)
        self._slots_end = entries_position(slots)
        self._is_warm: NDArray[np.bool_] = np.full(-(-self._slots_end // _PAGE_BYTES), is_new)
        self._are_all_warm = is_new

    def cold_fetch(self, hashes: Int32s, begin: int, end: int) -> BlockingCall | None:
        """The blocking call to execute before keys of these hashes are added, with entries from `begin` to `end`.

        None when nothing is cold. Then the pages count as touched: add the keys now.
        """
        pages = [] if self._are_all_warm else self._unknown(hashes)
        is_many = len(pages) > _PROBED_MAX
        cold_pages = [] if is_many else [page for page in pages if not self._is_cached(page * _PAGE_BYTES)]
        # after the first page, a file of another process may hold entries that it lost in a crash
        cold_ends = [at for at in ((begin,) if self._is_new else (begin, end - 1)) if not self._is_cached(at)]
        if is_many:
            return partial(self._fetch_all, cold_ends)
        if cold_pages or cold_ends:
            return partial(self._fetch, cold_pages, cold_ends)
        self._is_warm[pages] = True
        return None

    def _unknown(self, hashes: Int32s) -> list[int]:
        """Pages of the header and of the slots that may be cold."""
        pages = (hashes % self._slots + _SLOTS_OF_HEADER) // _SLOTS_OF_A_PAGE
        unknown = set(pages[~self._is_warm[pages]].tolist())
        return sorted(unknown if self._is_warm[0] else unknown | {0})

    def _is_cached(self, position: int) -> bool:
        return self._file.read_cached(1, position) is not None

    def synced(self) -> None:
        """From now on the kernel may evict the pages touched before."""
        self._is_warm[:] = self._are_all_warm = False

    # --- in a thread --------------------------------------------------------------------------------------------------

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


_COPY_BYTES = 1 << 20
_PHYSICAL_MAX = 2**63 - 1


class IndexCapacity(NamedTuple):
    """Slots and entries per file, the same for all files of an index."""

    slots: int
    entries: int


class PendingEntries(NamedTuple):
    """Entries that are written but not yet published."""

    header: Header
    slots: Int32s
    first_number: int
    data: bytes


class IndexFile:
    """For one writer; `find` may run in a thread meanwhile."""

    def __init__(self, path: Path, file: File, capacity: IndexCapacity, header: Header, *, is_allocated: bool) -> None:
        self.path = path
        self.changes = 0
        """Grows with every change, so that a sync knows what it covers."""
        self.changes_synced = -1  # writes of an earlier process may not be durable either
        self._file = file
        self._capacity = capacity
        self._header = header
        self._is_allocated = is_allocated
        self._allocation_lock = threading.Lock()
        self._pages = IndexPages(file, capacity.slots, is_new=is_allocated)
        self._map: memoryview | None = None
        self._reader = IndexReader(path, file, capacity.slots)
        self._sync_failed = False
        self.entries_crc: int | None = 0 if header.is_empty else None
        """CRC-32 of all entries, as they were written; None when it is not known."""
        self.is_damaged = False
        """Its bytes are not those that were written: the next start builds it again."""

    @classmethod
    def create(cls, disk: Disk, path: Path, capacity: IndexCapacity, header: Header) -> "IndexFile":
        file = disk.create(path, file_bytes(*capacity), allocated=entries_position(capacity.slots))
        try:
            file.sync()  # size before entries: a file with entries and another size is another broker's
        except OSError:
            file.close()
            disk.remove(path)
            raise
        return cls(path, file, capacity, header, is_allocated=True)

    @classmethod
    def open(cls, disk: Disk, path: Path, capacity: IndexCapacity) -> "IndexFile | None":
        """None when the file was never completely created; StoreMismatch when it has another capacity."""
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
        """Number of entries that still fit."""
        return max(self._capacity.entries - self._header.entry_count, 0)

    @property
    def end_physical(self) -> int:
        """Physical offset of the last message in this file, or in the one before it; -1 for none."""
        return self._header.end_physical if self._header.end_physical > 0 or not self.is_empty else -1

    def cold_fetch(self, rows: KeyRows) -> BlockingCall | None:
        """The blocking call to execute before `write_entries` and `publish`, so that they do not block; None if none.

        Call this again afterwards: there may be more, if keys were added meanwhile.
        """
        if not self._is_allocated:
            return self._allocate_blocks
        begin = self._reader.position(self._header.entry_count)
        return self._pages.cold_fetch(rows.hashes, begin, begin + len(rows.hashes) * ENTRY_BYTES)

    def write_entries(self, rows: KeyRows) -> PendingEntries:
        """Writes entries, at least one and at most `room`. OSError if it cannot, and then nothing has changed."""
        number = self._header.entry_count
        slots = rows.hashes % np.int32(self._capacity.slots)
        heads = self._heads()[slots].astype(np.int32)
        heads[heads.view(np.uint32) >= number] = 0  # also negative ones, which are large as unsigned
        previous = previous_entries(slots, heads, number)
        entries = pack_entries(rows, self._seconds(rows), previous)
        data = entries.tobytes()
        self._file.write(data, self._reader.position(number))
        return PendingEntries(self._header.with_rows(rows, int(np.count_nonzero(previous == 0))), slots, number, data)

    def publish(self, pending: PendingEntries) -> None:
        """Makes the written entries visible. The header first: a reader thread that sees a head then sees its entry."""
        assert self._map is not None, "write_entries() maps the slots"
        self._header = pending.header
        if self.entries_crc is not None:
            self.entries_crc = running_crc32(pending.data, self.entries_crc)
        HEADER.pack_into(self._map, 0, *pending.header)
        # of entries in the same slot the last one wins
        self._heads()[pending.slots] = np.arange(pending.first_number, pending.header.entry_count)
        self.changes += 1
        if not self.room:
            self._map = None

    def _seconds(self, rows: KeyRows) -> Int32s:
        begin_ms = self._header.begin_timestamp_ms
        if not self.is_empty:
            return seconds_since(begin_ms, rows.timestamps_ms)
        # As Apache counts: the first entry from the end of the previous file, the others from the first.
        seconds = seconds_since(int(rows.timestamps_ms[0]), rows.timestamps_ms)
        seconds[:1] = seconds_since(begin_ms, rows.timestamps_ms[:1])
        return seconds

    def _heads(self) -> Int32s:
        """The slots as an array on the mapping."""
        if self._map is None:
            self._allocate_blocks()
            self._map = self._file.writable_view(entries_position(self._capacity.slots))
        return np.frombuffer(self._map, SLOT_TYPE, offset=HEADER_BYTES)

    def _allocate_blocks(self) -> None:
        """Rewrites header and slots in place: Apache's files, and copies of any, have holes where slots are 0.

        A thread may do it before keys are added. Other callers wait: what was read here must not overwrite anything
        newer, nor be written to a closed file.
        """
        end = entries_position(self._capacity.slots)
        with self._allocation_lock:
            if self._is_allocated:
                return
            for position in range(0, end, _COPY_BYTES):
                self._file.write(self._file.read(min(_COPY_BYTES, end - position), position), position)
            self._is_allocated = True

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Physical offsets, newest first, of entries with that hash and time. StoreCorrupt where a chain is broken.

        An entry stores whole seconds. Apache compares the begin of that second, and so misses messages of the first
        second of a query; here they are found, together with those stored up to a second earlier.
        """
        slot = key_hash % self._capacity.slots
        head = self._head(slot)
        header = self._header  # read after the head, so that it includes the entry
        for numbers, entries in self._reader.chain(slot, head, min(header.entry_count, self._capacity.entries)):
            times_ms = header.times_ms(numbers, entries["seconds"])
            matches = (entries["hash"] == key_hash) & (times_ms <= end_ms) & (times_ms > begin_ms - SECOND_MS)
            yield from entries["physical"][matches].tolist()
            if times_ms[-1] <= begin_ms - SECOND_MS:
                return

    def _head(self, slot: int) -> int:
        mapped = self._map  # the writer may drop it between two accesses
        if mapped is None:
            return self._reader.head(slot)
        position = HEADER_BYTES + slot * SLOT_BYTES
        return int.from_bytes(mapped[position : position + SLOT_BYTES], "big", signed=True)

    def has_valid_first_entry(self) -> bool:
        """Whether header and first entry agree. Both are written once, so they agree in any file that was synced."""
        if self._header.begin_timestamp_ms < 0:  # not a valid time, and no query would find its entries
            return False
        return self.is_empty or self._reader.physical_at(1) == self._header.begin_physical

    def is_sound(self) -> bool:
        """Whether the header agrees with the first and the last entry."""
        if self._header.entry_count > self._capacity.entries or not self.has_valid_first_entry():
            return False
        return self.is_empty or self._reader.physical_at(self._header.entry_count - 1) == self._header.end_physical

    # --- checks -----------------------------------------------------------------------------------------------------

    @property
    def used_bytes(self) -> int:
        """What a check has to read."""
        return self._reader.position(min(self._header.entry_count, self._capacity.entries))

    def checksum_entries(self, entry_count: int) -> int:
        """CRC-32 of the entries before this number. Reads them; for a thread."""
        end = self._reader.position(min(entry_count, self._capacity.entries))
        position, crc = self._reader.position(1), 0
        while position < end and (data := self._file.read(min(_COPY_BYTES, end - position), position)):
            crc, position = running_crc32(data, crc), position + len(data)
        return crc

    def has_valid_slots(self, entry_count: int) -> bool:
        """Whether each slot leads to its newest entry before this number, or to a later one that was just added. Reads
        the whole file; for a thread."""
        begin, slots = self._header.begin_physical, self._capacity.slots
        expected = rebuild_slots(self._reader.scan(entry_count), slots, begin, _PHYSICAL_MAX).heads
        found = np.frombuffer(self._file.read(slots * SLOT_BYTES, HEADER_BYTES), SLOT_TYPE)
        return len(found) == slots and bool(((found == expected) | (found >= entry_count)).all())

    def keep_before(self, physical: int) -> int:
        """Drops the messages from `physical` on, and rebuilds header and slots from the remaining entries.

        Returns `physical`, or less when an entry is invalid: the entries end there, and the message before it is also
        dropped, because it may have lost some of its keys.
        """
        begin, end = self._header.begin_physical, min(self._header.entry_count, self._capacity.entries)
        rebuilt = rebuild_slots(self._reader.scan(end), self._capacity.slots, begin, physical)
        if rebuilt.entry_count < end and not rebuilt.reached_limit:
            physical = min(physical, rebuilt.last_physical)
            rebuilt = rebuild_slots(self._reader.scan(end), self._capacity.slots, begin, physical)
        slot_count = int(np.count_nonzero(rebuilt.heads))
        header = self._header.truncated(rebuilt.entry_count, slot_count, rebuilt.last_physical, rebuilt.last_seconds)
        self._rewrite(header, rebuilt.heads.tobytes())
        if rebuilt.entry_count != end:
            self.entries_crc = self.checksum_entries(rebuilt.entry_count)
        return physical

    def _rewrite(self, header: Header, slots: bytes) -> None:
        try:
            self._file.write(HEADER.pack(*header) + slots, 0)
        except OSError as error:
            raise StoreFull(f"{self.path} cannot be written: {error.strerror}") from error
        self._header, self._is_allocated, self._map = header, True, None
        self.changes += 1

    def sync(self) -> None:
        """Makes the whole file durable, for a thread to call.

        After one error it always fails: the kernel has dropped what it could not write, so a later success would prove
        nothing.
        """
        if self._sync_failed:
            raise OSError(None, "an earlier sync failed")
        try:
            self._file.sync()
        except OSError:
            self._sync_failed = True
            raise

    def synced(self, changes: int) -> None:
        """On the event loop: the sync that began at this number of changes is done."""
        self.changes_synced = changes
        self._pages.synced()

    def close(self) -> None:
        with self._allocation_lock:
            self._map = None
            self._file.close()
