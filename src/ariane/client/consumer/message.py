"""A received message: decompressed body, the topic that the producer sent it to, the queue it was pulled from."""

from typing import Any

from msgspec.structs import replace

from ariane.errors import RecordError
from ariane.model.ids import RETRY_PREFIX, QueueOffset
from ariane.model.message import Property, StoredMessage
from ariane.model.route import MessageQueue
from ariane.wire.compression import decompress
from ariane.wire.hashes import POSITIVE_INT32, crc32, unmasked_crc32
from ariane.wire.host import decode_host, encode_host
from ariane.wire.message_id import offset_message_id
from ariane.wire.properties import PROPERTIES_BYTES_MAX, properties_of, property_text
from ariane.wire.record.layout import HEAD_V4, HOST_BITS, MAGIC_V1, RECORD_BYTES_MIN, SHORT, TOPIC_BYTES_MAX_V1
from ariane.wire.record.read import decode
from ariane.wire.sys_flag import SysFlag, with_compression

BODY_BYTES_MAX = 64 * 1024 * 1024
"""Limit of a decompressed body: far above the 4 MiB that producers may send, and small enough for memory."""

_HEAD_BYTES = HEAD_V4.size
_SLOW_PATH_FLAGS = HOST_BITS | int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_TYPE)
_unpack_head = HEAD_V4.unpack_from
_pack_length = SHORT.pack


_properties_slot: Any = StoredMessage.__dict__["properties"]
_get_slot, _set_slot = _properties_slot.__get__, _properties_slot.__set__


class Received(StoredMessage, frozen=True, kw_only=True, gc=False):
    """A message that a consumer has received.

    Properties are decoded on first access; until then their slot holds the encoded text. Decoding them takes as long as
    the rest of the message, and many handlers read the body only. (msgspec's own functions read the slot directly and
    may find the text: access `properties` first.)
    """

    queue: MessageQueue
    """The queue it was pulled from. For a retry its topic is %RETRY%group, while `topic` is the original topic."""
    max_offset: QueueOffset = QueueOffset(0)
    """The end of the queue when the message was pulled: shows how far behind the consumer is."""
    fault: str | None = None
    """Why the body could not be decompressed or does not match its checksum; then the body is as stored."""

    @property  # type: ignore[misc]  # a property in place of an attribute
    def properties(self) -> dict[str, str]:
        value: str | dict[str, str] = _get_slot(self)
        if isinstance(value, str):
            value = properties_of(value)
            _set_slot(self, value)
        return value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Received) and self.properties == other.properties and super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]  # properties are a dict

    @property
    def message_id(self) -> str:
        """The id that the producer set, the same in all attempts; without one, the id that the broker set."""
        return self.unique_key or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        return offset_message_id(encode_host(self.store_host), self.physical_offset)

    @property
    def attempt(self) -> int:
        """1 for the first delivery."""
        return self.reconsume_times + 1

    @property
    def transaction_id(self) -> str | None:
        return self.unique_key if self.properties.get(Property.TRANSACTION_PREPARED) == "true" else None


def receive_all(
    records: bytes, queue: MessageQueue, max_offset: int = 0, body_bytes_max: int = BODY_BYTES_MAX
) -> list[Received]:
    """The messages of a pull response. A damaged record raises RecordError, a damaged body only sets `fault`.

    The common case is a record of the queue's own topic, not compressed, with IPv4 addresses. It is decoded inline,
    which takes about a tenth of the time of `decode` and `receive`. All other records go through those two.
    """
    received: list[Received] = []
    add = received.append
    topic, topic_field = queue.topic, _topic_field(queue.topic)
    end_offset = QueueOffset(max_offset)
    # Consecutive records mostly share the hosts and the bytes between body and properties: reuse them.
    last_born_host = last_store_host = b""
    last_text_length, between = -1, topic_field
    between_bytes = len(topic_field) + SHORT.size
    position, end = 0, len(records)
    last_position = end - RECORD_BYTES_MIN if topic_field else -1
    while position < end:
        if position <= last_position:
            (
                size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms, born_host,
                store_ms, store_host, reconsume_times, prepared_offset, body_length,
            ) = _unpack_head(records, position)  # fmt: skip
            body_end = position + _HEAD_BYTES + body_length
            text_position = body_end + between_bytes
            record_end = position + size
            text_length = record_end - text_position
            if text_length != last_text_length and 0 <= text_length <= PROPERTIES_BYTES_MAX:
                last_text_length, between = text_length, topic_field + _pack_length(text_length)
            if (
                magic == MAGIC_V1
                and not sys_flag & _SLOW_PATH_FLAGS
                and body_length > 0
                and text_length == last_text_length
                and record_end <= end
                and records[body_end:text_position] == between  # startswith: 0.05 us more
            ):
                body = records[position + _HEAD_BYTES : body_end]
                if unmasked_crc32(body) & POSITIVE_INT32 == crc:
                    try:
                        text: Any = records[text_position:record_end].decode()
                    except UnicodeDecodeError:
                        text = property_text(records[text_position:record_end])  # raises an error with the position
                    if born_host != last_born_host:
                        last_born_host, born_at = born_host, decode_host(born_host)
                    if store_host != last_store_host:
                        last_store_host, stored_at = store_host, decode_host(store_host)
                    message = Received(
                        topic, body, queue_id, queue_offset, physical_offset, sys_flag,
                        born_ms, born_at, store_ms, stored_at,
                        text, flag, reconsume_times, prepared_offset, crc, size,
                        queue=queue, max_offset=end_offset,
                    )  # fmt: skip
                    add(message)
                    position = record_end
                    continue
        stored = decode(records, position)
        add(receive(stored, queue, max_offset, body_bytes_max))
        position += stored.stored_size
    return received


def _topic_field(topic: str) -> bytes:
    """The topic field of common records; empty if there are none: retries are shown under their original topic."""
    name = topic.encode()
    if len(name) > TOPIC_BYTES_MAX_V1 or topic.startswith(RETRY_PREFIX):
        return b""
    return bytes([len(name)]) + name


def receive(
    message: StoredMessage, queue: MessageQueue, max_offset: int = 0, body_bytes_max: int = BODY_BYTES_MAX
) -> Received:
    body, fault = _plain_body(message, body_bytes_max)
    fields = {name: getattr(message, name) for name in StoredMessage.__struct_fields__}
    fields["topic"] = _original_topic(message)
    if fault is None:
        fields.update(body=body, sys_flag=with_compression(message.sys_flag, None))
    return Received(**fields, queue=queue, max_offset=QueueOffset(max_offset), fault=fault)


def next_attempt(message: Received) -> Received:
    """The same message, for another attempt that does not involve the broker."""
    return replace(message, reconsume_times=message.reconsume_times + 1)


def _plain_body(message: StoredMessage, limit: int) -> tuple[bytes, str | None]:
    if message.body and crc32(message.body) != message.body_crc:
        return message.body, "the body does not match its checksum"
    try:
        return decompress(message.body, message.sys_flag, limit), None
    except RecordError as error:
        return message.body, str(error)


def _original_topic(message: StoredMessage) -> str:
    if message.topic.startswith(RETRY_PREFIX):
        return message.properties.get(Property.RETRY_TOPIC, message.topic)
    return message.topic
