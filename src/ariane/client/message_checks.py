"""What can never be sent is refused before it leaves, with its cause and cure: a broker's answer says less."""

from datetime import datetime
from functools import lru_cache

from ariane.errors import MessageRejected
from ariane.model.ids import topic_fault
from ariane.model.message import RESERVED_PROPERTIES, Message, Property

MESSAGE_BYTES_MAX = 4 * 1024 * 1024

# Apache's TopicValidator has the first six. A message put there by hand would be taken for the broker's own books.
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
    """The keys as one text; MessageRejected when this message cannot be sent by anybody."""
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
    trouble = topic_trouble(topic)
    if trouble is not None:
        raise MessageRejected(trouble)


@lru_cache(maxsize=4096)  # a program sends to few topics, and to each of them often
def topic_trouble(topic: str) -> str | None:
    """Why nobody may send to `topic`; None when all may."""
    fault = topic_fault(topic)
    if fault is not None:
        return f"{fault}: choose another topic"
    return f"topic {topic} belongs to the broker: messages cannot be sent there" if topic in _SYSTEM_TOPICS else None


def _check_body(body: object, body_bytes_max: int) -> None:
    if not isinstance(body, bytes):
        raise MessageRejected(f"the body is {type(body).__name__}, not bytes: encode it, for example with .encode()")
    if not body:
        # Java consumers of 4.7.1 fail on a message without a body and then stand still on its queue.
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
        return  # neither blank nor with a separator, which do not print
    if not isinstance(value, str):
        raise MessageRejected(f"property {name} is {type(value).__name__}, not text: convert it with str()")
    if not value.strip():
        raise MessageRejected(f"property {name} is blank, and readers drop such properties: leave it out")
    if "\x01" in value or "\x02" in value:
        raise MessageRejected(
            f"property {name} holds 0x01 or 0x02, which separate properties on the wire: encode the value differently"
        )
