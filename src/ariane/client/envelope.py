"""A message made ready to travel: checked, with its reserved properties, compressed if that is worth it."""

import asyncio
from collections.abc import Mapping
from datetime import datetime

import msgspec

from ariane.client.message_checks import check_message
from ariane.client.producer_settings import ProducerSettings
from ariane.errors import MessageRejected, RecordError
from ariane.model.message import Message, Property
from ariane.wire.compression import compress
from ariane.wire.properties import encode_properties
from ariane.wire.sys_flag import Compression, SysFlag

_COMPRESSED = int(SysFlag.COMPRESSED)  # without a type: zlib to every release
_ITEM_BYTES = 22  # the lengths and flags around the body and the properties of a batch item
_THREAD_FROM_BYTES = 128 * 1024  # compressing this much takes longer than a turn of the loop should


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    message: Message
    unique_key: str
    properties: str
    """The property text, as headers carry it."""
    body: bytes
    sys_flag: int

    @property
    def batched_size(self) -> int:
        """What it takes as an item of a batch, where bodies travel as they are."""
        return len(self.message.body) + len(self.properties.encode()) + _ITEM_BYTES


async def seal(
    message: Message,
    unique_key: str,
    settings: ProducerSettings,
    *,
    extra: Mapping[str, str] | None = None,
    sys_flag: int = 0,
) -> Envelope:
    """The envelope; MessageRejected when the message can never be sent. `extra` are reserved properties."""
    check_message(message, settings.message_bytes_max)
    text = _property_text(message, unique_key, extra or {})
    body = await _packed(message.body, settings)
    if body is not message.body:
        sys_flag |= _COMPRESSED
    return Envelope(message=message, unique_key=unique_key, properties=text, body=body, sys_flag=sys_flag)


def _property_text(message: Message, unique_key: str, extra: Mapping[str, str]) -> str:
    properties = dict(message.properties)
    if message.key_list:
        properties[Property.KEYS] = " ".join(message.key_list)
    if message.tags is not None:
        properties[Property.TAGS] = message.tags
    if message.sharding_key is not None:
        properties[Property.SHARDING_KEY] = message.sharding_key
    if message.delay_level:
        properties[Property.DELAY] = str(message.delay_level)
    if message.deliver_at is not None:
        properties[Property.TIMER_DELIVER_MS] = str(_milliseconds(message.deliver_at))
    properties[Property.WAIT] = "true" if message.wait_stored else "false"
    properties[Property.UNIQUE_KEY] = unique_key
    properties.update(extra)
    try:
        return encode_properties(properties).decode()
    except RecordError as error:
        raise MessageRejected(str(error)) from None


def _milliseconds(moment: datetime | int) -> int:
    return moment if isinstance(moment, int) else round(moment.timestamp() * 1000)


async def _packed(body: bytes, settings: ProducerSettings) -> bytes:
    """`body` itself when it is short, or would not get shorter."""
    if len(body) < settings.compress_over_bytes:
        return body
    if len(body) >= _THREAD_FROM_BYTES:
        packed = await asyncio.to_thread(compress, body, Compression.ZLIB, settings.compress_level)
    else:
        packed = compress(body, Compression.ZLIB, settings.compress_level)
    return packed if len(packed) < len(body) else body
