"""A commit log opened for reading beside a broker that may be writing it: nothing is locked, nothing is written.

Files are mapped, because rows of one topic are a few pages among many. A broker appends to files that have their full
size from the start, and what is read here lies below a position that it has left behind, so a mapping never changes
under a reader; a file that retention removes stays readable for whoever has mapped it.
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
    """The bytes of a file, valid as long as somebody holds them; StoreMismatch when it is not there any more."""
    try:
        file = disk.open(path, writable=False)
    except FileNotFoundError:
        raise StoreMismatch(
            f"{path} is gone since it was found: retention may have removed it; read again from what is left"
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
    """The files of one commit log as they were when this was made."""

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
        """A walk over one file, of which bytes from the physical offset `limit` on do not count."""
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
        """What stands there, as far as one file holds it; nothing when its file is gone."""
        file = self.find(offset)
        if file is None:
            return b""
        view = self.walk(file, file.end).source.view
        return bytes(view[offset - file.base : offset - file.base + length])

    def overlapping(self, begin: int, end: int) -> Iterator[DataFile]:
        return (file for file in self.files if file.base < end and file.end > begin)


# --- log_queues ---
#
# Consume queues as a list of where a topic's records are: what a reader of some topics need not search for.
#
# The entries of a queue stand in the order of the log, so the entries of a stretch of the log are found by halving.


class QueueEntries:
    """One queue. Entries have the numbers that they have in the queue; files are mapped when they are looked at."""

    def __init__(self, disk: Disk, scan: QueueScan) -> None:
        self._disk = disk
        self._files = [file for file in scan.files if file.size >= ENTRY_BYTES]
        self._mapped: dict[Path, Entries] = {}
        self.topic, self.queue_id = scan.topic, scan.queue_id

    @property
    def bytes_taken(self) -> int:
        """Of its files: a first guess at how many entries it has."""
        return sum(file.size for file in self._files)

    def _entries(self, file: DataFile) -> Entries:
        found = self._mapped.get(file.path)
        if found is None:
            view = map_file(self._disk, file.path)
            found = np.frombuffer(view[: len(view) // ENTRY_BYTES * ENTRY_BYTES], ENTRY_TYPE)
            self._mapped[file.path] = found
        return found

    @cached_property
    def first(self) -> int:
        """Behind the fillers of a queue that began past 0."""
        if not self._files:
            return 0
        entries = self._entries(self._files[0])
        if not len(entries) or not _is_filler(entries, 0):  # as in nearly every queue: halving would look at many
            return self._files[0].base // ENTRY_BYTES
        fillers = bisect_left(range(len(entries)), True, key=lambda n: not _is_filler(entries, n))
        return self._files[0].base // ENTRY_BYTES + fillers

    @cached_property
    def end(self) -> int:
        """Before the first entry that is not written. Files behind one that is not full are empty."""
        for file in reversed(self._files):
            entries = self._entries(file)
            count = bisect_left(range(len(entries)), True, key=lambda n: not _is_written(entries, n))
            if count:
                return file.base // ENTRY_BYTES + count
        return self.first

    def __len__(self) -> int:
        return max(0, self.end - self.first)

    def physical(self, number: int) -> int:
        """Where the record of an entry begins."""
        return int(self._one(number)["offset"])

    def first_physical(self) -> int | None:
        """Where the first record begins, None for a queue that has none: found without looking for the queue's end."""
        if not self._files:
            return None
        file = self._file(self.first)
        entries, place = self._entries(file), self.first - file.base // ENTRY_BYTES
        return self.physical(self.first) if place < len(entries) and _is_written(entries, place) else None

    def size(self, number: int) -> int:
        return int(self._one(number)["size"])

    def _one(self, number: int) -> np.void:
        file = self._file(number)
        entry: np.void = self._entries(file)[number - file.base // ENTRY_BYTES]
        return entry

    def _file(self, number: int) -> DataFile:
        """The last file that begins at or before an entry."""
        place = bisect_left(self._files, number * ENTRY_BYTES + 1, key=lambda file: file.base) - 1
        return self._files[place]

    def number_at(self, physical: int) -> int:
        """The first entry whose record begins at or behind a physical offset."""
        return self.first + bisect_left(range(self.first, self.end), physical, key=self.physical)

    def read(self, first: int, end: int) -> Entries:
        """The entries from `first` on and before `end`."""
        parts = []
        for file in self._files:
            base = file.base // ENTRY_BYTES
            part = self._entries(file)[max(first - base, 0) : max(end - base, 0)]
            if len(part):
                parts.append(part)
        return np.concatenate(parts) if parts else np.empty(0, ENTRY_TYPE)

    def sample(self, first: int, end: int, count: int) -> tuple["np.ndarray[tuple[int], np.dtype[np.int64]]", float]:
        """Physical offsets of entries at even distances, and how many bytes of records each stands for."""
        step = max(1, (end - first) // max(1, count))
        numbers = range(first, end, step)
        offsets = np.fromiter((self.physical(number) for number in numbers), np.int64, len(numbers))
        sizes = [self.size(number) for number in numbers[:: max(1, len(numbers) // 64)]]
        return offsets, (sum(sizes) / len(sizes) * (end - first) / len(numbers)) if sizes else 0.0


def _is_filler(entries: Entries, number: int) -> bool:
    """As `scan_queue.is_filler`, which for one entry costs many times as much; queues are halved entry by entry."""
    return bool(entries[number].tobytes() == FILLER)


def _is_written(entries: Entries, number: int) -> bool:
    entry = entries[number]
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
