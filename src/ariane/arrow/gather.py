"""Vectorised gathering of fields, texts and bodies from many positions of one buffer, big-endian as in records.

Texts and bodies are gathered by Arrow. An array laid over the buffer has a value for every text and a value for every
gap between two texts; taking every other value copies the texts, and nothing else, one after the other.

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
"""`pc.take` looks up the function and makes new options in every call."""

Int64s: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]

SOURCE_BYTES_MAX = 2**31 - 1
"""Arrow's offsets have 32 bits; a commit log file and a pull response are smaller."""

np.empty(31 * 1024 * 1024, np.uint8)
"""Allocated and freed once, untouched: glibc then keeps freed blocks of this size for the next batch. Otherwise every
batch begins with new pages, which take longer to get than to fill."""

BORN_HOST_AT, STORE_HOST_AT = 48, 64


class ByteGatherer:
    """One buffer: bytes, a mapped file or a memoryview. All positions are positions in the buffer."""

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
        """An array of overlapping items: one for every byte at which an item can begin."""
        return at_every_byte(self.view, dtype)

    @cached_property
    def uint32(self) -> npt.NDArray[np.uint32]:
        return self.at_every_byte(">u4")

    def int16_at(self, positions: Int64s) -> npt.NDArray[np.int16]:
        """The signed 16-bit number at each position: built from single bytes, which are gathered faster."""
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
        """Whether each position holds these bytes."""
        if len(text) in (2, 4, 8):  # compared as numbers, which is ten times as fast
            kind = np.dtype(f"<u{len(text)}")
            is_equal: Bools = self.at_every_byte(kind)[positions] == np.frombuffer(text, kind)[0]
        else:
            is_equal = (self.blocks(positions, len(text)) == np.frombuffer(text, np.uint8)).all(axis=1)
        return is_equal

    def gather(self, starts: Int64s, lengths: Int64s, kind: pa.DataType) -> pa.Array:
        """One value for each start and length. Starts must ascend and the values must not overlap."""
        count = len(starts)
        if not count:
            return pa.nulls(0, kind)  # pa.array would import pandas
        length = int(lengths[0])
        if length and length == lengths[-1] and all_true(lengths == length):
            return uniform_texts(self.blocks(starts, length), kind)  # copied in two thirds of the time
        over = pa.Array.from_buffers(
            kind, 2 * count - 1, [None, pa.py_buffer(_interleaved_bounds(starts, lengths)), self._arrow]
        )
        return _TAKE.call([over, _even_numbers(count)], _UNCHECKED)


def _interleaved_bounds(starts: Int64s, lengths: Int64s) -> Int64s:
    """Start and end of each value side by side, as 32-bit numbers: two of them made as one of 64 bits."""
    ends = starts + lengths
    low, high = (starts, ends) if sys.byteorder == "little" else (ends, starts)
    both = high << 32
    both |= low
    return both


def all_true(which: Bools) -> bool:
    """Same as `which.all()`, whose Python overhead costs more than checking ten thousand values."""
    return bool(np.count_nonzero(which) == len(which))


def with_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same buffers as binary or as text; the caller must know that the text is UTF-8."""
    return (
        values
        if values.type == kind
        else pa.Array.from_buffers(kind, len(values), values.buffers(), offset=values.offset)
    )


def fixed(data: npt.NDArray[Any], kind: pa.DataType, valid: Bools | None = None) -> pa.Array:
    """Numbers as an Arrow array, without a copy; null where they are not valid."""
    return pa.Array.from_buffers(kind, len(data), [validity_bitmap(valid), pa.py_buffer(data)])


def uniform_texts(blocks: Bytes, kind: pa.DataType) -> pa.Array:
    """Rows of one length as texts, without a copy."""
    count, length = blocks.shape
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(_multiples(length, count + 1)), pa.py_buffer(blocks)])


def uniform_blocks(blocks: npt.NDArray[np.void], kind: pa.DataType) -> pa.Array:
    """Blocks as texts. A field of a gathered array is not contiguous: it is copied by block, not by byte."""
    return uniform_texts(np.ascontiguousarray(blocks).view(np.uint8).reshape(len(blocks), blocks.itemsize), kind)


_LENGTHS_CACHED = 16
_multiples_of: dict[int, npt.NDArray[np.int32]] = {}


def _multiples(length: int, count: int) -> npt.NDArray[np.int32]:
    """0, length, 2 * length, ...: cached, because batch after batch of a topic needs the same."""
    cached = _multiples_of.get(length)
    if cached is None or len(cached) < count:
        if len(_multiples_of) >= _LENGTHS_CACHED:
            _multiples_of.clear()
        cached = _multiples_of[length] = np.arange(count, dtype=np.int32) * np.int32(length)
    return cached[:count]


def validity_bitmap(valid: Bools | None) -> pa.Buffer | None:
    """Arrow's validity bitmap; None when all values are valid."""
    return None if valid is None or all_true(valid) else pa.py_buffer(np.packbits(valid, bitorder="little"))


def data_of(values: pa.Array) -> Bytes:
    """The bytes of all values, one after the other."""
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


def _cached_even_numbers() -> Callable[[int], pa.Array]:
    cached = fixed(np.arange(0, 2, 2, dtype=np.int32), pa.int32())  # pa.array would import pandas

    def even_numbers(count: int) -> pa.Array:
        nonlocal cached
        if len(cached) < count:
            cached = fixed(np.arange(0, 4 * count, 2, dtype=np.int32), pa.int32())
        return cached.slice(0, count)

    return even_numbers


_even_numbers = _cached_even_numbers()
"""0, 2, 4, ...: cached, because every batch needs them."""
