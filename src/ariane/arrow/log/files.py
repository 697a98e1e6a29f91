"""Read-only access to the commit log and consume queue files of a store, while a broker may be writing to them.

Nothing is locked and nothing is written. Files are memory-mapped, because rows of one topic are a few pages among many.
A broker appends to files that have their full size from the start, and readers stay below the position up to which it
has written, so a mapping never changes under a reader. A file that retention removes stays readable while it is mapped.

Consume queues give the offsets of a topic's records, so that a reader of some topics need not search for them. The
entries of a queue have the order of the log, so the entries of a part of the log are found by binary search.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from ariane.arrow.gather import ByteGatherer
from ariane.arrow.walk import Walk
from ariane.errors import StoreCorrupt, StoreMismatch
from ariane.store.commit_log.scan import DataFile, list_files
from ariane.store.consume_queue.entry import ENTRY_BYTES, FILLER
from ariane.store.consume_queue.scan import ENTRY_TYPE, Entries, QueueScan, queue_at
from ariane.store.disk import Disk, RealDisk
from ariane.store.layout import Layout
from ariane.wire.record.read import RecordView, verify


def map_file(disk: Disk, path: Path) -> memoryview:
    """The bytes of a file, valid while they are referenced; StoreMismatch when the file has been removed."""
    try:
        file = disk.open(path, writable=False)
    except FileNotFoundError:
        raise StoreMismatch(
            f"{path} no longer exists: retention may have removed it; read again from what is left"
        ) from None
    except OSError as error:
        raise StoreCorrupt(f"{path} cannot be read: {error.strerror}") from error
    try:
        return file.view() if file.size else memoryview(b"")
    except OSError as error:
        raise StoreCorrupt(f"{path} cannot be mapped: {error.strerror}") from error
    finally:
        file.close()


class LogFiles:
    """The files of one commit log, as listed when this was made."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self._disk = disk or RealDisk()
        self.files = [file for file in list_files(self._disk, directory) if file.size]
        self._mapped: tuple[DataFile, ByteGatherer] | None = None

    @property
    def begin(self) -> int:
        return self.files[0].base if self.files else 0

    @property
    def end(self) -> int:
        return self.files[-1].end if self.files else 0

    def gaps(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Where files are missing between `begin` and `end`."""
        inside = [file for file in self.files if file.base < end and file.end > begin]
        return [(before.end, after.base) for before, after in pairwise(inside) if after.base > before.end]

    def find(self, offset: int) -> DataFile | None:
        return next((file for file in self.files if file.base <= offset < file.end), None)

    def walk(self, file: DataFile, limit: int) -> Walk:
        """A walk over the bytes of one file before the physical offset `limit`."""
        if self._mapped is None or self._mapped[0] is not file:
            self._mapped = file, ByteGatherer(map_file(self._disk, file.path))
        source = self._mapped[1]
        return Walk(source, max(0, min(len(source), limit - file.base)), file.base)

    def record_at(self, offset: int, limit: int) -> RecordView | None:
        """The record that begins at a physical offset and ends before `limit`; None when there is none."""
        file = self.find(offset)
        if file is None:
            return None
        walk = self.walk(file, limit)
        view = verify(walk.source.view, offset - file.base, end=walk.limit, check_body_crc=False)
        return view if isinstance(view, RecordView) and view.physical_offset == offset else None

    def bytes_at(self, offset: int, length: int) -> bytes:
        """The bytes at a physical offset, as far as one file holds them; none when the file has been removed."""
        file = self.find(offset)
        if file is None:
            return b""
        view = self.walk(file, file.end).source.view
        return bytes(view[offset - file.base : offset - file.base + length])

    def overlapping(self, begin: int, end: int) -> Iterator[DataFile]:
        return (file for file in self.files if file.base < end and file.end > begin)


# --- consume queues ---


class QueueEntries:
    """The entries of one consume queue, by queue offset. Files are mapped on first use."""

    def __init__(self, disk: Disk, scan: QueueScan) -> None:
        self._disk = disk
        self._files = [file for file in scan.files if file.size >= ENTRY_BYTES]
        self._mapped: dict[Path, Entries] = {}
        self.topic, self.queue_id = scan.topic, scan.queue_id

    @property
    def file_bytes(self) -> int:
        """Size of its files: a rough estimate of the number of entries."""
        return sum(file.size for file in self._files)

    def _entries(self, file: DataFile) -> Entries:
        entries = self._mapped.get(file.path)
        if entries is None:
            view = map_file(self._disk, file.path)
            entries = np.frombuffer(view[: len(view) // ENTRY_BYTES * ENTRY_BYTES], ENTRY_TYPE)
            self._mapped[file.path] = entries
        return entries

    @cached_property
    def first(self) -> int:
        """The first queue offset, after the fillers of a queue that began past 0."""
        if not self._files:
            return 0
        entries = self._entries(self._files[0])
        if not len(entries) or not _is_filler(entries, 0):  # as in nearly every queue: a search would read many
            return self._files[0].base // ENTRY_BYTES
        fillers = bisect_left(range(len(entries)), True, key=lambda n: not _is_filler(entries, n))
        return self._files[0].base // ENTRY_BYTES + fillers

    @cached_property
    def end(self) -> int:
        """The offset of the first entry that is not written. Files after one that is not full are empty."""
        for file in reversed(self._files):
            entries = self._entries(file)
            count = bisect_left(range(len(entries)), True, key=lambda n: not _is_written(entries, n))
            if count:
                return file.base // ENTRY_BYTES + count
        return self.first

    def __len__(self) -> int:
        return max(0, self.end - self.first)

    def physical(self, offset: int) -> int:
        """Physical offset of the record of an entry."""
        return int(self._entry(offset)["offset"])

    def first_physical(self) -> int | None:
        """Physical offset of the first record, None for an empty queue: found without searching the queue's end."""
        if not self._files:
            return None
        file = self._file(self.first)
        entries, index = self._entries(file), self.first - file.base // ENTRY_BYTES
        return self.physical(self.first) if index < len(entries) and _is_written(entries, index) else None

    def size(self, offset: int) -> int:
        return int(self._entry(offset)["size"])

    def _entry(self, offset: int) -> np.void:
        file = self._file(offset)
        entry: np.void = self._entries(file)[offset - file.base // ENTRY_BYTES]
        return entry

    def _file(self, offset: int) -> DataFile:
        """The last file that begins at or before an entry."""
        index = bisect_left(self._files, offset * ENTRY_BYTES + 1, key=lambda file: file.base) - 1
        return self._files[index]

    def offset_at(self, physical: int) -> int:
        """The queue offset of the first entry whose record begins at or after a physical offset."""
        return self.first + bisect_left(range(self.first, self.end), physical, key=self.physical)

    def read(self, first: int, end: int) -> Entries:
        """The entries with queue offsets `first <= offset < end`."""
        parts = []
        for file in self._files:
            base = file.base // ENTRY_BYTES
            part = self._entries(file)[max(first - base, 0) : max(end - base, 0)]
            if len(part):
                parts.append(part)
        return np.concatenate(parts) if parts else np.empty(0, ENTRY_TYPE)

    def sample(self, first: int, end: int, count: int) -> tuple["np.ndarray[tuple[int], np.dtype[np.int64]]", float]:
        """Physical offsets of entries at equal distances, and how many bytes of records each stands for."""
        step = max(1, (end - first) // max(1, count))
        sample = range(first, end, step)
        physical = np.fromiter((self.physical(offset) for offset in sample), np.int64, len(sample))
        sizes = [self.size(offset) for offset in sample[:: max(1, len(sample) // 64)]]
        return physical, (sum(sizes) / len(sizes) * (end - first) / len(sample)) if sizes else 0.0


def _is_filler(entries: Entries, index: int) -> bool:
    """As `consume_queue.scan.is_filler`, which costs many times as much for one entry; the search needs single ones."""
    return bool(entries[index].tobytes() == FILLER)


def _is_written(entries: Entries, index: int) -> bool:
    entry = entries[index]
    return bool(entry["offset"] >= 0 and entry["size"] > 0)


def topics_with_queues(layout: Layout, disk: Disk | None = None) -> list[str]:
    return (disk or RealDisk()).names(layout.consume_queues)


def open_queues(
    layout: Layout, topics: Iterable[str], queue_ids: frozenset[int] | None = None, disk: Disk | None = None
) -> Iterator[QueueEntries]:
    """The queues of these topics that have a directory."""
    disk = disk or RealDisk()
    for topic in topics:
        for name in disk.names(layout.consume_queues / topic):
            is_number = name.isascii() and name.isdigit() and name == str(int(name))
            if is_number and (queue_ids is None or int(name) in queue_ids):
                yield QueueEntries(disk, queue_at(disk, layout.queue(topic, int(name)), topic, int(name)))
