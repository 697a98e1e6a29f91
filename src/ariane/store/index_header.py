"""What the header of an index file says, and how it changes. Pure values; the bytes are in `index_layout`."""

from typing import NamedTuple

import numpy as np

from ariane.store.index_entries import KeyRows
from ariane.store.index_layout import HEADER
from ariane.store.key_hash import Int32s, Int64s

SECOND_MS = 1000


class Header(NamedTuple):
    """In the order of the layout."""

    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_physical: int
    end_physical: int
    slot_count: int
    entry_count: int

    @classmethod
    def following(cls, end_timestamp_ms: int, end_physical: int) -> "Header":
        """Of a new file: it begins where the one before it ends, until its first entry says otherwise."""
        return cls(end_timestamp_ms, end_timestamp_ms, end_physical, end_physical, slot_count=0, entry_count=1)

    @classmethod
    def parse(cls, data: bytes) -> "Header":
        header = cls(*HEADER.unpack(data))
        # Apache counts from 1, but the file says 0 until the first entry is there.
        return header._replace(entry_count=max(header.entry_count, 1))

    @property
    def is_empty(self) -> bool:
        return self.entry_count == 1

    def with_rows(self, rows: KeyRows, new_slots: int) -> "Header":
        """After these rows were added, of which `new_slots` were the first of their slot."""
        return Header(
            begin_timestamp_ms=int(rows.timestamps_ms[0]) if self.is_empty else self.begin_timestamp_ms,
            end_timestamp_ms=int(rows.timestamps_ms[-1]),
            begin_physical=int(rows.physical[0]) if self.is_empty else self.begin_physical,
            end_physical=int(rows.physical[-1]),
            slot_count=self.slot_count + new_slots,
            entry_count=self.entry_count + len(rows.hashes),
        )

    def cut(self, entry_count: int, slot_count: int, last_physical: int, last_seconds: int) -> "Header":
        """After all entries from `entry_count` on were forgotten."""
        end_ms = self.end_timestamp_ms
        if last_physical == self.begin_physical:
            end_ms = self.begin_timestamp_ms
        elif entry_count < self.entry_count:
            # An entry keeps the second only; the end of that second leaves no message outside.
            end_ms = min(end_ms, self.begin_timestamp_ms + last_seconds * SECOND_MS + SECOND_MS - 1)
        return self._replace(
            end_timestamp_ms=end_ms, end_physical=last_physical, slot_count=slot_count, entry_count=entry_count
        )

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether messages of that time may be in the file, even if the clock was once set back."""
        return begin_ms <= max(self.begin_timestamp_ms, self.end_timestamp_ms) and end_ms >= self.begin_timestamp_ms

    def times_ms(self, numbers: Int64s, seconds: Int32s) -> Int64s:
        """When the messages of entries were stored, to the second.

        The first entry is the begin itself: what it holds are the seconds since the end of the file before.
        """
        return self.begin_timestamp_ms + np.where(numbers > 1, seconds, 0).astype(np.int64) * SECOND_MS
