"""Reads slots and entries of an index file and checks them. A thread may do so while entries are added.

By plain reads and not through a mapping: other threads run while a page is read from disk, and a truncated file is a
StoreCorrupt and not a SIGBUS.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ariane.errors import StoreCorrupt
from ariane.store.disk import File
from ariane.store.index.entries import (
    ENTRY_BYTES,
    ENTRY_TYPE,
    HEADER_BYTES,
    SLOT_BYTES,
    Entries,
    Int64s,
    entries_position,
)

_SCANNED_ENTRIES = 50_000
_SPAN_MIN = 204  # entries: 4 KiB
_SPAN_MAX = 50_000
_DENSE = 16


class IndexReader:
    def __init__(self, path: Path, file: File, slots: int) -> None:
        self._path = path
        self._file = file
        self._slots = slots

    def position(self, number: int) -> int:
        """Position of an entry in the file."""
        return entries_position(self._slots) + number * ENTRY_BYTES

    def head(self, slot: int) -> int:
        """The number of the newest entry of a slot."""
        return int.from_bytes(self._read(SLOT_BYTES, HEADER_BYTES + slot * SLOT_BYTES), "big", signed=True)

    def chain(self, slot: int, head: int, entry_count: int) -> Iterator[tuple[Int64s, Entries]]:
        """The entries of a slot and their numbers, newest first, one span of the file at a time.

        All entries whose hash falls into a slot are in its chain, so a link is followed only from one span to the next.
        A busy key has millions of entries: the denser they are, the longer the next span. Every link must lead back, so
        the iteration always ends. StoreCorrupt where one does not.
        """
        number, above, span = head, entry_count, _SPAN_MIN
        while number:
            if not 0 < number < above:
                raise StoreCorrupt(f"{self._path}: slot {slot} leads to entry {number}, but not from behind it")
            first = max(number + 1 - span, 1)
            entries = self._entries(first, number + 1)
            hits = np.flatnonzero(entries["hash"] % self._slots == slot)[::-1]
            if not len(hits) or hits[0] != number - first:
                raise StoreCorrupt(f"{self._path}: slot {slot} leads to entry {number}, which is of another slot")
            yield hits + first, entries[hits]
            above, number = first + int(hits[-1]), int(entries["previous"][hits[-1]])
            span = min(span * 4, _SPAN_MAX) if len(hits) >= _DENSE else _SPAN_MIN

    def scan(self, entry_count: int) -> Iterator[Entries]:
        """The entries from number 1 on, many at a time, as far as they are readable."""
        for number in range(1, entry_count, _SCANNED_ENTRIES):
            try:
                yield self._entries(number, min(number + _SCANNED_ENTRIES, entry_count))
            except StoreCorrupt:
                return

    def physical_at(self, number: int) -> int | None:
        """The physical offset in an entry, None when it cannot be read."""
        try:
            return int(self._entries(number, number + 1)["physical"][0])
        except StoreCorrupt:
            return None

    def _entries(self, first: int, end: int) -> Entries:
        return np.frombuffer(self._read((end - first) * ENTRY_BYTES, self.position(first)), ENTRY_TYPE)

    def _read(self, length: int, position: int) -> bytes:
        try:
            data = self._file.read(length, position)
        except OSError as error:
            raise StoreCorrupt(f"{self._path} cannot be read at byte {position}: {error.strerror}") from error
        if len(data) != length:
            raise StoreCorrupt(f"{self._path} ends at byte {position + len(data)}: it was truncated")
        return data
