"""Offline scan of consume queues as numpy arrays of entries. See consume_queue/entry.py for the layout."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ariane.store.commit_log.scan import DataFile, first_nonzero, list_files
from ariane.store.consume_queue.entry import ENTRY_BYTES, FILLER
from ariane.store.disk import Disk

ENTRY_TYPE = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags", ">i8")])
assert ENTRY_TYPE.itemsize == ENTRY_BYTES, "one layout"
_FILLER = np.frombuffer(FILLER, ENTRY_TYPE)[0]

_READ_AT_ONCE = 4096

Entries: TypeAlias = npt.NDArray[np.void]


@dataclass(frozen=True, slots=True)
class QueueScan:
    """The files of one queue. An entry's number is its queue offset: times 20, its position over all files."""

    disk: Disk
    topic: str
    queue_id: int
    directory: Path
    files: tuple[DataFile, ...]

    @property
    def first(self) -> int:
        """Number of the first entry in the files."""
        return self.files[0].base // ENTRY_BYTES if self.files else 0

    def find(self, number: int) -> tuple[DataFile, int] | None:
        """The file that holds an entry, and the entry's position in it."""
        position = number * ENTRY_BYTES
        file = next((file for file in self.files if file.base <= position < file.end), None)
        return None if file is None else (file, position - file.base)

    def read(self, first: int, count: int) -> Entries:
        """At most `count` entries from number `first`: fewer where the files end or one is missing."""
        return np.frombuffer(self._bytes(first, count), ENTRY_TYPE)

    def _bytes(self, first: int, count: int) -> bytes:
        data = b""
        while count > 0 and (place := self.find(first)) is not None:
            file, position = place
            part = _read(self.disk, file, position, min(count * ENTRY_BYTES, file.size - position))
            if not part:
                break
            data += part
            first, count = first + len(part) // ENTRY_BYTES, count - len(part) // ENTRY_BYTES
        return data

    def written(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        """The entries from number `start` on, each with its number, up to the first that is not written."""
        number, end = max(start, self.first), self.first + self.count()
        while number < end:
            data = self._bytes(number, min(_READ_AT_ONCE, end - number))
            for at in range(0, len(data), ENTRY_BYTES):
                yield number, data[at : at + ENTRY_BYTES]
                number += 1

    def runs(self) -> Iterator[tuple[DataFile, Entries]]:
        """Every file with all its entries, written or not."""
        for file in self.files:
            yield file, np.frombuffer(_read(self.disk, file, 0, file.size), ENTRY_TYPE)

    def count(self) -> int:
        """How many entries from `first` on are written: up to the first without a size."""
        total = 0
        for _, entries in self.runs():
            written = int(np.argmin(is_written(entries))) if not is_written(entries).all() else len(entries)
            total += written
            if written < len(entries):
                break
        return total

    def leftover(self, end: int) -> tuple[DataFile, int] | None:
        """File and position of the first non-zero byte after the last entry, whose number is `end` - 1."""
        for file in self.files:
            start = max(end * ENTRY_BYTES - file.base, 0)
            position = self._nonzero(file, start) if start < file.size else None
            if position is not None:
                return file, position
        return None

    def _nonzero(self, file: DataFile, start: int) -> int | None:
        handle = self.disk.open(file.path, writable=False)
        try:
            return first_nonzero(handle, start, file.size)
        finally:
            handle.close()


def list_queues(disk: Disk, directory: Path) -> list[QueueScan]:
    """Every queue under `consumequeue`, by topic and number."""
    queues = [
        (topic, int(name))
        for topic in disk.names(directory)
        for name in disk.names(directory / topic)
        if name.isascii() and name.isdigit() and name == str(int(name))
    ]
    return [queue_at(disk, directory / topic / str(queue_id), topic, queue_id) for topic, queue_id in sorted(queues)]


def queue_at(disk: Disk, directory: Path, topic: str, queue_id: int) -> QueueScan:
    return QueueScan(disk, topic, queue_id, directory, tuple(list_files(disk, directory)))


def is_written(entries: Entries) -> npt.NDArray[np.bool_]:
    """Apache's rule for a valid entry: an offset that is not negative, and a size."""
    return (entries["offset"] >= 0) & (entries["size"] > 0)


def is_filler(entries: Entries) -> npt.NDArray[np.bool_]:
    """The entries before the first one of a queue that starts past 0."""
    matches: npt.NDArray[np.bool_] = entries == _FILLER
    return matches


def _read(disk: Disk, file: DataFile, position: int, length: int) -> bytes:
    """Whole entries only."""
    handle = disk.open(file.path, writable=False)
    try:
        data = handle.read(length - length % ENTRY_BYTES, position)
    finally:
        handle.close()
    return data[: len(data) - len(data) % ENTRY_BYTES]
