"""Usual messages, checked and written in one look: what nearly all messages are.

A topic, a body of bytes that travels as it is, perhaps a key, a tag and some properties, all of printable text. What
has anything else goes the general way (envelope.py), which also finds the words for what is wrong; so nothing is
refused here. One look takes 0.8 us, the checks and texts of the general way 1.9 us.
"""

from functools import lru_cache
from typing import Any

from ariane.client.message_checks import topic_trouble
from ariane.model.ids import RETRY_PREFIX
from ariane.model.message import RESERVED_PROPERTIES, Message

_TEXT_MAX = 8000  # characters: even at four bytes each, this much fits a record
_WORD_MAX = 2000
_LISTS = (list, tuple)


def usual_text(message: Message, body_bytes_below: int) -> str | None:
    """The property text of a usual message up to its unique key; None when it takes a closer look."""
    body, text = message.body, ""
    if (
        type(message) is not Message
        or type(body) is not bytes
        or not 0 < len(body) < body_bytes_below
        or message.sharding_key is not None
        or message.delay_level
        or message.deliver_at is not None
        or message.flag
        or not is_usual_topic(message.topic)
    ):
        return None
    if message.properties:
        for name, value in message.properties.items():
            if not _is_text(name) or not _is_text(value) or name in RESERVED_PROPERTIES:
                return None
            text = f"{text}{name}\x01{value}\x02"
    words = words_text(message.keys, message.tags)
    if words is None or len(text) + len(words) > _TEXT_MAX:
        return None
    return f"{text}{words}WAIT\x01true\x02" if message.wait_stored else f"{text}{words}WAIT\x01false\x02"


def words_text(keys: Any, tags: Any) -> str | None:
    """The property text of a key and a tag, of either or of none; None when they take a closer look.

    A word has no blanks, which part keys, and no separators, which do not print: every reader will see the same.
    """
    text = "" if tags is None else _tag_text(tags) if type(tags) is str else None
    if type(keys) is not str:
        if not keys:
            return text
        if type(keys) not in _LISTS or len(keys) != 1 or type(keys[0]) is not str or not keys[0]:
            return None
        keys = keys[0]
    if text is None or " " in keys or not keys.isprintable() or len(keys) > _WORD_MAX:
        return None
    return f"KEYS\x01{keys}\x02{text}" if keys else text


@lru_cache(maxsize=4096)  # consumers choose by tags, so a program has few
def _tag_text(tag: str) -> str | None:
    is_usual = tag and " " not in tag and tag.isprintable() and "||" not in tag and len(tag) <= _WORD_MAX
    return f"TAGS\x01{tag}\x02" if is_usual else None


def _is_text(text: object) -> bool:
    return type(text) is str and text.isprintable() and text.strip() != ""


@lru_cache(maxsize=4096)  # a program sends to few topics, and to each of them often
def is_usual_topic(topic: str) -> bool:
    return topic_trouble(topic) is None and not topic.startswith(RETRY_PREFIX)
