"""Record prefixes: the first bytes of many records, gathered in one pass.

A prefix is the fixed-size header. If a sample of the records has short bodies of one length and the same topic, the
prefix is everything up to the properties, because gathering costs one copy per position and a copy of 200 bytes takes
hardly longer than one of 10:

    header | body | length | topic | length of the properties
    |<----------------------- prefix ----------------------->|

Prefixes are gathered in steps, and their parts are split into columns while they are in the processor's cache. Whether
the other records are like the sample is checked later (validate.py); if they are not, the header columns are still
right.
"""

from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ariane.arrow.gather import Bools, ByteGatherer, Int64s
from ariane.wire.record.layout import TOPIC_BYTES_MAX_V1
from ariane.wire.record.numpy_fields import HEAD_BYTES, HEAD_TYPE

# --- header fields of many records, by name ---

Array: TypeAlias = npt.NDArray[Any]


class HeaderColumns:
    """One array for each field that nearly every reader needs; other fields are gathered on first use.

    Only for records with IPv4 hosts. The arrays are shared and must not be written to.
    """

    __slots__ = ("_columns", "_positions", "_source")

    def __init__(self, source: ByteGatherer, positions: Int64s, columns: dict[str, Array]) -> None:
        self._source = source
        self._positions = positions
        self._columns = columns

    def __getitem__(self, name: str) -> Array:
        column = self._columns.get(name)
        if column is None:
            kind, at = field_layout(name)
            column = self._columns[name] = self._source.at_every_byte(kind)[self._positions + at]
        return column

    def take(self, which: Int64s | Bools) -> "HeaderColumns":
        chosen = {name: column[which] for name, column in self._columns.items()}
        return HeaderColumns(self._source, self._positions[which], chosen)


class HeaderArray:
    """Whole headers, one after the other: for few records, or for records with IPv6 hosts, whose fields were moved."""

    __slots__ = ("_headers",)

    def __init__(self, headers: npt.NDArray[np.void]) -> None:
        self._headers = headers

    def __getitem__(self, name: str) -> Array:
        column: Array = self._headers[name]
        return column

    def take(self, which: Int64s | Bools) -> "HeaderArray":
        """As blocks without field names: indexing arrays with named fields is slow."""
        headers = self._headers
        blocks = np.ndarray(headers.shape, f"V{headers.itemsize}", headers)[which]
        return HeaderArray(np.ndarray(blocks.shape, headers.dtype, blocks))


HeaderFields: TypeAlias = HeaderColumns | HeaderArray


assert HEAD_TYPE.names is not None
HEAD_NAMES = HEAD_TYPE.names


def field_layout(name: str) -> tuple[np.dtype[Any], int]:
    """The type of a field, and its position in a header."""
    assert HEAD_TYPE.fields is not None
    kind, at, *_ = HEAD_TYPE.fields[name]
    return kind, at


# --- prefixes ---

TEXT_LENGTH_BYTES = 2
_BODY_BYTES_MAX = 192
"""Bodies in prefixes are copied twice, which for longer ones costs more than the gathers that are saved."""
_SAMPLES = 8
_BODY_LENGTH = Struct(">i")
_BODY_LENGTH_AT = HEAD_BYTES - _BODY_LENGTH.size
WORD = 8
_BYTES_PER_STEP = 256 * 1024
"""Bytes of prefixes per step: they and the columns made from them should fit into the cache of one processor core."""
_SMALL_HEADERS_BYTES = 1024 * 1024
"""Headers that fit into the cache are not worth splitting into columns."""


class UniformShape(NamedTuple):
    """The body length and the topic that records have in common."""

    body_length: int
    topic: bytes
    """With its length byte."""

    @property
    def width(self) -> int:
        return HEAD_BYTES + self.body_length + len(self.topic) + TEXT_LENGTH_BYTES


class UniformParts(NamedTuple):
    """The parts after the header, of records that seem to have one shape."""

    shape: UniformShape
    bodies: npt.NDArray[np.void]
    suffixes: list[Int64s]
    """The words of 8 bytes that hold topic and properties length; see validate.py."""


class RecordPrefixes(NamedTuple):
    fields: HeaderFields
    """Of the headers; `sizeAndMagic` is the first two as one."""
    uniform: UniformParts | None


def gather_prefixes(source: ByteGatherer, positions: Int64s, limit: int) -> RecordPrefixes:
    """The prefixes of the records at these ascending positions, at each of which a header must fit before `limit`."""
    shape = _sampled_shape(source, positions, limit) if len(positions) else None
    if shape is None and len(positions) * HEAD_BYTES <= _SMALL_HEADERS_BYTES:
        return RecordPrefixes(
            HeaderArray(np.ndarray(positions.shape, _HEADS, source.blocks(positions, HEAD_BYTES))), None
        )
    if shape is None:
        return RecordPrefixes(HeaderColumns(source, positions, _split_into_columns(source, positions, _HEAD)), None)
    columns = _split_into_columns(source, positions, _prefix_layout(shape.body_length, len(shape.topic)))
    bodies = columns.pop(_BODY)
    suffixes = [columns.pop(_suffix_word(number)) for number in range(suffix_words(len(shape.topic)))]
    return RecordPrefixes(HeaderColumns(source, positions, columns), UniformParts(shape, bodies, suffixes))


def _split_into_columns(source: ByteGatherer, positions: Int64s, layout: "_PrefixLayout") -> dict[str, Array]:
    columns = {name: np.empty(len(positions), kind) for name, kind in layout.columns.items()}
    step = _BYTES_PER_STEP // layout.kind.itemsize
    for begin in range(0, len(positions), step):
        some = positions[begin : begin + step]
        prefixes = np.ndarray(some.shape, layout.kind, source.blocks(some, layout.kind.itemsize))
        for name, column in columns.items():
            column[begin : begin + step] = prefixes[name]
    return columns


def _sampled_shape(source: ByteGatherer, positions: Int64s, limit: int) -> UniformShape | None:
    """The shape that a sample of the records shares; None when there is none, or a prefix would cross the limit."""
    view = source.view
    sample: list[int] = positions[:: -(-len(positions) // _SAMPLES)].tolist()
    (length,) = _BODY_LENGTH.unpack_from(view, sample[0] + _BODY_LENGTH_AT)
    topic = topic_at(source, sample[0] + HEAD_BYTES + length, limit) if 0 < length <= _BODY_BYTES_MAX else b""
    shape, last = UniformShape(length, topic), int(positions[-1])
    is_uniform = (
        topic and last + shape.width <= limit and all(_has_shape(view, at, shape) for at in (*sample[1:], last))
    )
    return shape if is_uniform else None


def topic_at(source: ByteGatherer, at: int, limit: int) -> bytes:
    """The topic at a position, with its length byte; empty when none fits there or it is too long for version 1."""
    length = source.view[at] if at < limit else 0
    topic = bytes(source.view[at : at + 1 + length])
    return topic if 0 < length <= TOPIC_BYTES_MAX_V1 and len(topic) == 1 + length else b""


def _has_shape(view: memoryview, at: int, shape: UniformShape) -> bool:
    topic_at = at + HEAD_BYTES + shape.body_length
    return (
        _BODY_LENGTH.unpack_from(view, at + _BODY_LENGTH_AT) == (shape.body_length,)
        and view[topic_at : topic_at + len(shape.topic)] == shape.topic
    )


def suffix_words(topic_length: int) -> int:
    """How many words hold a topic with its length byte and the length of the properties."""
    return -(-(topic_length + TEXT_LENGTH_BYTES) // WORD)


class _PrefixLayout(NamedTuple):
    kind: np.dtype[np.void]
    columns: dict[str, np.dtype[Any]]
    """The types of the columns: native byte order."""


_Parts = dict[str, tuple[np.dtype[Any], int]]
"""Types of fields, and their positions."""


def _type(parts: _Parts, width: int) -> np.dtype[np.void]:
    kinds, offsets = [kind for kind, _ in parts.values()], [at for _, at in parts.values()]
    return np.dtype({"names": list(parts), "formats": kinds, "offsets": offsets, "itemsize": width})


def _layout(parts: _Parts, width: int) -> _PrefixLayout:
    columns = {name: kind.newbyteorder("=") for name, (kind, _) in parts.items()}
    columns["bodyLength"] = np.dtype(np.int64)  # as all lengths and positions
    return _PrefixLayout(_type(parts, width), columns)


_NEEDED = ("queueId", "queueOffset", "physicalOffset", "sysFlag", "bornTimestamp", "storeTimestamp", "bodyLength")
_WORD = np.dtype(">i8")
_SIZE_AND_MAGIC: _Parts = {"sizeAndMagic": (_WORD, 0)}
_HEAD_PARTS = _SIZE_AND_MAGIC | {name: field_layout(name) for name in _NEEDED}
_HEAD = _layout(_HEAD_PARTS, HEAD_BYTES)
_HEADS = _type(_SIZE_AND_MAGIC | {name: field_layout(name) for name in HEAD_NAMES}, HEAD_BYTES)
_BODY = "body"


def _suffix_word(number: int) -> str:
    return f"suffix {number}"


@lru_cache(maxsize=256)
def _prefix_layout(body_length: int, topic_length: int) -> _PrefixLayout:
    width, words = HEAD_BYTES + body_length + topic_length + TEXT_LENGTH_BYTES, suffix_words(topic_length)
    suffixes = {_suffix_word(number): (_WORD, width - WORD * (words - number)) for number in range(words)}
    body = {_BODY: (np.dtype(f"V{body_length}"), HEAD_BYTES)}
    return _layout(_HEAD_PARTS | body | suffixes, width)
