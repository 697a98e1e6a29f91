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
from collections.abc import Iterable

import msgspec

from ariane.errors import RecordError
from ariane.wire.properties import PROPERTIES_BYTES_MAX

_HEAD = struct.Struct(">iiiii")
_PROPERTIES_LENGTH = struct.Struct(">h")
_ITEM_BYTES_MIN = _HEAD.size + _PROPERTIES_LENGTH.size


class BatchItem(msgspec.Struct, frozen=True, gc=False):
    """One message of a batch. The properties stay encoded: a broker copies them into the record as they are."""

    body: bytes
    properties: bytes = b""
    flag: int = 0


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """The body of a batch send."""
    return b"".join([_encode_item(item) for item in items])


def decode_batch(body: bytes, *, count_max: int) -> list[BatchItem]:
    """The items of a batch, at most `count_max`; a RecordError says at which byte the batch is broken."""
    items: list[BatchItem] = []
    position, end = 0, len(body)
    while position < end:
        if len(items) == count_max:
            raise RecordError(f"a batch of more than {count_max} messages: send smaller batches")
        if end - position < _ITEM_BYTES_MIN:
            raise _broken(position, f"only {end - position} bytes are left")
        size, _magic, _crc, flag, body_length = _HEAD.unpack_from(body, position)
        item_end = position + size
        if not _ITEM_BYTES_MIN <= size <= end - position:
            raise _broken(position, f"its size is {size}, of {end - position} bytes left")
        body_position = position + _HEAD.size
        body_end = body_position + body_length
        if body_length < 0 or body_end + 2 > item_end:
            raise _broken(position, f"a body of {body_length} bytes in an item of {size}")
        (properties_length,) = _PROPERTIES_LENGTH.unpack_from(body, body_end)
        if body_end + 2 + properties_length != item_end:
            raise _broken(position, f"properties of {properties_length} bytes in an item of {size}")
        items.append(BatchItem(body[body_position:body_end], body[body_end + 2 : item_end], flag))
        position = item_end
    return items


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


def _broken(position: int, why: str) -> RecordError:
    return RecordError(f"the batch is broken at byte {position}: {why}")
