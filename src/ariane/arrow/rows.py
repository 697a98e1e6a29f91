"""Rows: many validated records of one buffer, with the positions of their parts. validate.py makes them."""

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
    all_true,
    data_of,
    offsets_of,
    uniform_blocks,
    uniform_texts,
    with_type,
)
from ariane.arrow.record_prefixes import HeaderFields
from ariane.wire.hashes import POSITIVE_INT32, unmasked_crc32
from ariane.wire.record.layout import CHECKSUM_BYTES, CHECKSUM_PREFIX
from ariane.wire.record.read import BrokenRecord, verify

# --- topics: three representations, because the less the names differ, the less has to be copied ---

_BYTES = pa.binary()


@dataclass(frozen=True, slots=True, eq=False)
class OneTopic:
    """All records have the same topic, as when one topic is read: no name is copied."""

    name: bytes
    count: int

    def names(self, kind: pa.DataType = _BYTES) -> pa.Array:
        return uniform_texts(_repeat_name(self.name, self.count), kind)

    def take(self, which: Int64s | Bools) -> "OneTopic":
        return OneTopic(self.name, int(np.count_nonzero(which)) if which.dtype == np.bool_ else len(which))


@dataclass(frozen=True, slots=True, eq=False)
class UniformTopics:
    """Names of one length, gathered together with the lengths around them."""

    blocks: npt.NDArray[np.void]
    """A field of a gathered array, so not contiguous."""

    def names(self) -> pa.Array:
        return uniform_blocks(self.blocks, _BYTES)

    def take(self, which: Int64s | Bools) -> "UniformTopics":
        return UniformTopics(self.blocks[which])


@dataclass(frozen=True, slots=True, eq=False)
class TopicSpans:
    """Names of any length, still in the source."""

    source: ByteGatherer
    position: Int64s
    length: Int64s

    def names(self) -> pa.Array:
        return self.source.gather(self.position, self.length, _BYTES)

    def take(self, which: Int64s | Bools) -> "TopicSpans":
        return TopicSpans(self.source, self.position[which], self.length[which])


Topics: TypeAlias = OneTopic | UniformTopics | TopicSpans


def only_name(names: pa.Array) -> bytes | None:
    """The name that all values have, or None."""
    if not len(names):
        return None
    data, ends = data_of(names), offsets_of(names)
    length = int(ends[1] - ends[0])
    if length * len(names) != len(data) or not all_true(np.diff(ends) == length):
        return None
    # Each is compared with the next one, all as one array of bytes: far faster than name by name.
    return data[:length].tobytes() if all_true(data[length:] == data[: len(data) - length]) else None


_last_repeated: tuple[bytes, Bytes] = b"", np.empty((0, 0), np.uint8)
"""Batch after batch of a topic needs the same. Only the last one is cached, because it may be large."""


def _repeat_name(name: bytes, count: int) -> Bytes:
    """The name `count` times, as rows of a read-only table."""
    global _last_repeated  # one assignment, so threads that decode at once only lose each other's
    cached, table = _last_repeated
    if cached != name or len(table) < count:
        table = np.frombuffer(name * (count + count // 4), np.uint8).reshape(-1, len(name))
        _last_repeated = name, table
    return table[:count]


# --- rows ---

_TEXT = pa.string()


@dataclass(frozen=True, eq=False)
class Rows:
    """Some records of a source, with one array for each part."""

    source: ByteGatherer
    fields: HeaderFields
    """Header fields, by name. They do not include IPv6 hosts."""
    position: Int64s
    verified_offsets: Int64s | None
    """The physical offsets, if those in the records were checked against the position in the log."""
    flags: int
    """The union of the bits of all sysFlags, and maybe more: a bit that is not set here need not be checked by row."""
    born_shift: Int64s | None
    """By how many bytes the born host is longer than IPv4; None when no record has an IPv6 host."""
    store_shift: Int64s | None
    body_position: Int64s
    body_length: Int64s
    properties_position: Int64s
    """Of the properties, which are one text."""
    properties_length: Int64s
    topic_data: Topics
    bodies: npt.NDArray[np.void] | None = None
    """Bodies of one length, if they were gathered with the fields."""

    def __len__(self) -> int:
        return len(self.position)

    def field(self, name: str, kind: Any) -> npt.NDArray[Any]:
        """One field in native byte order; the array may be shared and must not be written to."""
        return self.fields[name].astype(kind, copy=False)

    def size(self, index: int) -> int:
        """The size of one record in bytes."""
        return int(self.source.uint32[self.position[index]])

    @cached_property
    def sys_flag(self) -> npt.NDArray[np.int32]:
        return self.field("sysFlag", np.int32)

    @property
    def physical(self) -> Int64s:
        return self.field("physicalOffset", np.int64) if self.verified_offsets is None else self.verified_offsets

    @property
    def first_physical(self) -> int:
        """Physical offset of the first row; there must be one."""
        return int(self.fields["physicalOffset"][0])

    @cached_property
    def topics(self) -> pa.Array:
        """The topics as bytes: whether they are UTF-8 has to be checked first."""
        return self.topic_data.names()

    def topic_column(self) -> pa.Array:
        """The topics as text."""
        topics = self.topic_data
        return topics.names(_TEXT) if isinstance(topics, OneTopic) else with_type(self.topics, _TEXT)

    @cached_property
    def one_topic(self) -> bytes | None:
        """The topic that all rows have, or None: one topic is the common case, and saves many comparisons."""
        if isinstance(self.topic_data, OneTopic):
            return self.topic_data.name if len(self) else None
        return only_name(self.topics)

    def invalid_topics(self) -> Int64s:
        """Indexes of the rows whose topic is not UTF-8."""
        topics = self.topic_data
        if isinstance(topics, OneTopic):
            return np.arange(0 if _is_utf8(topics.name) else len(self))
        return not_utf8(self.topics)

    def take(self, which: Int64s | Bools) -> "Rows":
        """Some of the rows."""
        parts: dict[str, Any] = {name: getattr(self, name) for name in _PARTS if getattr(self, name) is not None}
        chosen = replace(
            self,
            fields=self.fields.take(which),
            topic_data=self.topic_data.take(which),
            **{name: part[which] for name, part in parts.items()},
        )
        if "topics" in self.__dict__:  # gathered already: gathering again costs more than selecting from it
            chosen.__dict__["topics"] = _take(self.topics, which)
        return chosen

    def first(self, count: int) -> "Rows":
        return self.take(np.arange(count))

    def skip(self, count: int) -> "Rows":
        return self.take(np.arange(count, len(self)))


_SHARED = ("source", "flags")
_PARTS = tuple(name for name in Rows.__dataclass_fields__ if name not in (*_SHARED, "fields", "topic_data"))


def not_utf8(values: pa.Array) -> Int64s:
    """Indexes of the values that are not UTF-8. Nearly always all are ASCII, which is checked in a single pass."""
    data = data_of(values)
    if not len(data) or np.maximum.reduce(data) < 0x80:
        return np.empty(0, np.int64)
    return np.array([index for index, value in enumerate(values) if not _is_utf8(value.as_py())], np.int64)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _take(values: pa.Array, which: Int64s | Bools) -> pa.Array:
    return values.filter(pa.array(which)) if which.dtype == np.bool_ else values.take(pa.array(which))


# --- checksums of bodies, and of whole records that have one (a property of 5.x) ---

_CHECKSUM_BEGIN = CHECKSUM_PREFIX[:8]
"""8 bytes, which `ByteGatherer.equal` compares as one number."""


def checksum_errors(rows: Rows) -> list[tuple[int, str]]:
    """Indexes of the rows that fail their checksum, with the reason. Checksums are computed one by one."""
    view = rows.source.view
    spans = map(slice, rows.body_position.tolist(), (rows.body_position + rows.body_length).tolist())
    # With map, without Python code for each record: checksums are the largest part of reading a log in a rebuild.
    actual = np.fromiter(map(unmasked_crc32, map(view.__getitem__, spans)), np.int64, len(rows)) & POSITIVE_INT32
    suspects = (actual != rows.field("bodyCRC", np.int64)) & (rows.body_length > 0)
    suspects |= _may_have_record_checksum(rows)
    problems = []
    for index in np.flatnonzero(suspects).tolist():
        verdict = verify(view, int(rows.position[index]))
        if isinstance(verdict, BrokenRecord):
            problems.append((index, verdict.reason))
    return problems


def _may_have_record_checksum(rows: Rows) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Rows whose last property begins like a record checksum: their records have to be read as a whole."""
    candidates = np.zeros(len(rows), np.bool_)
    long_enough = np.flatnonzero(rows.properties_length >= CHECKSUM_BYTES)
    at = rows.properties_position[long_enough] + rows.properties_length[long_enough] - CHECKSUM_BYTES
    candidates[long_enough] = rows.source.equal(at, _CHECKSUM_BEGIN)
    return candidates
