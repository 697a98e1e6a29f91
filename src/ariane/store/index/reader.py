"""Reads slots and entries of an index file, whatever its bytes are. A thread may do so while entries are added.

By plain reads and not through a mapping: while a page comes from the disk other threads run, and a file that somebody
cut short is a StoreCorrupt and not a SIGBUS.
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
        """Where an entry stands in the file."""
        return entries_position(self._slots) + number * ENTRY_BYTES

    def head(self, slot: int) -> int:
        """The number of the newest entry of a slot."""
        return int.from_bytes(self._read(SLOT_BYTES, HEADER_BYTES + slot * SLOT_BYTES), "big", signed=True)

    def chain(self, slot: int, head: int, entry_count: int) -> Iterator[tuple[Int64s, Entries]]:
        """The entries of a slot and their numbers, newest first, those that stand near each other at a time.

        All entries whose hash falls into a slot are in its chain, so only the way from one stretch of the file to the
        next follows a link. A busy key has millions of entries: the denser they are, the longer the next stretch.
        Every link must lead back: that ends any walk. StoreCorrupt where one does not.
        """
        number, above, span = head, entry_count, _SPAN_MIN
        while number:
            if not 0 < number < above:
                raise StoreCorrupt(f"{self._path}: slot {slot} leads to entry {number}, but not from behind it")
            first = max(number + 1 - span, 1)
            entries = self._entries(first, number + 1)
            places = np.flatnonzero(entries["hash"] % self._slots == slot)[::-1]
            if not len(places) or places[0] != number - first:
                raise StoreCorrupt(f"{self._path}: slot {slot} leads to entry {number}, which is of another slot")
            yield places + first, entries[places]
            above, number = first + int(places[-1]), int(entries["previous"][places[-1]])
            span = min(span * 4, _SPAN_MAX) if len(places) >= _DENSE else _SPAN_MIN

    def scan(self, entry_count: int) -> Iterator[Entries]:
        """The entries from number 1 on, many at a time, as far as they can be read."""
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
            raise StoreCorrupt(f"{self._path} ends at byte {position + len(data)}: it was cut short")
        return data
