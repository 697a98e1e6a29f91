"""Many entries of an index at once, as arrays: from messages with keys to entries, and from entries to slots.

Pure: no file is touched here. The layout is drawn in `ariane.store.index_layout`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ariane.store.index_layout import ENTRY_BYTES
from ariane.store.key_hash import Int32s, Int64s

KeyedMessage: TypeAlias = tuple[int, int, str, Sequence[str]]
"""Physical offset, store timestamp in ms, topic, and the keys: the unique key first, then each word of KEYS."""

Entries: TypeAlias = NDArray[Any]
"""Rows of ENTRY_TYPE."""

ENTRY_TYPE = np.dtype([("hash", ">i4"), ("physical", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
assert ENTRY_TYPE.itemsize == ENTRY_BYTES

SLOT_TYPE = np.dtype(">i4")

_SECONDS_MAX = 2**31 - 1


class KeyRows(NamedTuple):
    """A row for each key: parallel arrays, in the order of the log."""

    hashes: Int32s
    physical: Int64s
    timestamps_ms: Int64s

    @classmethod
    def empty(cls, count: int) -> "KeyRows":
        """To be filled."""
        return cls(np.empty(count, np.int32), np.empty(count, np.int64), np.empty(count, np.int64))

    def part(self, begin: int, end: int) -> "KeyRows":
        return KeyRows(self.hashes[begin:end], self.physical[begin:end], self.timestamps_ms[begin:end])


NO_ROWS = KeyRows.empty(0)


def previous_entries(slots: Int32s, heads: Int32s, first_number: int) -> Int32s:
    """For each new entry the number of the one before it in its slot: the slot's head, or a neighbour of this batch."""
    previous = heads.copy()
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    repeats = ordered[1:] == ordered[:-1]
    previous[order[1:][repeats]] = order[:-1][repeats] + first_number
    return previous


def seconds_since(begin_ms: int, timestamps_ms: Int64s) -> Int32s:
    """Whole seconds as an entry can hold them; 0 while a file has no begin."""
    if begin_ms <= 0:
        return np.zeros(len(timestamps_ms), np.int32)
    seconds = (timestamps_ms - begin_ms) // 1000
    return np.minimum(np.maximum(seconds, 0), _SECONDS_MAX).astype(np.int32)


def pack_entries(rows: KeyRows, seconds: Int32s, previous: Int32s) -> Entries:
    entries = np.empty(len(rows.hashes), ENTRY_TYPE)
    entries["hash"] = rows.hashes
    entries["physical"] = rows.physical
    entries["seconds"] = seconds
    entries["previous"] = previous
    return entries


class Rebuilt(NamedTuple):
    heads: Int32s
    entry_count: int
    """As in the header: one more than there are entries."""
    last_physical: int
    last_seconds: int
    reached_limit: bool
    """Whether the last entry that was kept stands before one at or behind the limit, and not before nonsense."""


def rebuild(chunks: Iterable[Entries], slots: int, begin_physical: int, limit: int) -> Rebuilt:
    """The slots made anew from the entries, from number 1 on, of messages before `limit`; nonsense is the end.

    Slots hold nothing that the entries do not say: the head of a slot is the last entry whose hash falls into it. A
    power cut may leave slots, header and entries on disk each in another state; but entries that were synced never
    change again, so they are what can be believed.
    """
    heads: Int32s = np.zeros(slots, SLOT_TYPE)
    number, physical, seconds = 1, begin_physical, 0
    for entries in chunks:
        sound = entries[: _sound_length(entries, number, physical)]
        kept = sound[: np.searchsorted(sound["physical"], limit)]
        heads[kept["hash"] % slots] = np.arange(number, number + len(kept))  # of one slot, the last one stays
        if len(kept):
            number, physical, seconds = number + len(kept), int(kept["physical"][-1]), int(kept["seconds"][-1])
        if len(kept) < len(entries):
            return Rebuilt(heads, number, physical, seconds, reached_limit=len(kept) < len(sound))
    return Rebuilt(heads, number, physical, seconds, reached_limit=False)


def _sound_length(entries: Entries, first_number: int, physical_min: int) -> int:
    """How many of the leading entries make sense: offsets that never fall, and links that only lead back.

    Zeros were never written, though they might be the first message of a log, with a key whose hash is 0: that one is
    put again.
    """
    physical, previous = entries["physical"], entries["previous"]
    numbers = np.arange(first_number, first_number + len(entries))
    is_sound = (entries["hash"] >= 0) & (entries["seconds"] >= 0) & (previous >= 0) & (previous < numbers)
    is_sound &= (physical >= physical_min) & ((physical > 0) | (entries["hash"] > 0))
    is_sound[1:] &= physical[1:] >= physical[:-1]
    return len(entries) if is_sound.all() else int(np.argmin(is_sound))
