"""The stored message record: the layout of commit logs and pull responses, and how one record is packed.

    offset  bytes  field
    ------  -----  --------------------------------------------------------------------------
         0      4  totalSize                  of the whole record, this field included
         4      4  magic                      V1, or V2 when the topic has more than 127 bytes
         8      4  bodyCRC                    31 bits, of the body as stored; 0 for an empty one
        12      4  queueId
        16      4  flag                       the user's own
        20      8  queueOffset                the message's index in its queue
        28      8  physicalOffset             where this record starts in the commit log
        36      4  sysFlag                    0x10 and 0x20 tell how long the two hosts are
        40      8  bornTimestamp              ms, by the producer's clock
        48     8*  bornHost                   address and 32-bit port; 20 bytes for IPv6
       56*      8  storeTimestamp             ms, by the broker's clock
       64*     8*  storeHost                  as bornHost
       72*      4  reconsumeTimes
       76*      8  preparedTransactionOffset
       84*      4  bodyLength
       88*      B  body                       compressed if sysFlag says so
     88*+B      1  topicLength                signed; 2 bytes in V2
              + T  topic                      UTF-8
              + 2  propertiesLength           signed, so at most 32767
              + P  properties                 UTF-8, see properties.py

    * An IPv6 host makes its field 20 bytes long and moves all that follows by 12.

All numbers are big-endian and signed. Records stand back to back without padding. A commit log file ends in a blank
record: the number of bytes left in the file, the blank magic, and whatever was there before.

         0      4  size                       up to the end of the file, at least 8
         4      4  BLANK_MAGIC

This module packs a record; batch.py and uniform_batch.py pack many at once, read.py checks and decodes them.
"""

import struct
from typing import NamedTuple, Protocol

from ariane.errors import RecordError
from ariane.model.message import StoredMessage
from ariane.wire.hashes import POSITIVE_INT32, crc32, unmasked_crc32
from ariane.wire.host import HOST_BYTES_V4, HOST_BYTES_V6, encode_host
from ariane.wire.properties import (
    CHECKSUM_PROPERTY,
    NAME_END_BYTES,
    PAIR_END_BYTES,
    PROPERTIES_BYTES_MAX,
    encode_properties,
)
from ariane.wire.sys_flag import SysFlag

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
BLANK_MAGIC = 0xCBD43194

BLANK_BYTES_MIN = 8
RECORD_BYTES_MIN = 91
TOPIC_BYTES_MAX_V1 = 127
TOPIC_BYTES_MAX = 32767

RECORD_BYTES_MAX = 16 * 1024 * 1024 + 64 * 1024
"""What readers accept by default: the largest frame a broker takes by default, and room for the fields."""

_BORN_HOST_V6 = int(SysFlag.BORN_HOST_V6)  # plain ints: the operators of an IntFlag are too slow for each record
_STORE_HOST_V6 = int(SysFlag.STORE_HOST_V6)
HOST_BITS = _BORN_HOST_V6 | _STORE_HOST_V6

# The fields up to bodyLength, by the two host bits: neither, born, store, both.
_HEADS = tuple(struct.Struct(f">iIIiiqqiq{born}sq{store}siqi") for store in (8, 20) for born in (8, 20))
HEAD_V4 = _HEADS[0]

SIZE_AND_MAGIC = struct.Struct(">iI")
SHORT = struct.Struct(">h")

_TOPIC_LENGTHS = tuple(bytes([length]) for length in range(TOPIC_BYTES_MAX_V1 + 1))
_pack_head_v4 = HEAD_V4.pack
_pack_short = SHORT.pack
_HOSTS_V4 = (HOST_BYTES_V4, HOST_BYTES_V4)
_HOST_LENGTHS = frozenset((HOST_BYTES_V4, HOST_BYTES_V6))
_BARE_BYTES_V4 = HEAD_V4.size + SHORT.size


def head_of(sys_flag: int) -> struct.Struct:
    """The fields up to bodyLength, which are of fixed length once `sys_flag` is known."""
    return _HEADS[(sys_flag & HOST_BITS) >> 4]


def pack_record(
    *,
    topic: bytes,
    body: bytes | memoryview,
    properties: bytes,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp_ms: int,
    born_host: bytes,
    store_timestamp_ms: int,
    store_host: bytes,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> bytes:
    """One record from parts that are bytes already, as a broker gets them.

    Hosts come from `encode_host`; their lengths decide the IPv6 bits of `sys_flag`. One Struct per combination of
    lengths, body included, was measured against this join of five parts: it is as fast when the combination is cached,
    half as fast when it is new, and bodies come in all lengths.
    """
    body_length = len(body)
    topic_length = len(topic)
    properties_length = len(properties)
    try:
        if sys_flag & HOST_BITS or len(born_host) != 8 or len(store_host) != 8 or topic_length > TOPIC_BYTES_MAX_V1:
            sys_flag, magic, topic_part, bare_bytes = record_shape(sys_flag, born_host, store_host, topic)
            pack_head = head_of(sys_flag).pack
        else:
            pack_head = _pack_head_v4
            magic = MAGIC_V1
            topic_part = _TOPIC_LENGTHS[topic_length] + topic
            bare_bytes = _BARE_BYTES_V4
        head = pack_head(
            bare_bytes + len(topic_part) + body_length + properties_length,
            magic,
            crc32(body),
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag,
            born_timestamp_ms,
            born_host,
            store_timestamp_ms,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            body_length,
        )
        return b"".join((head, body, topic_part, _pack_short(properties_length), properties))
    except struct.error as error:
        raise RecordError(_misfit(topic, properties, error)) from None


class RecordFields(Protocol):
    """A message as `pack_plain_record` takes it: `Draft` in store/append."""

    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int


PLAIN_BYTES = RECORD_BYTES_MIN - 1
"""The size of a plain record without its topic part, body and properties."""

_STORED = struct.Struct(">q8siq")
_pack_plain_head = struct.Struct(f">iIIiiqqiq8s{_STORED.size}si").pack

pack_stored = _STORED.pack
"""storeTimestamp, storeHost, reconsumeTimes and preparedTransactionOffset of a plain record: the same for nearly all
messages that are appended together, so they are packed once, with zeros for the last two."""


def pack_plain_record(
    fields: RecordFields,
    size: int,
    body: bytes,
    topic_part: bytes,
    properties: bytes,
    queue_offset: int,
    physical_offset: int,
    stored: bytes,
) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """The fast twin of `pack_record` for the common record: two IPv4 hosts, a V1 topic with its length before it.

    In pieces, to be joined with those of other records in one copy. struct.error when a field is out of its range;
    `pack_record` says which. `size` is PLAIN_BYTES and the lengths of topic part, body and properties; `stored` comes
    from `pack_stored`.
    """
    if fields.reconsume_times or fields.prepared_transaction_offset:
        timestamp_ms, host, _, _ = _STORED.unpack(stored)
        stored = pack_stored(timestamp_ms, host, fields.reconsume_times, fields.prepared_transaction_offset)
    head = _pack_plain_head(
        size,
        MAGIC_V1,
        unmasked_crc32(body) & POSITIVE_INT32,
        fields.queue_id,
        fields.flag,
        queue_offset,
        physical_offset,
        fields.sys_flag,
        fields.born_timestamp_ms,
        fields.born_host,
        stored,
        len(body),
    )
    return head, body, topic_part, _pack_short(len(properties)), properties


def encode(message: StoredMessage) -> bytes:
    """The record of `message`. Its size, its checksum and the IPv6 bits of its sysFlag are computed."""
    return pack_record(
        topic=_encode_topic(message.topic),
        body=message.body,
        properties=encode_properties(message.properties),
        queue_id=message.queue_id,
        flag=message.flag,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        sys_flag=message.sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=encode_host(message.born_host),
        store_timestamp_ms=message.store_timestamp_ms,
        store_host=encode_host(message.store_host),
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
    )


def pack_blank(size: int) -> bytes:
    """The head of a blank record that fills the `size` bytes left in a file; what follows it there does not matter."""
    if size < BLANK_BYTES_MIN:
        raise RecordError(
            f"a blank record needs {BLANK_BYTES_MIN} bytes, {size} are left: keep that many free in a file"
        )
    return SIZE_AND_MAGIC.pack(size, BLANK_MAGIC)


class RecordShape(NamedTuple):
    """What of a record's layout depends on hosts and topic."""

    sys_flag: int
    """With the bits for the lengths of the hosts."""
    magic: int
    topic: bytes
    """With its length before it."""
    bare_bytes: int
    """Without topic, body and properties: the fixed fields and the length of the properties."""


def record_shape(sys_flag: int, born_host: bytes, store_host: bytes, topic: bytes) -> RecordShape:
    """RecordError for hosts that `encode_host` did not make, or a topic beyond all lengths."""
    lengths = len(born_host), len(store_host)
    if lengths == _HOSTS_V4 and len(topic) <= TOPIC_BYTES_MAX_V1:
        return RecordShape(sys_flag & ~HOST_BITS, MAGIC_V1, _TOPIC_LENGTHS[len(topic)] + topic, _BARE_BYTES_V4)
    if not _HOST_LENGTHS.issuperset(lengths):
        raise RecordError(
            f"hosts of {lengths} bytes, a record takes {HOST_BYTES_V4} or {HOST_BYTES_V6}: use encode_host"
        )
    born_bit = _BORN_HOST_V6 if len(born_host) == HOST_BYTES_V6 else 0
    store_bit = _STORE_HOST_V6 if len(store_host) == HOST_BYTES_V6 else 0
    sys_flag = sys_flag & ~HOST_BITS | born_bit | store_bit
    length, is_long = len(topic), len(topic) > TOPIC_BYTES_MAX_V1
    if length > TOPIC_BYTES_MAX:
        raise RecordError(f"the topic takes {length} bytes, at most {TOPIC_BYTES_MAX} fit a record")
    prefix = _pack_short(length) if is_long else _TOPIC_LENGTHS[length]
    return RecordShape(sys_flag, MAGIC_V2 if is_long else MAGIC_V1, prefix + topic, head_of(sys_flag).size + 2)


def _encode_topic(topic: str) -> bytes:
    try:
        return topic.encode()
    except UnicodeEncodeError:
        raise RecordError(f"topic {topic!r} holds half a surrogate pair, which UTF-8 cannot express") from None


def _misfit(topic: bytes, properties: bytes, error: struct.error) -> str:
    if len(properties) > PROPERTIES_BYTES_MAX:
        return f"the properties take {len(properties)} bytes, at most {PROPERTIES_BYTES_MAX} fit a record"
    return f"a field of the record for topic {topic[:TOPIC_BYTES_MAX_V1]!r} is out of its range: {error}"


# --- checksum of a whole record -------------------------------------------------------------------------------------
#
# A checksum over a whole record, as Apache 5 writes it with `enabledAppendPropCRC`: the last property of the record.
#
#     ... other properties \x02 | __CRC32# | \x01 | ten decimal digits, the lowest first | \x02
#     |----- what it covers -----|------------------------ 20 bytes ------------------------|
#
# The 4.x record has a checksum over its body alone: a flipped bit in a timestamp, a host or a property goes unseen.
# Older readers take it for one more property.

CHECKSUM_BYTES = 20
CHECKSUM_PREFIX = CHECKSUM_PROPERTY.encode() + NAME_END_BYTES
_END = PAIR_END_BYTES
_ROOM = bytes(CHECKSUM_BYTES)


def with_checksum_room(properties: bytes) -> bytes:
    """The properties with room for the checksum behind them."""
    return properties + _ROOM if not properties or properties.endswith(_END) else properties + _END + _ROOM


def add_checksum(record: bytes) -> bytes:
    """A record that was packed with room for it, with its checksum."""
    covered = record[:-CHECKSUM_BYTES]
    return covered + CHECKSUM_PREFIX + f"{crc32(covered):010d}".encode()[::-1] + _END


def has_checksum(property_text: bytes) -> bool:
    return len(property_text) >= CHECKSUM_BYTES and property_text.startswith(
        CHECKSUM_PREFIX, len(property_text) - CHECKSUM_BYTES
    )


def checksum_error(record: memoryview, property_text: bytes) -> str | None:
    """How the checksum of a record differs from the stored one; None when it does not."""
    found = f"{crc32(record[:-CHECKSUM_BYTES]):010d}".encode()[::-1]
    stored = property_text[len(property_text) - CHECKSUM_BYTES + len(CHECKSUM_PREFIX) : -1]
    if found == stored and property_text.endswith(_END):
        return None
    return f"a record whose checksum is {found.decode()}, not the stored {stored.decode('ascii', 'replace')}"
