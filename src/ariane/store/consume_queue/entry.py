"""Entries of consume queues: the location of a message in the commit log and its tags code, 20 bytes each.

    offset  bytes  field
         0      8  physicalOffset   of the record in the commit log
         8      4  size             of the record; 0 means: no entry was written here
        12      8  tagsCode         of the TAGS property, sign-extended; the delivery time for a delayed message;
                                    or, far below zero, the address of a unit in consumequeue_ext

A queue that starts past 0 has its first file filled up with (0, 0x7FFFFFFF, 0), so that every entry is at its offset
times 20.

A unit of consumequeue_ext holds what an entry cannot. Apache writes units for its SQL filters; Ariane only reads them:

    offset  bytes  field
         0      2  size             20 + B; -1 in place of a unit: the file ends here
         2      8  tagsCode         moved here, because the entry holds the unit's address
        10      8  storeTimestamp   ms
        18      2  bitmapBytes      B, 0 for none
        20      B  bitmap           a Bloom filter's bits: the groups whose filter the message passed

An address is an offset over all files of the queue's extension, and a unit never crosses two of them.
"""

import struct
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ariane.errors import StoreCorrupt, StoreError
from ariane.store.layout import offset_name, offset_of

if TYPE_CHECKING:  # commands that print offsets import this module, and need no ctypes
    from ariane.store.disk import Disk

ENTRY = struct.Struct(">qiq")
ENTRY_BYTES = ENTRY.size
FILLER = ENTRY.pack(0, 0x7FFFFFFF, 0)

# An extension's address is its offset plus the smallest long; no 32-bit hash is that low.
_EXTENSION_BASE = -(2**63)
_EXTENSION_MAX = -(2**31) - 1


def extension_offset(tags_code: int) -> int | None:
    """The offset in consumequeue_ext when the third field is an address, else None."""
    return tags_code - _EXTENSION_BASE if tags_code <= _EXTENSION_MAX else None


# --- units of consumequeue_ext ---

_HEAD = struct.Struct(">hqqh")
UNIT_BYTES_MAX = 32767


class ExtensionUnit(msgspec.Struct, frozen=True):
    tags_code: int
    store_timestamp_ms: int
    bitmap: bytes


def decode_unit(data: bytes, position: int = 0) -> ExtensionUnit:
    """The unit at `position`; StoreCorrupt when there is none."""
    if position < 0 or len(data) - position < _HEAD.size:
        raise StoreCorrupt(f"{max(len(data) - position, 0)} bytes of a queue extension's unit, {_HEAD.size} at least")
    size, tags_code, store_timestamp_ms, bitmap_bytes = _HEAD.unpack_from(data, position)
    if size == -1:
        raise StoreCorrupt("the end of a file of the queue extension, where an entry says that a unit is")
    start = position + _HEAD.size
    if bitmap_bytes < 0 or size != _HEAD.size + bitmap_bytes or position + size > len(data):
        raise StoreCorrupt(f"a queue extension's unit of {size} bytes with a bitmap of {bitmap_bytes}")
    return ExtensionUnit(tags_code, store_timestamp_ms, data[start : start + bitmap_bytes])


class QueueExtension:
    """The extension of one queue. A file is opened for each read: they are rare, and many queues have none."""

    def __init__(self, disk: "Disk", directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        bases = (offset_of(name) for name in disk.names(directory))
        self._bases = sorted(base for base in bases if base is not None)

    def unit(self, offset: int) -> ExtensionUnit:
        """The unit at an entry's `extension_offset`; StoreCorrupt when none is there."""
        index = bisect_right(self._bases, offset) - 1
        if index < 0:
            raise StoreCorrupt(f"{self._directory} has no file for the unit at {offset}")
        base = self._bases[index]
        try:
            return decode_unit(self._read(base, offset - base))
        except StoreCorrupt as error:
            raise StoreCorrupt(f"{self._directory / offset_name(base)}, byte {offset - base}: {error}") from None

    def _read(self, base: int, position: int) -> bytes:
        """Reads enough for the largest unit."""
        path = self._directory / offset_name(base)
        try:
            file = self._disk.open(path, writable=False)
            try:
                return file.read(UNIT_BYTES_MAX, position)
            finally:
                file.close()
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from error
