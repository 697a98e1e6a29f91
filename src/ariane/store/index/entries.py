"""Layout, key hashes, entries and header of index files, as pure functions on bytes and arrays.

An index file is a hash table on disk from `topic#key` to physical offsets, chained newest first:

    bytes 0 to 39: the header
         0      8  beginTimestamp    store time of the first message, ms
         8      8  endTimestamp      of the last
        16      8  beginPhysical     physical offset of the first message
        24      8  endPhysical       of the last
        32      4  slotCount         how many slots are in use
        36      4  entryCount        starts at 1: entry 0 is never used, so that 0 can mean "none"
    then `slots` times 4 bytes: the newest entry of each slot, 0 for none
    then `entries` times 20 bytes:
         0      4  keyHash           absolute value of Java's String.hashCode of `topic#key`; slot = keyHash % slots
         4      8  physicalOffset
        12      4  seconds           since beginTimestamp, 0 to 2^31 - 1
        16      4  previous          entry of the same slot, 0 for none

No key is stored: a reader has to compare the key of the message that it finds. A file is named by the local time of its
creation, yyyyMMddHHmmssSSS.
"""

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from sys import intern
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ariane.wire.hashes import java_hash
from ariane.wire.properties import PAIR_END

HEADER = struct.Struct(">qqqqii")
HEADER_BYTES = HEADER.size
SLOT_BYTES = 4
ENTRY = struct.Struct(">iqii")
ENTRY_BYTES = ENTRY.size


def file_bytes(slots: int, entries: int) -> int:
    return HEADER_BYTES + slots * SLOT_BYTES + entries * ENTRY_BYTES


def entries_position(slots: int) -> int:
    return HEADER_BYTES + slots * SLOT_BYTES


# --- hashes of keys ---
#
#     keyHash = |String.hashCode of `topic#key`|, and 0 where Java's Math.abs overflows
#
# For many keys at once, they are joined in one array s of UTF-16 units. Multiplied by the powers of the inverse of 31
# (it is odd, so modulo 2^32 it has one), the sum of any span is its hash, except for a factor:
#
#     hash of s[start:end] = sum of s[i] * 31^(end - 1 - i) = 31^(end - 1) * sum of s[i] * 31^-i
#
# `topic#` is added as its hash * 31^(length of the key), so that it is hashed once and not with every key.

Uint32s: TypeAlias = NDArray[np.uint32]
Int32s: TypeAlias = NDArray[np.int32]
Int64s: TypeAlias = NDArray[np.int64]
_Units: TypeAlias = NDArray[np.uint8] | NDArray[np.uint16]

_MODULUS = 1 << 32
_UNITS_MAX = 1 << 15
"""Units that are hashed at once: any property fits, and 800 keys of 40 characters. Four times as many are not hashed
faster, but their arrays are so large that malloc gives them back to the kernel each time: twice the time."""
_CACHED_TOPICS = 1 << 16  # more than brokers have: to hash a name for each message would cost as much as its append
_CACHED_LENGTHS = 256
_HASH_SIGN = ord("#")
_SEPARATOR = PAIR_END  # of properties, so a key, which is a part of one, does not have it
_SEPARATOR_UNIT = ord(_SEPARATOR)


def _powers(base: int) -> Uint32s:
    factors = np.full(_UNITS_MAX + 1, base, np.uint32)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint32)


_POWERS = _powers(31)
_INVERSE_POWERS = _powers(pow(31, -1, _MODULUS))


class _TopicHashes(dict[str, int]):
    """Java's hash of each topic alone, unsigned. A dict and not an lru_cache, whose look-up costs twice as much: it
    moves the topic in a linked list, and with thousands of topics each step of that is a cache miss of the CPU."""

    def __missing__(self, topic: str) -> int:
        if len(self) >= _CACHED_TOPICS:
            self.clear()
        return self.setdefault(intern(topic), java_hash(topic) % _MODULUS)


topic_hashes = _TopicHashes()
topic_hash = topic_hashes.__getitem__
"""The hash of one topic."""


def key_hash(topic: str, key: str) -> int:
    """The hash of one `topic#key`."""
    size = abs(java_hash(f"{topic}#{key}"))
    return size if size < 1 << 31 else 0


def column_hashes(topic: str, keys: NDArray[np.uint8]) -> Int32s:
    """The hashes of keys of one length, a row for each, in ASCII: no text is made of them."""
    length = keys.shape[1]
    before = topic_hash(topic) * 31 + _HASH_SIGN  # the hash of `topic#`, the same for all
    return _absolute(row_hashes(keys) + np.uint32(before * pow(31, length, _MODULUS) % _MODULUS))


def row_hashes(rows: NDArray[np.uint8]) -> Uint32s:
    """Java's hash of each row of ASCII, unsigned; at most _UNITS_MAX columns."""
    powers = _falling_powers(rows.shape[1])
    hashes: Uint32s = np.einsum("ij,j->i", rows, powers, dtype=np.uint32)  # no copy of the rows, unlike `@`
    return hashes


@lru_cache(maxsize=_CACHED_LENGTHS)
def _falling_powers(count: int) -> Uint32s:
    """From 31^(count - 1) down to 1, contiguous in memory: a reversed view would take twice the time."""
    return _POWERS[:count][::-1].copy()


def key_hashes(topics: Uint32s, keys: Sequence[str]) -> Int32s:
    """The hashes of many keys; `topics` holds the topic_hash that belongs to each."""
    return _absolute(_joined_hashes(topics, keys))


def buffer_key_hashes(topics: Uint32s, data: NDArray[np.uint8], offsets: Int64s) -> Int32s:
    """The same as key_hashes for ASCII keys that lie one behind the other in `data`: no text is made of them.

    Key n is data[offsets[n]:offsets[n + 1]]. No key is empty or longer than _UNITS_MAX.
    """
    before = topics * np.uint32(31) + np.uint32(_HASH_SIGN)
    return _absolute(before * _POWERS[np.diff(offsets)] + _span_hashes(data, offsets))


def _absolute(hashes: Uint32s) -> Int32s:
    """Java's Math.abs, and 0 for the smallest number, which stays negative there."""
    return np.maximum(np.abs(hashes.view(np.int32)), 0)


def _span_hashes(units: _Units, offsets: Int64s) -> Uint32s:
    """Java's hash of each span of the units, unsigned: number n is units[offsets[n]:offsets[n + 1]]. None is empty or
    longer than _UNITS_MAX."""
    hashes = np.empty(len(offsets) - 1, np.uint32)
    begin = 0
    while begin < len(hashes):  # as many as there are powers for
        first = offsets[begin]
        end = max(begin + 1, int(np.searchsorted(offsets, first + _UNITS_MAX, side="right")) - 1)
        part, own = units[first : offsets[end]], offsets[begin : end + 1] - first
        sums = np.add.reduceat(part * _INVERSE_POWERS[: len(part)], own[:-1], dtype=np.uint32)
        hashes[begin:end] = sums * _POWERS[own[1:] - 1]
        begin = end
    return hashes


def _joined_hashes(topics: Uint32s, keys: Sequence[str]) -> Uint32s:
    joined = _SEPARATOR + _SEPARATOR.join(keys)  # one before each: no span is empty, which reduceat could not sum
    if joined.isascii():
        units: _Units = np.frombuffer(joined.encode("ascii"), np.uint8)
    else:  # surrogatepass: Java strings may hold a lone surrogate, and hash it like any other unit
        units = np.frombuffer(joined.encode("utf-16-le", "surrogatepass"), "<u2")
    offsets = np.append(np.flatnonzero(units == _SEPARATOR_UNIT), len(units))  # a third of the time of len() of each
    lengths = np.diff(offsets)
    if len(lengths) != len(keys) or (len(units) > _UNITS_MAX and lengths.max() > _UNITS_MAX):
        return np.fromiter(map(_joined_hash, topics.tolist(), keys), np.uint32, len(keys))
    before = topics * np.uint32(31) + np.uint32(_HASH_SIGN - _SEPARATOR_UNIT)  # the span has the separator
    hashes: Uint32s = before * _POWERS[lengths - 1] + _span_hashes(units, offsets)
    return hashes


def _joined_hash(topic: int, key: str) -> int:
    """One by one: a key that has the separator in it, which no property can, or a giant one."""
    units = 1 + len(key.encode("utf-16-le", "surrogatepass")) // 2
    return (topic * pow(31, units, _MODULUS) + java_hash("#" + key)) % _MODULUS


# --- many entries at once, as arrays ---

KeyedMessage: TypeAlias = tuple[int, int, str, Sequence[str]]
"""Physical offset, store timestamp in ms, topic, and the keys: the unique key first, then each word of KEYS."""

Entries: TypeAlias = NDArray[Any]
"""Rows of ENTRY_TYPE."""

ENTRY_TYPE = np.dtype([("hash", ">i4"), ("physical", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
assert ENTRY_TYPE.itemsize == ENTRY_BYTES

SLOT_TYPE = np.dtype(">i4")

_SECONDS_MAX = 2**31 - 1


class KeyRows(NamedTuple):
    """One row per key as parallel arrays, in the order of the log."""

    hashes: Int32s
    physical: Int64s
    timestamps_ms: Int64s

    @classmethod
    def empty(cls, count: int) -> "KeyRows":
        """Uninitialised arrays, to be filled."""
        return cls(np.empty(count, np.int32), np.empty(count, np.int64), np.empty(count, np.int64))

    def part(self, begin: int, end: int) -> "KeyRows":
        return KeyRows(self.hashes[begin:end], self.physical[begin:end], self.timestamps_ms[begin:end])


NO_ROWS = KeyRows.empty(0)


def previous_entries(slots: Int32s, heads: Int32s, first_number: int) -> Int32s:
    """For each new entry the number of the previous one in its slot: the slot's head, or an entry of this batch."""
    previous = heads.copy()
    ordered = np.sort(slots)  # numbers alone are sorted three times as fast as with their positions, and few are equal
    shared = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(shared):
        order = np.flatnonzero(np.isin(slots, shared))
        order = order[np.argsort(slots[order], kind="stable")]
        repeats = slots[order[1:]] == slots[order[:-1]]
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


class RebuiltSlots(NamedTuple):
    heads: Int32s
    entry_count: int
    """As in the header: one more than there are entries."""
    last_physical: int
    last_seconds: int
    reached_limit: bool
    """Whether the next entry is valid and at or after the limit; False if it is invalid or there is none."""


def rebuild_slots(chunks: Iterable[Entries], slots: int, begin_physical: int, limit: int) -> RebuiltSlots:
    """Computes the slots from the entries, from number 1 on, of messages before `limit`; stops at an invalid entry.

    Slots hold nothing that the entries do not: the head of a slot is the last entry whose hash falls into it. A power
    cut may leave slots, header and entries on disk in different states; but synced entries never change again, so they
    are the part to rely on.
    """
    heads: Int32s = np.zeros(slots, SLOT_TYPE)
    number, physical, seconds = 1, begin_physical, 0
    for entries in chunks:
        valid = entries[: _valid_length(entries, number, physical)]
        kept = valid[: np.searchsorted(valid["physical"], limit)]
        heads[kept["hash"] % slots] = np.arange(number, number + len(kept))  # the last one of a slot wins
        if len(kept):
            number, physical, seconds = number + len(kept), int(kept["physical"][-1]), int(kept["seconds"][-1])
        if len(kept) < len(entries):
            return RebuiltSlots(heads, number, physical, seconds, reached_limit=len(kept) < len(valid))
    return RebuiltSlots(heads, number, physical, seconds, reached_limit=False)


def _valid_length(entries: Entries, first_number: int, physical_min: int) -> int:
    """How many of the leading entries are valid: offsets never decrease, and links only lead back.

    Zeros count as never written, though they might be the first message of a log, with a key whose hash is 0: that one
    is added again.
    """
    physical, previous = entries["physical"], entries["previous"]
    numbers = np.arange(first_number, first_number + len(entries))
    is_sound = (entries["hash"] >= 0) & (entries["seconds"] >= 0) & (previous >= 0) & (previous < numbers)
    is_sound &= (physical >= physical_min) & ((physical > 0) | (entries["hash"] > 0))
    is_sound[1:] &= physical[1:] >= physical[:-1]
    return len(entries) if is_sound.all() else int(np.argmin(is_sound))


# --- header ---

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
        """The header of a new file: it begins where the previous file ends, until its first entry is added."""
        return cls(end_timestamp_ms, end_timestamp_ms, end_physical, end_physical, slot_count=0, entry_count=1)

    @classmethod
    def parse(cls, data: bytes) -> "Header":
        header = cls(*HEADER.unpack(data))
        # Apache counts from 1, but the file holds 0 until the first entry is added.
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

    def truncated(self, entry_count: int, slot_count: int, last_physical: int, last_seconds: int) -> "Header":
        """After all entries from `entry_count` on were dropped."""
        end_ms = self.end_timestamp_ms
        if last_physical == self.begin_physical:
            end_ms = self.begin_timestamp_ms
        elif entry_count < self.entry_count:
            # An entry stores whole seconds; the end of that second excludes no message.
            end_ms = min(end_ms, self.begin_timestamp_ms + last_seconds * SECOND_MS + SECOND_MS - 1)
        return self._replace(
            end_timestamp_ms=end_ms, end_physical=last_physical, slot_count=slot_count, entry_count=entry_count
        )

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether messages of that time may be in the file, even if the clock was set back once."""
        return begin_ms <= max(self.begin_timestamp_ms, self.end_timestamp_ms) and end_ms >= self.begin_timestamp_ms

    def times_ms(self, numbers: Int64s, seconds: Int32s) -> Int64s:
        """Store times of the messages of entries, to the second.

        The first entry is the begin itself: its field holds the seconds since the end of the previous file.
        """
        return self.begin_timestamp_ms + np.where(numbers > 1, seconds, 0).astype(np.int64) * SECOND_MS
