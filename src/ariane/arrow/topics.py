"""The topics of many records, in the form in which they were found: the less they differ, the less is copied.

OneTopic      all records have the same: so it is when a topic is read, and then no name is copied
EvenTopics    names of one length, gathered together with the lengths around them
TopicSpans    names of any length, still in the source
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ariane.arrow.source import Bools, Bytes, Int64s, Source, data_of, even_blocks, even_texts, is_all, offsets_of

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
    source: Source
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
