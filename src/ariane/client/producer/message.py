"""Preparation of a message for sending: checks, reserved properties, compression of large bodies, the unique key.

A message that can never be sent is rejected here with cause and hint, because a broker's response says less.
"""

import asyncio
import os
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

import msgspec
from msgspec.structs import replace

from ariane.client.core.instance import Instance
from ariane.client.producer.settings import ProducerSettings
from ariane.errors import MessageRejected, RecordError
from ariane.model.ids import topic_name_problem
from ariane.model.message import RESERVED_PROPERTIES, Message, Property
from ariane.wire.compression import compress
from ariane.wire.message_id import UniqueKeys
from ariane.wire.properties import (
    NAME_END,
    PAIR_END,
    PROPERTIES_BYTES_MAX,
    UNIQUE_KEY_START,
    WAIT_FALSE,
    WAIT_TRUE,
    encode_properties,
    join_properties,
    property_pair,
)
from ariane.wire.sys_flag import Compression, SysFlag

# --- checks ---

MESSAGE_BYTES_MAX = 4 * 1024 * 1024

# Apache's TopicValidator has the first six. Brokers would take a message there for one of their own records.
_SYSTEM_TOPICS = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "rmq_sys_wheel_timer",
    }
)
_FIELDS = {
    Property.TAGS: "tags=",
    Property.KEYS: "keys=",
    Property.DELAY: "delay_level=",
    Property.WAIT: "wait_stored=",
    Property.TIMER_DELIVER_MS: "deliver_at=",
    Property.SHARDING_KEY: "sharding_key=",
}


def check_message(message: Message, body_bytes_max: int = MESSAGE_BYTES_MAX) -> str:
    """The keys as one string; MessageRejected if the message can never be sent."""
    check_topic(message.topic)
    body = message.body
    if type(body) is not bytes or not 0 < len(body) <= body_bytes_max:
        _check_body(body, body_bytes_max)
    keys = _checked_keys(message)
    if message.tags is not None:
        _check_tags(message.tags)
    if message.sharding_key is not None:
        _check_value(Property.SHARDING_KEY, message.sharding_key)
    for name, value in message.properties.items():
        _check_property(name, value)
    if message.delay_level or message.deliver_at is not None:
        _check_delay(message)
    return keys


def _check_delay(message: Message) -> None:
    if message.delay_level < 0:
        raise MessageRejected(f"delay level {message.delay_level}: levels start at 1, and 0 means no delay")
    if message.delay_level and message.deliver_at is not None:
        raise MessageRejected("delay_level and deliver_at are both set: choose one")
    if isinstance(message.deliver_at, datetime) and message.deliver_at.tzinfo is None:
        raise MessageRejected("deliver_at has no time zone: use datetime.now(timezone.utc) + ..., or milliseconds")


def check_topic(topic: str) -> None:
    problem = topic_problem(topic)
    if problem is not None:
        raise MessageRejected(problem)


@lru_cache(maxsize=4096)  # a program sends to few topics, and to each of them often
def topic_problem(topic: str) -> str | None:
    """Why messages cannot be sent to `topic`; None if they can."""
    fault = topic_name_problem(topic)
    if fault is not None:
        return f"{fault}: choose another topic"
    return f"topic {topic} belongs to the broker: messages cannot be sent there" if topic in _SYSTEM_TOPICS else None


def _check_body(body: object, body_bytes_max: int) -> None:
    if not isinstance(body, bytes):
        raise MessageRejected(f"the body is {type(body).__name__}, not bytes: encode it, for example with .encode()")
    if not body:
        # Java consumers of 4.7.1 fail on a message without a body, and their queue is stuck then.
        raise MessageRejected("the body is empty, which older Java consumers cannot read: send at least one byte")
    if len(body) > body_bytes_max:
        raise MessageRejected(
            f"the body has {len(body)} bytes, at most {body_bytes_max} are allowed: send less, or raise "
            "message_bytes_max here and maxMessageSize at the brokers"
        )


def _checked_keys(message: Message) -> str:
    keys = message.keys
    if type(keys) is str and " " not in keys:
        if keys:
            _check_value(Property.KEYS, keys)
        return keys
    for key in message.key_list:
        if not key or " " in key:
            raise MessageRejected(f"key {key!r}: a key may not be empty or hold blanks, which separate keys")
        _check_value(Property.KEYS, key)
    return " ".join(message.key_list)


def _check_tags(tags: str) -> None:
    _check_value(Property.TAGS, tags)
    if "||" in tags:
        raise MessageRejected(f"tags {tags!r}: a message has one tag; `||` is for subscriptions")


def _check_property(name: str, value: str) -> None:
    if name in RESERVED_PROPERTIES:
        instead = f"use {_FIELDS[name]}" if name in _FIELDS else "choose another name"
        raise MessageRejected(f"property {name} is reserved: {instead}")
    if not isinstance(name, str) or not name.strip():
        raise MessageRejected(f"property name {name!r}: a name is a text that is not blank")
    _check_value(name, name)
    _check_value(name, value)


def _check_value(name: str, value: object) -> None:
    if type(value) is str and value and value.isprintable() and not value.isspace():
        return  # not blank, and without separators, which are not printable
    if not isinstance(value, str):
        raise MessageRejected(f"property {name} is {type(value).__name__}, not text: convert it with str()")
    if not value.strip():
        raise MessageRejected(f"property {name} is blank, and readers drop such properties: leave it out")
    if NAME_END in value or PAIR_END in value:
        raise MessageRejected(
            f"property {name} holds 0x01 or 0x02, which separate properties on the wire: encode the value differently"
        )


# --- prepared messages ---

_COMPRESSED = int(SysFlag.COMPRESSED)  # without a compression type: every release reads it as zlib
ITEM_BYTES = 22  # the lengths and flags around the body and the properties of a batch item
_THREAD_FROM_BYTES = 128 * 1024  # compressing this much would block the event loop too long


class PreparedMessage(msgspec.Struct, frozen=True, gc=False):
    """A checked message with its encoded properties and the body to send."""

    message: Message
    unique_key: str
    properties: str
    """The property text, as in the request header."""
    body: bytes
    sys_flag: int

    @property
    def batched_size(self) -> int:
        """Its size as an item of a batch, where bodies are not compressed."""
        text = self.properties
        return len(self.message.body) + (len(text) if text.isascii() else len(text.encode())) + ITEM_BYTES


async def prepare(
    message: Message,
    unique_key: str,
    settings: ProducerSettings,
    *,
    extra: Mapping[str, str] | None = None,
    sys_flag: int = 0,
) -> PreparedMessage:
    """MessageRejected if the message can never be sent. `extra` are reserved properties."""
    prepared = prepare_uncompressed(message, unique_key, settings, extra=extra, sys_flag=sys_flag)
    body = await _compressed(message.body, settings)
    if body is message.body:
        return prepared
    return replace(prepared, body=body, sys_flag=sys_flag | _COMPRESSED)


def prepare_uncompressed(
    message: Message,
    unique_key: str,
    settings: ProducerSettings,
    *,
    extra: Mapping[str, str] | None = None,
    sys_flag: int = 0,
) -> PreparedMessage:
    """The same, with the body as it is."""
    keys = check_message(message, settings.message_bytes_max)
    return PreparedMessage(
        message, unique_key, _property_text(message, keys, unique_key, extra), message.body, sys_flag
    )


def _property_text(message: Message, keys: str, unique_key: str, extra: Mapping[str, str] | None) -> str:
    """Joined here, because all names and values are checked already; `encode_properties` would double the cost."""
    text = join_properties(message.properties.items())
    if keys:
        text += property_pair(Property.KEYS, keys)
    if message.tags is not None:
        text += property_pair(Property.TAGS, message.tags)
    if message.sharding_key is not None or message.delay_level or message.deliver_at is not None:
        text += _encoded(_uncommon_properties(message))
    text += f"{WAIT_TRUE if message.wait_stored else WAIT_FALSE}{UNIQUE_KEY_START}{unique_key}{PAIR_END}"
    if extra:
        text += _encoded(extra)
    return text if text.isascii() and len(text) <= PROPERTIES_BYTES_MAX else _encode_again(text)


def _uncommon_properties(message: Message) -> dict[str, str]:
    properties = {}
    if message.sharding_key is not None:
        properties[Property.SHARDING_KEY] = message.sharding_key
    if message.delay_level:
        properties[Property.DELAY] = str(message.delay_level)
    if message.deliver_at is not None:
        properties[Property.TIMER_DELIVER_MS] = str(_milliseconds(message.deliver_at))
    return properties


def _encode_again(text: str) -> str:
    """Encodes the properties one by one: the error then names the property that is too long or not text."""
    return _encoded(dict(pair.split(NAME_END) for pair in text.split(PAIR_END)[:-1]))


def _encoded(properties: Mapping[str, str]) -> str:
    try:
        return encode_properties(properties).decode()
    except RecordError as error:
        raise MessageRejected(str(error)) from None


def _milliseconds(moment: datetime | int) -> int:
    return moment if isinstance(moment, int) else round(moment.timestamp() * 1000)


async def _compressed(body: bytes, settings: ProducerSettings) -> bytes:
    """`body` itself if it is short, or would not get shorter."""
    if len(body) < settings.compress_over_bytes:
        return body
    if len(body) >= _THREAD_FROM_BYTES:
        compressed = await asyncio.to_thread(compress, body, Compression.ZLIB, settings.compress_level)
    else:
        compressed = compress(body, Compression.ZLIB, settings.compress_level)
    return compressed if len(compressed) < len(body) else body


def unique_keys_for(instance: Instance) -> UniqueKeys:
    """Each producer gets a salt of its own, so that two in one process never make the same key."""
    return UniqueKeys(_address(instance.ip), os.getpid(), os.urandom(4), instance.clock.now_ms)


def _address(text: str) -> IPv4Address | IPv6Address:
    try:
        return ip_address(text)
    except ValueError:  # client_ip may be any string
        return IPv4Address("127.0.0.1")
