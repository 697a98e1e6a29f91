"""A message made ready to travel: checked, with its reserved properties, compressed if that is worth it."""

import asyncio
from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec.structs import replace

from ariane.client.message_checks import check_message
from ariane.client.producer_settings import ProducerSettings
from ariane.errors import MessageRejected, RecordError
from ariane.model.message import Message, Property
from ariane.wire.compression import compress
from ariane.wire.properties import PROPERTIES_BYTES_MAX, encode_properties
from ariane.wire.sys_flag import Compression, SysFlag

_COMPRESSED = int(SysFlag.COMPRESSED)  # without a type: zlib to every release
ITEM_BYTES = 22  # the lengths and flags around the body and the properties of a batch item
_THREAD_FROM_BYTES = 128 * 1024  # compressing this much takes longer than a turn of the loop should


class Envelope(msgspec.Struct, frozen=True, gc=False):
    message: Message
    unique_key: str
    properties: str
    """The property text, as headers carry it."""
    body: bytes
    sys_flag: int

    @property
    def batched_size(self) -> int:
        """What it takes as an item of a batch, where bodies travel as they are."""
        text = self.properties
        return len(self.message.body) + (len(text) if text.isascii() else len(text.encode())) + ITEM_BYTES


async def seal(
    message: Message,
    unique_key: str,
    settings: ProducerSettings,
    *,
    extra: Mapping[str, str] | None = None,
    sys_flag: int = 0,
) -> Envelope:
    """The envelope; MessageRejected when the message can never be sent. `extra` are reserved properties."""
    envelope = seal_plain(message, unique_key, settings, extra=extra, sys_flag=sys_flag)
    body = await _packed(message.body, settings)
    if body is message.body:
        return envelope
    return replace(envelope, body=body, sys_flag=sys_flag | _COMPRESSED)


def seal_plain(
    message: Message,
    unique_key: str,
    settings: ProducerSettings,
    *,
    extra: Mapping[str, str] | None = None,
    sys_flag: int = 0,
) -> Envelope:
    """The same, with the body as it is."""
    keys = check_message(message, settings.message_bytes_max)
    return Envelope(message, unique_key, _property_text(message, keys, unique_key, extra), message.body, sys_flag)


def _property_text(message: Message, keys: str, unique_key: str, extra: Mapping[str, str] | None) -> str:
    """Joined here, because the check has seen all names and values; a mapping to encode would double its cost."""
    text = "".join([f"{name}\x01{value}\x02" for name, value in message.properties.items()])
    if keys:
        text += f"KEYS\x01{keys}\x02"
    if message.tags is not None:
        text += f"TAGS\x01{message.tags}\x02"
    if message.sharding_key is not None or message.delay_level or message.deliver_at is not None:
        text += _encoded(_rare_properties(message))
    text += f"WAIT\x01{'true' if message.wait_stored else 'false'}\x02UNIQ_KEY\x01{unique_key}\x02"
    if extra:
        text += _encoded(extra)
    return text if text.isascii() and len(text) <= PROPERTIES_BYTES_MAX else _checked(text)


def _rare_properties(message: Message) -> dict[str, str]:
    properties = {}
    if message.sharding_key is not None:
        properties[Property.SHARDING_KEY] = message.sharding_key
    if message.delay_level:
        properties[Property.DELAY] = str(message.delay_level)
    if message.deliver_at is not None:
        properties[Property.TIMER_DELIVER_MS] = str(_milliseconds(message.deliver_at))
    return properties


def _checked(text: str) -> str:
    """What encoding finds too long, or not to be text, it says of the property in question."""
    return _encoded(dict(pair.split("\x01") for pair in text.split("\x02")[:-1]))


def _encoded(properties: Mapping[str, str]) -> str:
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
