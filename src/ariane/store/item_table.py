"""The items of batches as the rows of one table, when all have the same lengths.

What a loop of a program sends has often one shape: bodies of one length, the same properties, keys counted up. Then
every field of every item is a column, and numpy reads, checks and copies a column of hundreds of messages at the price
of a few single ones. Items stand back to back, and so do the bodies of batches that are joined: one table holds as many
batches as came together. wire/batch.py draws an item.

    | size | ........ | flag | bodyLength | body      | textLength | text           |
    | size | ........ | flag | bodyLength | body      | textLength | text           |
"""

import struct
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ariane.wire.properties import PROPERTIES_BYTES_MAX

Rows: TypeAlias = NDArray[Any]
"""Of a structured type, or of pieces of bytes."""

Bytes2D: TypeAlias = NDArray[np.uint8]
"""A row for each message, a byte in each column."""

_BODY_AT = 20
_BARE_BYTES = 22
_unpack_first = struct.Struct(">i12xi").unpack_from
_TYPES_CACHED = 1024


class ItemShape(NamedTuple):
    """The lengths that all items share."""

    size: int
    body_bytes: int
    text_bytes: int


def shape_of(batch: bytes | memoryview) -> ItemShape | None:
    """The lengths of the first item; None when they are empty, or when not all items can have them."""
    if len(batch) <= _BARE_BYTES:
        return None
    size, body_bytes = _unpack_first(batch)
    text_bytes = size - _BARE_BYTES - body_bytes
    if body_bytes < 1 or not 1 <= text_bytes <= PROPERTIES_BYTES_MAX or len(batch) % size:
        return None
    return ItemShape(size, body_bytes, text_bytes)


class ItemTable(NamedTuple):
    rows: Rows
    shape: ItemShape

    @classmethod
    def of(cls, batches: bytes | memoryview, shape: ItemShape) -> "ItemTable | None":
        """None when a row has other lengths than `shape`, which is the shape of each batch's first item."""
        rows = np.frombuffer(batches, _item_type(shape))
        for name, length in zip(("size", "body_bytes", "text_bytes"), shape, strict=True):
            if np.count_nonzero(rows[name] != length):  # a third of the time of any()
                return None
        return cls(rows, shape)

    def texts(self) -> Bytes2D:
        """The property texts, byte by byte."""
        size, _, text_bytes = self.shape
        return self.rows.view(np.uint8).reshape(len(self.rows), size)[:, size - text_bytes :]


@lru_cache(maxsize=_TYPES_CACHED)
def _item_type(shape: ItemShape) -> "np.dtype[Any]":
    size, body_bytes, text_bytes = shape
    text_at = _BODY_AT + body_bytes
    # Pieces of bytes (V) are copied row by row: half the time of slices of a byte array.
    fields = {
        "size": (">i4", 0),
        "flag": (">i4", 12),
        "body_bytes": (">i4", 16),
        "body": (f"V{body_bytes}", _BODY_AT),
        "text_bytes": (">i2", text_at),
        "text": (f"V{text_bytes}", text_at + 2),
    }
    formats, offsets = zip(*fields.values(), strict=True)
    return np.dtype({"names": list(fields), "formats": formats, "offsets": offsets, "itemsize": size})
