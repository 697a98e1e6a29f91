"""Bytes seen as arrays: fields gathered from many places at once, big-endian as records hold them.

Texts and bodies are gathered by Arrow. An array that lies over the buffer has a value for every text and a value for
every gap between two texts; taking every other value copies the texts, and nothing else, one behind the other.

    buffer   ....AAAAA.......BBB....CCCCCC..
    offsets      0    1       2  3   4     5        take 0, 2, 4  ->  AAAAABBBCCCCCC
"""

import sys
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ariane.errors import RecordError
from ariane.wire.record.numpy_fields import at_every_byte

_TAKE = pc.get_function("array_take")
_UNCHECKED = pc.TakeOptions(boundscheck=False)
"""`pc.take` looks for the one and makes the other anew in every call."""

Int64s: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]

SOURCE_BYTES_MAX = 2**31 - 1
"""Arrow's offsets have 32 bits; a commit log file and a pull answer are smaller."""

np.empty(31 * 1024 * 1024, np.uint8)
"""Given and taken back untouched, once: glibc then keeps freed blocks of this size for the next batch. Otherwise every
batch begins with new pages, and to get those takes longer than to fill them."""

BORN_HOST_AT, STORE_HOST_AT = 48, 64


class ByteGatherer:
    """One buffer: bytes, a mapped file, a memoryview. All positions are those in the buffer."""

    def __init__(self, buffer: Any) -> None:
        self.bytes: Bytes = np.frombuffer(buffer, np.uint8)
        if len(self.bytes) > SOURCE_BYTES_MAX:
            raise RecordError(f"{len(self.bytes)} bytes at once, at most {SOURCE_BYTES_MAX} can be decoded: read less")
        self.int8 = self.bytes.view(np.int8)
        self.view = memoryview(buffer).cast("B") if len(self.bytes) else memoryview(b"")
        self._arrow = pa.py_buffer(self.view)

    def __len__(self) -> int:
        return len(self.bytes)

    def at_every_byte(self, dtype: Any) -> npt.NDArray[Any]:
        """An array with one overlapping item for every byte that can begin one."""
        return at_every_byte(self.view, dtype)

    @cached_property
    def uint32(self) -> npt.NDArray[np.uint32]:
        return self.at_every_byte(">u4")

    def shorts(self, positions: Int64s) -> npt.NDArray[np.int16]:
        """The signed 16-bit number at each position: from its bytes, which are gathered faster than it would be."""
        high = self.bytes[positions].astype(np.int16)
        high <<= 8
        high |= self.bytes[positions + 1]
        return high

    def blocks(self, positions: Int64s, length: int) -> Bytes:
        """The `length` bytes at each position, as rows of a table."""
        if not length:
            return np.empty((len(positions), 0), np.uint8)
        gathered = self.at_every_byte(_block(length))[positions]
        return gathered.view(np.uint8).reshape(len(positions), length)

    def equal(self, positions: Int64s, text: bytes) -> Bools:
        """Whether these bytes stand at each position."""
        if len(text) in (2, 4, 8):  # compared as numbers, which is ten times as fast
            kind = np.dtype(f"<u{len(text)}")
            is_equal: Bools = self.at_every_byte(kind)[positions] == np.frombuffer(text, kind)[0]
        else:
            is_equal = (self.blocks(positions, len(text)) == np.frombuffer(text, np.uint8)).all(axis=1)
        return is_equal

    def spans(self, starts: Int64s, lengths: Int64s, kind: pa.DataType) -> pa.Array:
        """The bytes from each start on, one value each. Starts must ascend and spans must not overlap."""
        count = len(starts)
        if not count:
            return pa.nulls(0, kind)  # pa.array would import pandas
        length = int(lengths[0])
        if length and length == lengths[-1] and is_all(lengths == length):
            return even_texts(self.blocks(starts, length), kind)  # copied in two thirds of the time
        over = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(_pairs(starts, lengths)), self._arrow])
        return _TAKE.call([over, _evens(count)], _UNCHECKED)


def _pairs(starts: Int64s, lengths: Int64s) -> Int64s:
    """Start and end of each span side by side, as 32-bit numbers: two of them made as one of 64 bits."""
    ends = starts + lengths
    low, high = (starts, ends) if sys.byteorder == "little" else (ends, starts)
    both = high << 32
    both |= low
    return both


def is_all(which: Bools) -> bool:
    """As `which.all()`, whose way through Python costs more than the look at ten thousand values."""
    return bool(np.count_nonzero(which) == len(which))


def with_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same buffers as binary or as text; that the text is UTF-8 is for the caller to know."""
    return (
        values
        if values.type == kind
        else pa.Array.from_buffers(kind, len(values), values.buffers(), offset=values.offset)
    )


def fixed(data: npt.NDArray[Any], kind: pa.DataType, valid: Bools | None = None) -> pa.Array:
    """Numbers as an Arrow array, not copied; null where they are not valid."""
    return pa.Array.from_buffers(kind, len(data), [bitmap(valid), pa.py_buffer(data)])


def even_texts(blocks: Bytes, kind: pa.DataType) -> pa.Array:
    """Rows of one length as texts, not copied."""
    count, length = blocks.shape
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(_multiples(length, count + 1)), pa.py_buffer(blocks)])


def even_blocks(blocks: npt.NDArray[np.void], kind: pa.DataType) -> pa.Array:
    """Blocks as texts. Those of a field of what was gathered, so not one behind the other, are copied as blocks, not
    byte by byte."""
    return even_texts(np.ascontiguousarray(blocks).view(np.uint8).reshape(len(blocks), blocks.itemsize), kind)


_LENGTHS_KEPT = 16
_multiples_of: dict[int, npt.NDArray[np.int32]] = {}


def _multiples(length: int, count: int) -> npt.NDArray[np.int32]:
    """0, length, 2 * length, ...: kept, because batch after batch of a topic needs the same."""
    known = _multiples_of.get(length)
    if known is None or len(known) < count:
        if len(_multiples_of) >= _LENGTHS_KEPT:
            _multiples_of.clear()
        known = _multiples_of[length] = np.arange(count, dtype=np.int32) * np.int32(length)
    return known[:count]


def bitmap(valid: Bools | None) -> pa.Buffer | None:
    """Arrow's way to say which values are there; None for all."""
    return None if valid is None or is_all(valid) else pa.py_buffer(np.packbits(valid, bitorder="little"))


def data_of(values: pa.Array) -> Bytes:
    """The bytes of all values, one behind the other."""
    buffer = values.buffers()[2]
    if buffer is None or not len(values):
        return np.empty(0, np.uint8)
    offsets = offsets_of(values)
    return np.frombuffer(buffer, np.uint8)[offsets[0] : offsets[-1]]


def offsets_of(values: pa.Array) -> npt.NDArray[np.int32]:
    """Where each value begins in the buffer of all values, and where the last one ends."""
    return np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]


@lru_cache(maxsize=256)
def _block(length: int) -> np.dtype[np.void]:
    return np.dtype(f"V{length}")


def _growing() -> Callable[[int], pa.Array]:
    known = fixed(np.arange(0, 2, 2, dtype=np.int32), pa.int32())  # pa.array would import pandas

    def evens(count: int) -> pa.Array:
        nonlocal known
        if len(known) < count:
            known = fixed(np.arange(0, 4 * count, 2, dtype=np.int32), pa.int32())
        return known.slice(0, count)

    return evens


_evens = _growing()
"""0, 2, 4, ...: kept, because every batch needs them."""
