"""Many records of one buffer, and where in it their parts are. Whether the parts are where they should be is checked in
row_checks.py, before rows are made.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ariane.arrow.source import HEAD_TYPE, Bools, Int64s, Source, data_of, even_texts, is_all


@dataclass(frozen=True, eq=False)
class Rows:
    """Some records of a source, with an array for each part."""

    source: Source
    heads: npt.NDArray[np.void]
    """Their first fields, unnamed: to choose from arrays with named fields is slow. Of IPv6 hosts they hold nothing."""
    base: int | None
    """The physical offset of the source's first byte, if the records are known to stand where they say."""
    position: Int64s
    sys_flag: npt.NDArray[np.int32]
    born_shift: Int64s | None
    """How much longer than IPv4 the first host is; None when no record has an IPv6 host."""
    store_shift: Int64s | None
    body_position: Int64s
    body_length: Int64s
    topic_position: Int64s
    topic_length: Int64s
    text_position: Int64s
    """Of the property text."""
    text_length: Int64s
    topic_blocks: npt.NDArray[np.void] | None = None
    """The topics, if they have one length and were gathered with what stands around them."""

    def __len__(self) -> int:
        return len(self.position)

    def field(self, name: str, kind: Any) -> npt.NDArray[Any]:
        """One field of the heads, as numbers of this machine."""
        return self._fields[name].astype(kind)

    @cached_property
    def _fields(self) -> npt.NDArray[np.void]:
        return self.heads.view(HEAD_TYPE)

    def size(self, number: int) -> int:
        """How many bytes one record takes."""
        return int(self._fields["size"][number])

    @property
    def physical(self) -> Int64s:
        return self.field("physicalOffset", np.int64) if self.base is None else self.position + self.base

    @property
    def first_physical(self) -> int:
        """That of the first row, of which there must be one."""
        return int(self._fields["physicalOffset"][0] if self.base is None else self.position[0] + self.base)

    @cached_property
    def flags(self) -> int:
        """The bits that the sysFlag of some row has: what no row has needs no further look."""
        return int(np.bitwise_or.reduce(self.sys_flag)) if len(self) else 0

    @cached_property
    def topics(self) -> pa.Array:
        """The topics as bytes: whether they are text has to be checked first."""
        lengths, blocks = self.topic_length, self.topic_blocks
        if blocks is not None:
            return even_texts(blocks.copy().view(np.uint8).reshape(len(self), blocks.itemsize), pa.binary())
        if len(lengths) and is_all(lengths == lengths[0]):
            return even_texts(self.source.blocks(self.topic_position, int(lengths[0])), pa.binary())
        return self.source.spans(self.topic_position, lengths, pa.binary())

    @cached_property
    def one_topic(self) -> bytes | None:
        """The topic that all rows have, if they have one: so it is when a topic is read, and saves many comparisons."""
        lengths = self.topic_length
        if not len(self) or not is_all(lengths == lengths[0]):
            return None
        names, length = data_of(self.topics), int(lengths[0])
        # Each is compared with the one behind it: as one row of bytes, which is far faster than name by name.
        return names[:length].tobytes() if is_all(names[length:] == names[: len(names) - length]) else None

    def take(self, which: Int64s | Bools) -> "Rows":
        """Some of the rows."""
        parts: dict[str, Any] = {name: getattr(self, name) for name in _PARTS if getattr(self, name) is not None}
        chosen = replace(self, **{name: part[which] for name, part in parts.items()})
        if "topics" in self.__dict__:  # gathered already: that was dearer than choosing from it
            chosen.__dict__["topics"] = _chosen(self.topics, which)
        return chosen

    def first(self, count: int) -> "Rows":
        return self.take(np.arange(count))

    def behind(self, count: int) -> "Rows":
        return self.take(np.arange(count, len(self)))


_PARTS = tuple(name for name in Rows.__dataclass_fields__ if name not in ("source", "base"))


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
