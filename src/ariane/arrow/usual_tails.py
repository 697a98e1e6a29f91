"""What stands behind the bodies of usual records, found without looking at one record after the other:

    body ... | length | topic | length of the properties | properties ...
             |<----------------- tail ---------------->|

When all topics are equally long, a tail is gathered at once, which takes less time than the two lengths and the topic
one by one. When all are the same topic, tails differ in the last length alone, and are compared as words of 8 bytes.
The first word then begins with some bytes of the body, which are shifted out of it:

    . . . 10 B e n c | h T o p i c length length        a topic with its length before it, as in all of this file
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ariane.arrow.fronts import TEXT_LENGTH_BYTES, WORD, tail_words, topic_at
from ariane.arrow.source import Int64s, Source, is_all
from ariane.arrow.topics import EvenTopics, OneTopic, Topics, TopicSpans

_TEXT_BYTES_MAX = 0x7FFF
_least = np.minimum.reduce


class Tails(NamedTuple):
    topics: Topics
    text_position: Int64s
    text_length: Int64s


def tails_in(words: list[Int64s], body_end: Int64s, ends: Int64s, topic: bytes) -> Tails | None:
    """Of records whose tails were gathered with their heads; None when not all have this topic."""
    text_at = body_end + (len(topic) + TEXT_LENGTH_BYTES)
    text_length = ends - text_at
    if not _can_be_lengths(text_length) or not _is_one_topic(words, text_length, topic):
        return None
    return Tails(OneTopic(topic[1:], len(ends)), text_at, text_length)


def tails_of(source: Source, body_end: Int64s, ends: Int64s) -> Tails | None:
    """Of records whose ends lie inside the source. None when the lengths of some record do not add up."""
    places = (0, len(ends) // 2, -1)
    topics = [topic_at(source, body_end.item(place), ends.item(place)) for place in places]
    length = len(topics[0])
    even = _even(source, body_end, ends, topics) if length and length == len(topics[1]) == len(topics[2]) else None
    return _uneven(source, body_end, ends) if even is None else even


def _even(source: Source, body_end: Int64s, ends: Int64s, samples: list[bytes]) -> Tails | None:
    """When all topics have the length of the samples."""
    topic = samples[0]
    text_at = body_end + (len(topic) + TEXT_LENGTH_BYTES)
    text_length = ends - text_at
    if not _can_be_lengths(text_length):
        return None
    if topic == samples[1] == samples[2]:
        width = tail_words(len(topic)) * WORD
        words = source.blocks(text_at - width, width).view(">i8").astype(np.int64).T
        if _is_one_topic(words, text_length, topic):
            return Tails(OneTopic(topic[1:], len(ends)), text_at, text_length)
    kind = _tail_type(len(topic) - 1)
    tails = np.ndarray(ends.shape, kind, source.blocks(body_end, kind.itemsize))
    if not (is_all(tails["topicLength"] == topic[0]) and is_all(tails["textLength"] == text_length)):
        return None
    return Tails(EvenTopics(tails["topic"]), text_at, text_length)


def _can_be_lengths(text_length: Int64s) -> bool:
    """Whether each of them fits: all bits together do, because in the largest length every bit is set."""
    return bool(0 <= np.bitwise_or.reduce(text_length) <= _TEXT_BYTES_MAX)


def _is_one_topic(words: Iterable[Int64s], text_length: Int64s, topic: bytes) -> bool:
    """Whether before each text stand this topic and the length of this text: the first word of all, then the next."""
    expected, shift = _expected(topic)
    *before, last = words
    found = [*before, last ^ text_length]
    found[0] = found[0] << shift
    return all(is_all(column == word) for column, word in zip(found, expected, strict=True))


@lru_cache(maxsize=256)
def _expected(topic: bytes) -> tuple[list[int], int]:
    """The words of a tail with 0 for its last length, and how far the first one is shifted."""
    tail = topic + bytes(TEXT_LENGTH_BYTES)
    before = -len(tail) % WORD
    tail = tail[: WORD - before] + bytes(before) + tail[WORD - before :]
    return [int.from_bytes(tail[at : at + WORD], signed=True) for at in range(0, len(tail), WORD)], 8 * before


@lru_cache(maxsize=256)
def _tail_type(length: int) -> np.dtype[np.void]:
    return np.dtype([("topicLength", "i1"), ("topic", f"V{length}"), ("textLength", ">i2")])


def _uneven(source: Source, body_end: Int64s, ends: Int64s) -> Tails | None:
    behind_body = ends - body_end
    if _least(behind_body) < 1 + TEXT_LENGTH_BYTES:
        return None
    topic_length = source.int8[body_end].astype(np.int64)
    text_length = behind_body - topic_length
    text_length -= 1 + TEXT_LENGTH_BYTES
    if _least(topic_length) < 0 or _least(text_length) < 0:
        return None
    topic_position = body_end + 1
    if not is_all(source.shorts(topic_position + topic_length) == text_length):
        return None
    return Tails(TopicSpans(source, topic_position, topic_length), ends - text_length, text_length)
