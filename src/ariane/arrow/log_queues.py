"""Consume queues as a list of where a topic's records are: what a reader of some topics need not search for.

The entries of a queue stand in the order of the log, so the entries of a stretch of the log are found by halving.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from ariane.arrow.log_files import map_file
from ariane.store.disk import Disk, RealDisk
from ariane.store.layout import Layout
from ariane.store.queue_entry import ENTRY_BYTES, FILLER
from ariane.store.scan import DataFile
from ariane.store.scan_queue import ENTRY_TYPE, Entries, QueueScan, queue_at


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
