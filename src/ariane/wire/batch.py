"""The body of a batch send: several messages of one topic, which share the fields of the request's header.

bytes  field             of each item; items stand back to back
-----  ----------------  ---------------------------------------------------------------
    4  totalSize         of the item, this field included
    4  magic             0: no broker reads it, nor do we
    4  bodyCRC           0: likewise; the broker works out its own
    4  flag              the user's own
    4  bodyLength
    B  body
    2  propertiesLength  signed, so at most 32767
    P  properties        UTF-8, see properties.py; each item has its own keys, tags and UNIQ_KEY
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import add
from typing import NamedTuple

import msgspec

from ariane.errors import RecordError
from ariane.wire.properties import PROPERTIES_BYTES_MAX

_HEAD = struct.Struct(">iiiii")
_PROPERTIES_LENGTH = struct.Struct(">h")
_HEAD_BYTES = _HEAD.size
_ITEM_BYTES_MIN = _HEAD.size + _PROPERTIES_LENGTH.size
_unpack_head = _HEAD.unpack_from
_unpack_known = struct.Struct(">i8xii").unpack_from  # without magic and checksum
_unpack_length = _PROPERTIES_LENGTH.unpack_from


class BatchItem(msgspec.Struct, frozen=True, gc=False):
    """One message of a batch. The properties stay encoded: a broker copies them into the record as they are."""

    body: bytes
    properties: bytes = b""
    flag: int = 0


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """The body of a batch send."""
    return b"".join([_encode_item(item) for item in items])


def batch_pieces(bodies: Sequence[bytes], properties: Sequence[bytes], flags: Sequence[int]) -> tuple[list[bytes], int]:
    """The same from columns, for producers of many: the pieces to join, and how many bytes they are together.

    No step is taken for a single message: the columns are set into the list of pieces as they are, and messages of one
    size, which those of one batch often are, share their lengths. That takes a third of the time of a loop.
    """
    body_sizes, text_sizes = list(map(len, bodies)), list(map(len, properties))
    pieces = [b""] * (4 * len(bodies))
    try:
        pieces[0::4] = _heads(body_sizes, text_sizes, flags)
        pieces[1::4] = bodies
        pieces[2::4] = _text_lengths(text_sizes)
        pieces[3::4] = properties
    except struct.error as error:
        raise RecordError(f"a batch item cannot be written: {error}") from None
    return pieces, _ITEM_BYTES_MIN * len(bodies) + sum(body_sizes) + sum(text_sizes)


def join_batch(bodies: Sequence[bytes], properties: Sequence[bytes], flags: Sequence[int]) -> bytes:
    """The body of a batch send from columns."""
    return b"".join(batch_pieces(bodies, properties, flags)[0])


def _heads(body_sizes: list[int], text_sizes: list[int], flags: Sequence[int]) -> list[bytes]:
    if len(set(body_sizes)) == len(set(text_sizes)) == len(set(flags)) == 1:
        head = _HEAD.pack(_ITEM_BYTES_MIN + body_sizes[0] + text_sizes[0], 0, 0, flags[0], body_sizes[0])
        return [head] * len(body_sizes)
    sizes = map(add, map(add, body_sizes, text_sizes), repeat(_ITEM_BYTES_MIN))
    return list(map(_HEAD.pack, sizes, repeat(0), repeat(0), flags, body_sizes))


def _text_lengths(sizes: list[int]) -> list[bytes]:
    if len(set(sizes)) == 1:
        return [_PROPERTIES_LENGTH.pack(sizes[0])] * len(sizes)
    return list(map(_PROPERTIES_LENGTH.pack, sizes))


class BatchColumns(NamedTuple):
    """The messages of a batch, field by field: a broker looks at all bodies, then at all properties."""

    bodies: list[bytes]
    properties: list[bytes]
    flags: list[int]


def split_batch(body: bytes, *, count_max: int) -> BatchColumns:
    """The items of a batch, at most `count_max`; a RecordError says at which byte the batch is broken.

    What a slice or a look beyond the end would find is not checked for each item: the lengths of an item must add up,
    and the last one must end where the batch does.
    """
    bodies: list[bytes] = []
    properties: list[bytes] = []
    flags: list[int] = []
    position, end = 0, len(body)
    try:
        for _ in repeat(None, count_max):
            if position >= end:
                break
            size, flag, body_length = _unpack_known(body, position)
            body_end = position + _HEAD_BYTES + body_length
            (properties_length,) = _unpack_length(body, body_end)
            if body_length < 0 or properties_length < 0 or size != body_end + 2 + properties_length - position:
                raise _fault(body, position)
            bodies.append(body[position + _HEAD_BYTES : body_end])
            position += size
            properties.append(body[body_end + 2 : position])
            flags.append(flag)
    except struct.error:  # a field would stand behind the end
        raise _fault(body, position) from None
    if position < end:
        raise RecordError(f"a batch of more than {count_max} messages: send smaller batches")
    if position > end:
        raise _fault(body, position - size)
    return BatchColumns(bodies, properties, flags)


def decode_batch(body: bytes, *, count_max: int) -> list[BatchItem]:
    """As `split_batch`, message by message."""
    return list(map(BatchItem, *split_batch(body, count_max=count_max)))


def _encode_item(item: BatchItem) -> bytes:
    if len(item.properties) > PROPERTIES_BYTES_MAX:
        raise RecordError(
            f"the properties take {len(item.properties)} bytes, at most {PROPERTIES_BYTES_MAX} fit a batch"
        )
    size = _ITEM_BYTES_MIN + len(item.body) + len(item.properties)
    try:
        head = _HEAD.pack(size, 0, 0, item.flag, len(item.body))
    except struct.error as error:
        raise RecordError(f"a batch item cannot be written: {error}") from None
    return b"".join((head, item.body, _PROPERTIES_LENGTH.pack(len(item.properties)), item.properties))


def _fault(body: bytes, position: int) -> RecordError:
    """Why there is no item at `position`."""
    left = len(body) - position
    if left < _ITEM_BYTES_MIN:
        return _broken(position, f"only {left} bytes are left")
    size, _magic, _crc, _flag, body_length = _unpack_head(body, position)
    if not _ITEM_BYTES_MIN <= size <= left:
        return _broken(position, f"its size is {size}, of {left} bytes left")
    if not 0 <= body_length <= size - _ITEM_BYTES_MIN:
        return _broken(position, f"a body of {body_length} bytes in an item of {size}")
    (properties_length,) = _unpack_length(body, position + _HEAD_BYTES + body_length)
    return _broken(position, f"properties of {properties_length} bytes in an item of {size}")


def _broken(position: int, why: str) -> RecordError:
    return RecordError(f"the batch is broken at byte {position}: {why}")
