"""Many records of one buffer, and where in it their parts are. Whether the parts are where they should be is checked in
row_checks.py, before rows are made.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ariane.arrow.gather import (
    Bools,
    ByteGatherer,
    Bytes,
    Int64s,
    data_of,
    even_blocks,
    even_texts,
    is_all,
    offsets_of,
    with_type,
)
from ariane.arrow.record_prefixes import Fields
from ariane.wire.hashes import POSITIVE_INT32, unmasked_crc32
from ariane.wire.record.layout import SEAL_BYTES, SEAL_NAME
from ariane.wire.record.read import BrokenRecord, verify

# --- topics ---
#
# The topics of many records, in the form in which they were found: the less they differ, the less is copied.
#
# OneTopic      all records have the same: so it is when a topic is read, and then no name is copied
# EvenTopics    names of one length, gathered together with the lengths around them
# TopicSpans    names of any length, still in the source

_BYTES = pa.binary()


@dataclass(frozen=True, slots=True, eq=False)
class OneTopic:
    name: bytes
    count: int

    def names(self, kind: pa.DataType = _BYTES) -> pa.Array:
        return even_texts(_repeated(self.name, self.count), kind)

    def take(self, which: Int64s | Bools) -> "OneTopic":
        return OneTopic(self.name, int(np.count_nonzero(which)) if which.dtype == np.bool_ else len(which))


@dataclass(frozen=True, slots=True, eq=False)
class EvenTopics:
    blocks: npt.NDArray[np.void]
    """A field of what was gathered, so not one behind the other."""

    def names(self) -> pa.Array:
        return even_blocks(self.blocks, _BYTES)

    def take(self, which: Int64s | Bools) -> "EvenTopics":
        return EvenTopics(self.blocks[which])


@dataclass(frozen=True, slots=True, eq=False)
class TopicSpans:
    source: ByteGatherer
    position: Int64s
    length: Int64s

    def names(self) -> pa.Array:
        return self.source.spans(self.position, self.length, _BYTES)

    def take(self, which: Int64s | Bools) -> "TopicSpans":
        return TopicSpans(self.source, self.position[which], self.length[which])


Topics: TypeAlias = OneTopic | EvenTopics | TopicSpans


def only_name(names: pa.Array) -> bytes | None:
    """The name that all values are, if they are one."""
    if not len(names):
        return None
    data, ends = data_of(names), offsets_of(names)
    length = int(ends[1] - ends[0])
    if length * len(names) != len(data) or not is_all(np.diff(ends) == length):
        return None
    # Each is compared with the one behind it: as one row of bytes, which is far faster than name by name.
    return data[:length].tobytes() if is_all(data[length:] == data[: len(data) - length]) else None


_last_repeated: tuple[bytes, Bytes] = b"", np.empty((0, 0), np.uint8)
"""Batch after batch of a topic needs the same. Only the last one is kept, because it may be large."""


def _repeated(name: bytes, count: int) -> Bytes:
    """The name so many times, as rows of a table that nobody may write to."""
    global _last_repeated  # one assignment, so threads that decode at once only lose each other's
    known, table = _last_repeated
    if known != name or len(table) < count:
        table = np.frombuffer(name * (count + count // 4), np.uint8).reshape(-1, len(name))
        _last_repeated = name, table
    return table[:count]


# ---

_TEXT = pa.string()


@dataclass(frozen=True, eq=False)
class Rows:
    """Some records of a source, with an array for each part."""

    source: ByteGatherer
    fields: Fields
    """Of their heads, by name. Of IPv6 hosts they hold nothing."""
    position: Int64s
    standing: Int64s | None
    """Their physical offsets, if they are known to stand where they say."""
    flags: int
    """Every bit that the sysFlag of some row has, and maybe more: what is not in here needs no further look."""
    born_shift: Int64s | None
    """How much longer than IPv4 the first host is; None when no record has an IPv6 host."""
    store_shift: Int64s | None
    body_position: Int64s
    body_length: Int64s
    text_position: Int64s
    """Of the property text."""
    text_length: Int64s
    found_topics: Topics
    bodies: npt.NDArray[np.void] | None = None
    """Of one length, if they were gathered with the fields."""

    def __len__(self) -> int:
        return len(self.position)

    def field(self, name: str, kind: Any) -> npt.NDArray[Any]:
        """One field, as numbers of this machine; others may have the same array."""
        return self.fields[name].astype(kind, copy=False)

    def size(self, number: int) -> int:
        """How many bytes one record takes."""
        return int(self.source.uint32[self.position[number]])

    @cached_property
    def sys_flag(self) -> npt.NDArray[np.int32]:
        return self.field("sysFlag", np.int32)

    @property
    def physical(self) -> Int64s:
        return self.field("physicalOffset", np.int64) if self.standing is None else self.standing

    @property
    def first_physical(self) -> int:
        """That of the first row, of which there must be one."""
        return int(self.fields["physicalOffset"][0])

    @cached_property
    def topics(self) -> pa.Array:
        """The topics as bytes: whether they are text has to be checked first."""
        return self.found_topics.names()

    def topic_column(self) -> pa.Array:
        """The same as text."""
        found = self.found_topics
        return found.names(_TEXT) if isinstance(found, OneTopic) else with_type(self.topics, _TEXT)

    @cached_property
    def one_topic(self) -> bytes | None:
        """The topic that all rows have, if they have one: so it is when a topic is read, and saves many comparisons."""
        if isinstance(self.found_topics, OneTopic):
            return self.found_topics.name if len(self) else None
        return only_name(self.topics)

    def odd_topics(self) -> Int64s:
        """Numbers of the rows whose topic is not UTF-8."""
        found = self.found_topics
        if isinstance(found, OneTopic):
            return np.arange(0 if _is_utf8(found.name) else len(self))
        return not_text(self.topics)

    def take(self, which: Int64s | Bools) -> "Rows":
        """Some of the rows."""
        parts: dict[str, Any] = {name: getattr(self, name) for name in _PARTS if getattr(self, name) is not None}
        chosen = replace(
            self,
            fields=self.fields.take(which),
            found_topics=self.found_topics.take(which),
            **{name: part[which] for name, part in parts.items()},
        )
        if "topics" in self.__dict__:  # gathered already: that was dearer than choosing from it
            chosen.__dict__["topics"] = _chosen(self.topics, which)
        return chosen

    def first(self, count: int) -> "Rows":
        return self.take(np.arange(count))

    def behind(self, count: int) -> "Rows":
        return self.take(np.arange(count, len(self)))


_SHARED = ("source", "flags")
_PARTS = tuple(name for name in Rows.__dataclass_fields__ if name not in (*_SHARED, "fields", "found_topics"))


def not_text(values: pa.Array) -> Int64s:
    """Numbers of the values that are not UTF-8. Nearly always all bytes are ASCII, which is a single pass."""
    data = data_of(values)
    if not len(data) or np.maximum.reduce(data) < 0x80:
        return np.empty(0, np.int64)
    return np.array([number for number, value in enumerate(values) if not _is_utf8(value.as_py())], np.int64)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _chosen(values: pa.Array, which: Int64s | Bools) -> pa.Array:
    return values.filter(pa.array(which)) if which.dtype == np.bool_ else values.take(pa.array(which))


# --- checksums ---
#
# The checksums of many records: of their bodies, and of whole records that have a seal.

_SEAL_BEGIN = SEAL_NAME[:8]
"""Of a length that is compared as one number (source.py)."""


def checksum_faults(rows: Rows) -> list[tuple[int, str]]:
    """Numbers of the rows that are not what was written, and why. The checksums are worked out one by one."""
    view = rows.source.view
    spans = map(slice, rows.body_position.tolist(), (rows.body_position + rows.body_length).tolist())
    # Without a step in Python for each: the checksums are the largest part of what a rebuild takes to read a log.
    found = np.fromiter(map(unmasked_crc32, map(view.__getitem__, spans)), np.int64, len(rows)) & POSITIVE_INT32
    suspects = (found != rows.field("bodyCRC", np.int64)) & (rows.body_length > 0)
    suspects |= _may_be_sealed(rows)
    faults = []
    for number in np.flatnonzero(suspects).tolist():
        verdict = verify(view, int(rows.position[number]))
        if isinstance(verdict, BrokenRecord):
            faults.append((number, verdict.reason))
    return faults


def _may_be_sealed(rows: Rows) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Those whose last property begins as a seal does, and which therefore are to be read as a whole."""
    sealed = np.zeros(len(rows), np.bool_)
    long_enough = np.flatnonzero(rows.text_length >= SEAL_BYTES)
    at = rows.text_position[long_enough] + rows.text_length[long_enough] - SEAL_BYTES
    sealed[long_enough] = rows.source.equal(at, _SEAL_BEGIN)
    return sealed
