"""A message as a consumer's handler sees it: body unpacked, topic as the producer named it, and where it came from."""

from collections.abc import Iterator

from msgspec.structs import replace

from ariane.errors import RecordError
from ariane.model.ids import RETRY_PREFIX, QueueOffset
from ariane.model.message import Property, StoredMessage
from ariane.model.route import MessageQueue
from ariane.wire.compression import decompress
from ariane.wire.crc import crc32
from ariane.wire.host import encode_host
from ariane.wire.message_id import offset_message_id
from ariane.wire.record_read import decode_all
from ariane.wire.sys_flag import with_compression

BODY_BYTES_MAX = 64 * 1024 * 1024
"""What a compressed body may unpack to: far above the 4 MiB that producers may send, far below what would hurt."""


class Received(StoredMessage, frozen=True, kw_only=True):
    queue: MessageQueue
    """Where it was pulled from: for a retry its topic is %RETRY%group, while `topic` is the one it was sent to."""
    max_offset: QueueOffset = QueueOffset(0)
    """The end of the queue when it was pulled: how far behind the consumer is."""
    fault: str | None = None
    """Why the body could not be unpacked or does not fit its checksum; the body is then as stored."""

    @property
    def message_id(self) -> str:
        """The id its producer gave it, which all attempts share; that of the broker when there is none."""
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
    body: bytes, queue: MessageQueue, max_offset: int = 0, body_bytes_max: int = BODY_BYTES_MAX
) -> Iterator[Received]:
    """The messages of a pull answer. A damaged record is a RecordError, a damaged body only a `fault`."""
    for message in decode_all(body):
        yield receive(message, queue, max_offset, body_bytes_max)


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
    """The same message, tried once more without the broker's help."""
    return replace(message, reconsume_times=message.reconsume_times + 1)


def _plain_body(message: StoredMessage, limit: int) -> tuple[bytes, str | None]:
    if message.body and crc32(message.body) != message.body_crc:
        return message.body, "the body does not fit its checksum"
    try:
        return decompress(message.body, message.sys_flag, limit), None
    except RecordError as error:
        return message.body, str(error)


def _original_topic(message: StoredMessage) -> str:
    if message.topic.startswith(RETRY_PREFIX):
        return message.properties.get(Property.RETRY_TOPIC, message.topic)
    return message.topic
