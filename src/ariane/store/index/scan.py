"""Offline scan of index files. See index/entries.py for the layout.

A file does not store its number of slots. `open_index` finds it by trial: with the right number, every entry links to
an older entry of its own slot; with a wrong one, the entries are misaligned and nothing fits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ariane.errors import StoreMismatch
from ariane.store.disk import Disk
from ariane.store.index.entries import (
    ENTRY,
    ENTRY_BYTES,
    ENTRY_TYPE,
    HEADER,
    HEADER_BYTES,
    SLOT_BYTES,
    Entries,
    Header,
    entries_position,
    file_bytes,
)

NAME_DIGITS = 17
ENTRIES_AT_ONCE = 65536
_DEFAULT_ENTRIES_PER_SLOT = 4  # Apache's defaults are 5,000,000 and 20,000,000; most who change one change both
_APACHE_SLOTS = 5_000_000
_SAMPLE = 1000


@dataclass(frozen=True, slots=True)
class IndexScan:
    disk: Disk
    path: Path
    size: int
    header: Header
    slots: int

    @property
    def capacity(self) -> int:
        return (self.size - entries_position(self.slots)) // ENTRY_BYTES

    @property
    def end(self) -> int:
        """The number after the last entry, at most the capacity of the file."""
        return max(1, min(self.header.entry_count, self.capacity))

    def position(self, number: int) -> int:
        """Position of an entry in the file."""
        return entries_position(self.slots) + number * ENTRY_BYTES

    def header_bytes(self) -> bytes:
        return _read(self.disk, self.path, HEADER_BYTES, 0)

    def slot_values(self) -> npt.NDArray[np.int32]:
        data = _read(self.disk, self.path, self.slots * SLOT_BYTES, HEADER_BYTES)
        return np.frombuffer(data, ">i4").astype(np.int32)

    def entries(self, first: int, count: int) -> Entries:
        data = _read(self.disk, self.path, count * ENTRY_BYTES, self.position(first))
        entries: Entries = np.frombuffer(data[: len(data) - len(data) % ENTRY_BYTES], ENTRY_TYPE)
        return entries

    def chunks(self) -> Iterator[tuple[int, Entries]]:
        """Every entry in use, in chunks, with the number of the first."""
        for first in range(1, self.end, ENTRIES_AT_ONCE):
            yield first, self.entries(first, min(ENTRIES_AT_ONCE, self.end - first))

    def chain(self, key_hash: int) -> Iterator[tuple[int, bytes]]:
        """The entries of a slot, newest first, in the order of a query; ends where a link does not lead back."""
        number = int(self.slot_values()[key_hash % self.slots])
        newer = self.end
        while 0 < number < newer:
            raw = _read(self.disk, self.path, ENTRY_BYTES, self.position(number))
            yield number, raw
            newer, number = number, ENTRY.unpack(raw)[3]


def list_index(disk: Disk, directory: Path) -> list[Path]:
    """The index files, oldest first: they are named by time."""
    return [directory / name for name in disk.names(directory) if len(name) == NAME_DIGITS and name.isdigit()]


def open_index(disk: Disk, path: Path, slots: int | None = None) -> IndexScan:
    """StoreMismatch when it is not an index file, or when the number of slots cannot be determined."""
    size = disk.size(path) or 0
    if size < file_bytes(1, 2):
        raise StoreMismatch(f"{path} has {size} bytes, an index file has at least {file_bytes(1, 2)}: remove it")
    header = Header(*HEADER.unpack(_read(disk, path, HEADER_BYTES, 0)))
    best, best_score = None, -1.0
    for number in _candidates(disk, path, size, header) if slots is None else [slots]:
        scan = IndexScan(disk, path, size, header, number)
        score = _plausibility(scan) if _divides(size, number) else -1.0
        if score > best_score:
            best, best_score = scan, score
        if best_score == 1.0:
            break
    if best is None or (slots is None and best_score < 0.5):
        raise StoreMismatch(f"{path}: the number of hash slots cannot be determined ({size} bytes): say --index-slots")
    return best


def _candidates(disk: Disk, path: Path, size: int, header: Header) -> Iterator[int]:
    default_slots, rest = divmod(size - HEADER_BYTES, SLOT_BYTES + _DEFAULT_ENTRIES_PER_SLOT * ENTRY_BYTES)
    if not rest:
        yield default_slots
    yield _APACHE_SLOTS
    # The last entry in use ends less than one entry after the last byte that is not zero.
    entries_at = _end_of_data(disk, path, size) - header.entry_count * ENTRY_BYTES
    first = -(-max(entries_at - HEADER_BYTES, SLOT_BYTES) // SLOT_BYTES)
    yield from range(first, first + ENTRY_BYTES // SLOT_BYTES)


def _divides(size: int, slots: int) -> bool:
    room = size - entries_position(slots)
    return slots > 0 and room >= 2 * ENTRY_BYTES and not room % ENTRY_BYTES


def _plausibility(scan: IndexScan) -> float:
    """Share of the newest entries that link to an entry of their own slot; 1 for an empty file, which fits any."""
    first = max(1, scan.end - _SAMPLE)
    entries = scan.entries(first, scan.end - first)
    if not len(entries):
        return 1.0
    fits = [_fits(scan, first + at, entry) for at, entry in enumerate(entries)]
    return sum(fits) / len(fits)


def _fits(scan: IndexScan, number: int, entry: np.void) -> bool:
    key_hash, previous = int(entry["hash"]), int(entry["previous"])
    if key_hash < 0 or int(entry["physical"]) < 0 or not 0 <= previous < number:
        return False
    return not previous or int(scan.entries(previous, 1)[0]["hash"]) % scan.slots == key_hash % scan.slots


def _end_of_data(disk: Disk, path: Path, size: int) -> int:
    step = 1024 * 1024
    for start in range(size - size % step, -1, -step):
        data = _read(disk, path, min(step, size - start), start).rstrip(b"\0")
        if data:
            return start + len(data)
    return 0


def _read(disk: Disk, path: Path, length: int, position: int) -> bytes:
    file = disk.open(path, writable=False)
    try:
        return file.read(length, position)
    finally:
        file.close()
