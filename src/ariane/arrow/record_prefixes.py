"""The first bytes of many records, gathered at once: their heads, and more if bodies and topics seem to be alike.

To gather costs a copy for each place, and a copy of 200 bytes takes hardly longer than one of 10. So where some samples
have short bodies of one length and the same topic, everything up to the properties is gathered in one go:

    head | body | length | topic | length of the properties
    |<---------------------- front ---------------------->|

Some at a time, and while those are in the processor's cache their parts are dealt out to columns. That the others are
like the samples is not known yet; if they are not, the columns made of their heads are as good as any.
"""

from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ariane.arrow.gather import Bools, ByteGatherer, Int64s
from ariane.wire.record.layout import TOPIC_BYTES_MAX_V1
from ariane.wire.record.numpy_fields import HEAD_BYTES, HEAD_TYPE

# --- head_fields ---
#
# The fields of many heads, by name.
#
# Columns    one array for each field that nearly every reader asks for; others are gathered when somebody asks for them
# PrefixFields   whole heads, one behind the other: few, or those of another layout, whose fields were moved

Array: TypeAlias = npt.NDArray[Any]


class Columns:
    """Of records at these positions, with IPv4 hosts. Arrays are shared: nobody may write to them."""

    __slots__ = ("_columns", "_positions", "_source")

    def __init__(self, source: ByteGatherer, positions: Int64s, columns: dict[str, Array]) -> None:
        self._source = source
        self._positions = positions
        self._columns = columns

    def __getitem__(self, name: str) -> Array:
        column = self._columns.get(name)
        if column is None:
            kind, at = place_of(name)
            column = self._columns[name] = self._source.at_every_byte(kind)[self._positions + at]
        return column

    def take(self, which: Int64s | Bools) -> "Columns":
        chosen = {name: column[which] for name, column in self._columns.items()}
        return Columns(self._source, self._positions[which], chosen)


class PrefixFields:
    __slots__ = ("_heads",)

    def __init__(self, heads: npt.NDArray[np.void]) -> None:
        self._heads = heads

    def __getitem__(self, name: str) -> Array:
        column: Array = self._heads[name]
        return column

    def take(self, which: Int64s | Bools) -> "PrefixFields":
        """As blocks without names: to choose from arrays with named fields is slow."""
        heads = self._heads
        blocks = np.ndarray(heads.shape, f"V{heads.itemsize}", heads)[which]
        return PrefixFields(np.ndarray(blocks.shape, heads.dtype, blocks))


Fields: TypeAlias = Columns | PrefixFields


assert HEAD_TYPE.names is not None
HEAD_NAMES = HEAD_TYPE.names


def place_of(name: str) -> tuple[np.dtype[Any], int]:
    """The type of a field, and where it is in a head."""
    assert HEAD_TYPE.fields is not None
    kind, at, *_ = HEAD_TYPE.fields[name]
    return kind, at


# ---

TEXT_LENGTH_BYTES = 2
_BODY_BYTES_MAX = 192
"""They are copied twice, which for longer ones costs more than the gathers that are saved."""
_SAMPLES = 8
_BODY_LENGTH = Struct(">i")
_BODY_LENGTH_AT = HEAD_BYTES - _BODY_LENGTH.size
WORD = 8
_BYTES_AT_ONCE = 256 * 1024
"""Of fronts: they, and what is made of them, shall be in a processor's own cache."""
_HEADS_BYTES_FEW = 1024 * 1024
"""PrefixFields that stay there are not worth dealing out."""


class Alike(NamedTuple):
    """What records may have in common."""

    body_length: int
    topic: bytes
    """With its length before it."""

    @property
    def width(self) -> int:
        return HEAD_BYTES + self.body_length + len(self.topic) + TEXT_LENGTH_BYTES


class More(NamedTuple):
    """Of records that seem to be alike, what is behind their heads."""

    alike: Alike
    bodies: npt.NDArray[np.void]
    tails: list[Int64s]
    """Words, as many as hold what is behind the body; see usual_tails.py."""


class RecordPrefixes(NamedTuple):
    fields: Fields
    """Of the heads; `sizeAndMagic` is the first two as one."""
    more: More | None


def gather_fronts(source: ByteGatherer, positions: Int64s, limit: int) -> RecordPrefixes:
    """Of the records at these positions, which ascend, and at each of which a head must fit before `limit`."""
    alike = _seem_alike(source, positions, limit) if len(positions) else None
    if alike is None and len(positions) * HEAD_BYTES <= _HEADS_BYTES_FEW:
        return RecordPrefixes(
            PrefixFields(np.ndarray(positions.shape, _HEADS, source.blocks(positions, HEAD_BYTES))), None
        )
    if alike is None:
        return RecordPrefixes(Columns(source, positions, _dealt_out(source, positions, _HEAD)), None)
    columns = _dealt_out(source, positions, _front(alike.body_length, len(alike.topic)))
    bodies = columns.pop(_BODY)
    tails = [columns.pop(_tail(number)) for number in range(tail_words(len(alike.topic)))]
    return RecordPrefixes(Columns(source, positions, columns), More(alike, bodies, tails))


def _dealt_out(source: ByteGatherer, positions: Int64s, front: "_Front") -> dict[str, Array]:
    columns = {name: np.empty(len(positions), kind) for name, kind in front.columns.items()}
    step = _BYTES_AT_ONCE // front.kind.itemsize
    for begin in range(0, len(positions), step):
        some = positions[begin : begin + step]
        fronts = np.ndarray(some.shape, front.kind, source.blocks(some, front.kind.itemsize))
        for name, column in columns.items():
            column[begin : begin + step] = fronts[name]
    return columns


def _seem_alike(source: ByteGatherer, positions: Int64s, limit: int) -> Alike | None:
    """What some records have in common; None when nothing, or when a front would not be inside."""
    view = source.view
    places: list[int] = positions[:: -(-len(positions) // _SAMPLES)].tolist()
    (length,) = _BODY_LENGTH.unpack_from(view, places[0] + _BODY_LENGTH_AT)
    topic = topic_at(source, places[0] + HEAD_BYTES + length, limit) if 0 < length <= _BODY_BYTES_MAX else b""
    alike, last = Alike(length, topic), int(positions[-1])
    is_alike = topic and last + alike.width <= limit and all(_is_like(view, at, alike) for at in (*places[1:], last))
    return alike if is_alike else None


def topic_at(source: ByteGatherer, at: int, limit: int) -> bytes:
    """The topic that stands there, with its length before it; empty when it is not there or not a usual one."""
    length = source.view[at] if at < limit else 0
    topic = bytes(source.view[at : at + 1 + length])
    return topic if 0 < length <= TOPIC_BYTES_MAX_V1 and len(topic) == 1 + length else b""


def _is_like(view: memoryview, at: int, alike: Alike) -> bool:
    topic_at = at + HEAD_BYTES + alike.body_length
    return (
        _BODY_LENGTH.unpack_from(view, at + _BODY_LENGTH_AT) == (alike.body_length,)
        and view[topic_at : topic_at + len(alike.topic)] == alike.topic
    )


def tail_words(topic_length: int) -> int:
    """How many words hold a topic, with its length, and the length of the properties."""
    return -(-(topic_length + TEXT_LENGTH_BYTES) // WORD)


class _Front(NamedTuple):
    kind: np.dtype[np.void]
    columns: dict[str, np.dtype[Any]]
    """What is made of its parts: numbers of this machine."""


_Parts = dict[str, tuple[np.dtype[Any], int]]
"""Types of fields, and where they are."""


def _type(parts: _Parts, width: int) -> np.dtype[np.void]:
    kinds, places = [kind for kind, _ in parts.values()], [at for _, at in parts.values()]
    return np.dtype({"names": list(parts), "formats": kinds, "offsets": places, "itemsize": width})


def _front_of(parts: _Parts, width: int) -> _Front:
    columns = {name: kind.newbyteorder("=") for name, (kind, _) in parts.items()}
    return _Front(_type(parts, width), {**columns, "bodyLength": np.dtype(np.int64)})  # as all lengths and places


_NEEDED = ("queueId", "queueOffset", "physicalOffset", "sysFlag", "bornTimestamp", "storeTimestamp", "bodyLength")
_WORD = np.dtype(">i8")
_BOTH: _Parts = {"sizeAndMagic": (_WORD, 0)}
_HEAD_PARTS = _BOTH | {name: place_of(name) for name in _NEEDED}
_HEAD = _front_of(_HEAD_PARTS, HEAD_BYTES)
_HEADS = _type(_BOTH | {name: place_of(name) for name in HEAD_NAMES}, HEAD_BYTES)
_BODY = "body"


def _tail(number: int) -> str:
    return f"tail {number}"


@lru_cache(maxsize=256)
def _front(body_length: int, topic_length: int) -> _Front:
    width, words = HEAD_BYTES + body_length + topic_length + TEXT_LENGTH_BYTES, tail_words(topic_length)
    tails = {_tail(number): (_WORD, width - WORD * (words - number)) for number in range(words)}
    body = {_BODY: (np.dtype(f"V{body_length}"), HEAD_BYTES)}
    return _front_of(_HEAD_PARTS | body | tails, width)
