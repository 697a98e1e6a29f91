"""Many records of one buffer, and where in it their parts are. Whether the parts are where they should be is checked in
row_checks.py, before rows are made.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ariane.arrow.head_fields import Fields
from ariane.arrow.source import Bools, Int64s, Source, data_of, with_type
from ariane.arrow.topics import OneTopic, Topics, only_name

_TEXT = pa.string()


@dataclass(frozen=True, eq=False)
class Rows:
    """Some records of a source, with an array for each part."""

    source: Source
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
