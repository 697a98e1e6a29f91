"""Batches of messages: the body of a batch send, encoded and parsed, and its records packed together.

All records of a batch share most of their fields. What they share is packed once; what differs runs through C in
columns: `map` over a packer, slices of a list, one join. Measured for 32 messages of 100 bytes: 0.6 us a record,
against 1.1 us by `pack_record` (layout.py, which also draws the record).

The body of a batch send holds several messages of one topic, which share the fields of the request's header:

    bytes  field             of each item; items stand back to back
    -----  ----------------  ---------------------------------------------------------------
        4  totalSize         of the item, this field included
        4  magic             0: no broker reads it, nor does this one
        4  bodyCRC           0: likewise; the broker computes its own
        4  flag              the user's own
        4  bodyLength
        B  body
        2  propertiesLength  signed, so at most 32767
        P  properties        UTF-8, see properties.py; each item has its own keys, tags and UNIQ_KEY
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate, repeat
from operator import add
from typing import NamedTuple

import msgspec

from ariane.errors import RecordError
from ariane.wire.hashes import crc32_of_each
from ariane.wire.properties import PROPERTIES_BYTES_MAX
from ariane.wire.record.layout import SHORT, record_shape

_pack_short = SHORT.pack

# What is the same in all records of a batch: sysFlag to preparedTransactionOffset, by the lengths of the hosts.
_SHARED = {(born, store): struct.Struct(f">iq{born}sq{store}siq") for born in (8, 20) for store in (8, 20)}
_HEADS = {shared.size: struct.Struct(f">iIIiiqq{shared.size}si").pack for shared in _SHARED.values()}


class RecordColumns(NamedTuple):
    """What differs between the records, field by field."""

    bodies: list[bytes]
    properties: list[bytes]
    flags: list[int]


class SharedFields(NamedTuple):
    """What all records have in common."""

    topic: bytes
    queue_id: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    store_host: bytes
    reconsume_times: int = 0
    properties_end: bytes = b""
    """What stands behind the properties of each: the separator, if the client left it out."""


class RecordBatch:
    """Its sizes are known before it is packed: whether it fits decides its offset, and that is written into it."""

    def __init__(self, columns: RecordColumns, shared: SharedFields) -> None:
        self._columns = columns
        self._shared = shared
        hosts = shared.born_host, shared.store_host
        self._sys_flag, self._magic, topic, bare = record_shape(shared.sys_flag, *hosts, shared.topic)
        self._lengths = list(map(len, columns.bodies))
        self._tails = _Tails(topic, len(shared.properties_end))
        bare += len(topic) + len(shared.properties_end)
        property_lengths = map(len, columns.properties)
        self.sizes = [bare + length + more for length, more in zip(self._lengths, property_lengths, strict=True)]
        self.size = sum(self.sizes)

    def pack(self, physical_offset: int, queue_offset: int, store_timestamp_ms: int) -> tuple[bytes, list[int]]:
        """The records back to back, and where each of them begins; RecordError when a field is out of its range."""
        offsets = list(accumulate(self.sizes, initial=physical_offset))
        del offsets[-1]
        try:
            heads = self._heads(offsets, queue_offset, store_timestamp_ms)
            tails = [self._tails[len(text)] for text in self._columns.properties]
        except struct.error as error:
            raise RecordError(f"a field of the batch is out of its range: {error}") from None
        return _interleaved(
            heads, self._columns.bodies, tails, self._columns.properties, self._shared.properties_end
        ), offsets

    def _heads(self, offsets: list[int], queue_offset: int, store_timestamp_ms: int) -> list[bytes]:
        shared = self._shared
        same = _SHARED[len(shared.born_host), len(shared.store_host)].pack(
            self._sys_flag,
            shared.born_timestamp_ms,
            shared.born_host,
            store_timestamp_ms,
            shared.store_host,
            shared.reconsume_times,
            0,  # preparedTransactionOffset: a batch cannot be transactional
        )
        return list(
            map(
                _HEADS[len(same)],
                self.sizes,
                repeat(self._magic),
                crc32_of_each(self._columns.bodies),
                repeat(shared.queue_id),
                self._columns.flags,
                range(queue_offset, queue_offset + len(offsets)),
                offsets,
                repeat(same),
                self._lengths,
            )
        )


class _Tails(dict[int, bytes]):
    """What stands between body and properties, by the length of the properties, which is mostly the same in a batch."""

    def __init__(self, topic: bytes, end_bytes: int) -> None:
        super().__init__()
        self._topic = topic
        self._end_bytes = end_bytes

    def __missing__(self, length: int) -> bytes:
        total = length + self._end_bytes
        if total > PROPERTIES_BYTES_MAX:
            raise RecordError(f"the properties take {total} bytes, at most {PROPERTIES_BYTES_MAX} fit a record")
        tail = self[length] = self._topic + _pack_short(total)
        return tail


def _interleaved(
    heads: list[bytes], bodies: Sequence[bytes], tails: list[bytes], texts: Sequence[bytes], end: bytes
) -> bytes:
    pieces = 5 if end else 4
    parts = [end] * (pieces * len(heads))
    parts[0::pieces], parts[1::pieces], parts[2::pieces], parts[3::pieces] = heads, bodies, tails, texts
    return b"".join(parts)


# --- the body of a batch send -----------------------------------------------------------------------------------------

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
                raise _item_error(body, position)
            bodies.append(body[position + _HEAD_BYTES : body_end])
            position += size
            properties.append(body[body_end + 2 : position])
            flags.append(flag)
    except struct.error:  # a field would stand behind the end
        raise _item_error(body, position) from None
    if position < end:
        raise RecordError(f"a batch of more than {count_max} messages: send smaller batches")
    if position > end:
        raise _item_error(body, position - size)
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


def _item_error(body: bytes, position: int) -> RecordError:
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
