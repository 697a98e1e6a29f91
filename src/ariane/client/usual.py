"""Usual messages, checked and written in one look: what nearly all messages are.

A topic, a body of bytes that travels as it is, perhaps a key, a tag and some properties, all of printable text. What
has anything else goes the general way (envelope.py), which also finds the words for what is wrong; so nothing is
refused here. One look takes 0.8 us, the checks and texts of the general way 1.9 us.
"""

from functools import lru_cache

from ariane.client.message_checks import topic_trouble
from ariane.model.ids import RETRY_PREFIX
from ariane.model.message import RESERVED_PROPERTIES, Message

_TEXT_MAX = 8000  # characters: even at four bytes each, this much fits a record


def usual_text(message: Message, body_bytes_below: int) -> str | None:
    """The property text of a usual message up to its unique key; None when it takes a closer look."""
    body, keys, tags, text = message.body, message.keys, message.tags, ""
    if (
        type(message) is not Message
        or type(body) is not bytes
        or not 0 < len(body) < body_bytes_below
        or message.sharding_key is not None
        or message.delay_level
        or message.deliver_at is not None
        or message.flag
        or not _is_usual_topic(message.topic)
    ):
        return None
    if message.properties:
        for name, value in message.properties.items():
            if not _is_text(name) or not _is_text(value) or name in RESERVED_PROPERTIES:
                return None
            text = f"{text}{name}\x01{value}\x02"
    # A word has no blanks, which part keys, and no separators, which do not print: every reader will see the same. The
    # two looks are written out, because a call for each would take longer than they do.
    if keys:
        if type(keys) is not str:
            keys = keys[0] if len(keys) == 1 else ""
        if type(keys) is not str or not keys or " " in keys or not keys.isprintable():
            return None
        text = f"{text}KEYS\x01{keys}\x02"
    if tags is not None:
        if type(tags) is not str or not tags or " " in tags or not tags.isprintable() or "||" in tags:
            return None
        text = f"{text}TAGS\x01{tags}\x02"
    if len(text) > _TEXT_MAX:
        return None
    return f"{text}WAIT\x01true\x02" if message.wait_stored else f"{text}WAIT\x01false\x02"


def _is_text(text: object) -> bool:
    return type(text) is str and text.isprintable() and text.strip() != ""


@lru_cache(maxsize=4096)  # a program sends to few topics, and to each of them often
def _is_usual_topic(topic: str) -> bool:
    return topic_trouble(topic) is None and not topic.startswith(RETRY_PREFIX)
