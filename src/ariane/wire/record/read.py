"""Checking and decoding of stored records: one by one, back to back in a pull response, or in a commit log.

`verify` checks a record in place: recovery, dispatch and scans need its facts, but not its body as a message. Whatever
the bytes are, it returns a value and never raises: a store decides what a broken record means.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TypeAlias

import msgspec

from ariane.errors import RecordError
from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.model.message import Property, StoredMessage
from ariane.wire.hashes import crc32, tags_code
from ariane.wire.host import decode_host
from ariane.wire.properties import decode_properties
from ariane.wire.record.layout import (
    BLANK_BYTES_MIN,
    BLANK_MAGIC,
    HEAD_V4,
    HOST_BITS,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MAX,
    RECORD_BYTES_MIN,
    SHORT,
    SIZE_AND_MAGIC,
    TOPIC_BYTES_MAX_V1,
    checksum_error,
    has_checksum,
    head_of,
)

# --- checking ---------------------------------------------------------------------------------------------------------

Buffer: TypeAlias = bytes | bytearray | memoryview

# Plain strings: the hash of an enum member is Python code, and would cost as much as reading the properties.
_TAGS, _KEYS, _UNIQUE_KEY = Property.TAGS, Property.KEYS, Property.UNIQUE_KEY


class DispatchFacts(msgspec.Struct, frozen=True, gc=False):
    """What the consume queue and the index keep of a message's properties."""

    tags_code: int
    unique_key: str | None
    keys: Sequence[str]


class RecordView(msgspec.Struct, frozen=True, gc=False):
    """A valid record at `position` of some buffer. It holds copies, not the buffer: a file may be unmapped under it."""

    position: int
    body_position: int
    topic: str
    property_text: bytes
    size: int  # from here on in the order of the layout, as they are unpacked
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    store_timestamp_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_length: int

    def body(self, buffer: Buffer) -> bytes:
        """The body as stored, copied out of the buffer that the view was made from."""
        return bytes(buffer[self.body_position : self.body_position + self.body_length])

    def properties(self) -> dict[str, str]:
        """The decoded properties, made anew on each call; a RecordError if they are not UTF-8."""
        return decode_properties(self.property_text)

    def dispatch_facts(self) -> DispatchFacts:
        """Tags code, unique key and keys; a RecordError if the properties are not UTF-8."""
        properties = self.properties()
        keys = properties.get(_KEYS)
        code = tags_code(properties.get(_TAGS))
        return DispatchFacts(code, properties.get(_UNIQUE_KEY), [key for key in keys.split(" ") if key] if keys else ())


class BlankRecord(msgspec.Struct, frozen=True, gc=False):
    """The rest of a commit log file: the next record starts `size` bytes on, in the next file."""

    position: int
    size: int


class Fault(StrEnum):
    EMPTY = "empty"  # zeros: nothing was ever written here
    TORN = "torn"  # the buffer ends before the record does
    BAD_MAGIC = "bad magic"
    BAD_SIZE = "bad size"
    BAD_LENGTHS = "bad lengths"
    BAD_TEXT = "bad text"
    BAD_CRC = "bad crc"


class BrokenRecord(msgspec.Struct, frozen=True, gc=False):
    """Not a record. `size` is how far a reader may skip to try the next one, 0 when that is not known."""

    position: int
    size: int
    fault: Fault
    reason: str


Verdict: TypeAlias = RecordView | BlankRecord | BrokenRecord


def verify(
    buffer: Buffer,
    position: int = 0,
    *,
    end: int | None = None,
    check_body_crc: bool = True,
    size_max: int = RECORD_BYTES_MAX,
) -> Verdict:
    """What stands at `position` of `buffer`, of which only the bytes before `end` count.

    Properties are checked to lie inside, not to be text: some other writer's odd property must not make a recovery
    throw away every message behind it.
    """
    end = len(buffer) if end is None else min(end, len(buffer))
    if position < 0:  # struct would count it from the other end
        return BrokenRecord(position, 0, Fault.TORN, "a position before the start")
    if end - position < BLANK_BYTES_MIN:
        return _torn(position, end)
    size, magic = SIZE_AND_MAGIC.unpack_from(buffer, position)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return _not_a_record(position, size, magic)
    if not RECORD_BYTES_MIN <= size <= size_max:
        return BrokenRecord(
            position, 0, Fault.BAD_SIZE, f"a size of {size}, not {RECORD_BYTES_MIN} to {size_max} bytes"
        )
    if size > end - position:
        return _torn(position, end, size)
    view = _view(buffer, position, size, magic)
    return _check_crcs(buffer, view) if check_body_crc and isinstance(view, RecordView) else view


def _view(buffer: Buffer, position: int, size: int, magic: int) -> RecordView | BrokenRecord:
    """The record of `size` bytes, all of which are there. Every length is checked before it is followed."""
    record_end = position + size
    fields = HEAD_V4.unpack_from(buffer, position)
    body_position = position + HEAD_V4.size
    sys_flag = fields[7]
    if sys_flag & HOST_BITS:
        head = head_of(sys_flag)
        body_position = position + head.size
        if body_position > record_end:
            return _bad_lengths(position, size, "IPv6 hosts that do not fit")
        fields = head.unpack_from(buffer, position)

    body_length = fields[14]
    body_end = body_position + body_length
    topic_position = body_end + (1 if magic == MAGIC_V1 else 2)
    if body_length < 0 or topic_position > record_end:
        return _bad_lengths(position, size, f"a body of {body_length} bytes")
    if magic == MAGIC_V1:
        topic_length = buffer[body_end]
        is_negative = topic_length > TOPIC_BYTES_MAX_V1
    else:
        (topic_length,) = SHORT.unpack_from(buffer, body_end)
        is_negative = topic_length < 0
    topic_end = topic_position + topic_length
    if is_negative or topic_end + 2 > record_end:
        return _bad_lengths(position, size, f"a topic of {topic_length} bytes")
    (properties_length,) = SHORT.unpack_from(buffer, topic_end)
    if topic_end + 2 + properties_length != record_end:
        return _bad_lengths(position, size, f"properties of {properties_length} bytes")
    try:
        topic = str(buffer[topic_position:topic_end], "utf-8")
    except UnicodeDecodeError:
        return BrokenRecord(position, size, Fault.BAD_TEXT, "a topic that is not UTF-8")
    return RecordView(position, body_position, topic, bytes(buffer[topic_end + 2 : record_end]), *fields)


def _check_crcs(buffer: Buffer, view: RecordView) -> RecordView | BrokenRecord:
    bytes_ = memoryview(buffer)
    found = crc32(bytes_[view.body_position : view.body_position + view.body_length])
    reason = None
    if view.body_length and found != view.body_crc:
        reason = f"a body whose checksum is {found:#x}, not the stored {view.body_crc:#x}"
    elif has_checksum(view.property_text):
        reason = checksum_error(bytes_[view.position : view.position + view.size], view.property_text)
    return view if reason is None else BrokenRecord(view.position, view.size, Fault.BAD_CRC, reason)


def _not_a_record(position: int, size: int, magic: int) -> BlankRecord | BrokenRecord:
    if magic == BLANK_MAGIC and size >= BLANK_BYTES_MIN:
        return BlankRecord(position, size)
    if magic == BLANK_MAGIC:
        return BrokenRecord(position, 0, Fault.BAD_SIZE, f"a blank record of {size} bytes")
    if size == 0 and magic == 0:
        return BrokenRecord(position, 0, Fault.EMPTY, "zeros: nothing was written here")
    return BrokenRecord(position, 0, Fault.BAD_MAGIC, f"magic {magic:#010x}, which no record has")


def _torn(position: int, end: int, size: int = BLANK_BYTES_MIN) -> BrokenRecord:
    return BrokenRecord(position, 0, Fault.TORN, f"{max(end - position, 0)} bytes of a record of at least {size}")


def _bad_lengths(position: int, size: int, what: str) -> BrokenRecord:
    return BrokenRecord(position, size, Fault.BAD_LENGTHS, f"{what} in a record of {size}")


# --- decoding ---------------------------------------------------------------------------------------------------------


def decode(
    buffer: Buffer, position: int = 0, *, check_crc: bool = False, size_max: int = RECORD_BYTES_MAX
) -> StoredMessage:
    """The message at `position`, its body as stored; a RecordError when no valid record is there.

    An empty body is fine here. Java 4.7.1 consumers fail on one, so it is for a broker to refuse it.
    """
    verdict = verify(buffer, position, check_body_crc=check_crc, size_max=size_max)
    if isinstance(verdict, RecordView):
        return to_message(buffer, verdict)
    raise _no_message(verdict)


def decode_all(body: Buffer, *, check_crc: bool = False, size_max: int = RECORD_BYTES_MAX) -> list[StoredMessage]:
    """Every message of a pull response.

    Java ends the list silently at the first bad record and so skips the messages behind it. Here it is a RecordError:
    a consumer that knows can ask again or elsewhere.
    """
    messages = []
    for verdict in walk(body, check_crc=check_crc, size_max=size_max):
        if not isinstance(verdict, RecordView):
            raise _no_message(verdict)
        messages.append(to_message(body, verdict))
    return messages


def walk(
    buffer: Buffer,
    start: int = 0,
    end: int | None = None,
    *,
    check_crc: bool = False,
    size_max: int = RECORD_BYTES_MAX,
) -> Iterator[Verdict]:
    """What stands back to back between `start` and `end`: records, blanks, and at most one broken record, the last.

    A blank is stepped over: in a buffer that spans commit log files the next file follows. After a broken record with
    a known size the caller may walk on behind it.
    """
    position = start
    end = len(buffer) if end is None else min(end, len(buffer))
    while position < end:
        verdict = verify(buffer, position, end=end, check_body_crc=check_crc, size_max=size_max)
        yield verdict
        if isinstance(verdict, BrokenRecord):
            return
        position += verdict.size


def to_message(buffer: Buffer, view: RecordView) -> StoredMessage:
    """The message of a record already verified in `buffer`."""
    return StoredMessage(
        topic=view.topic,
        body=view.body(buffer),
        properties=view.properties(),
        flag=view.flag,
        queue_id=view.queue_id,
        queue_offset=QueueOffset(view.queue_offset),
        physical_offset=PhysicalOffset(view.physical_offset),
        sys_flag=view.sys_flag,
        born_timestamp_ms=view.born_timestamp_ms,
        born_host=decode_host(view.born_host),
        store_timestamp_ms=view.store_timestamp_ms,
        store_host=decode_host(view.store_host),
        reconsume_times=view.reconsume_times,
        prepared_transaction_offset=view.prepared_transaction_offset,
        body_crc=view.body_crc,
        stored_size=view.size,
    )


def _no_message(verdict: BlankRecord | BrokenRecord) -> RecordError:
    found = verdict.reason if isinstance(verdict, BrokenRecord) else "the blank end of a commit log file"
    return RecordError(f"no message at byte {verdict.position}: {found}")
