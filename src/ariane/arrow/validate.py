"""Whether there are whole records at many positions at once, and where their parts are.

The checks are those of `ariane.wire.record.read.verify`; for a record that fails, `verify` is asked for the reason, so
that both tell the same.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ariane.arrow.gather import STORE_HOST_AT, Bools, ByteGatherer, Int64s, is_all
from ariane.arrow.record_prefixes import (
    TEXT_LENGTH_BYTES,
    WORD,
    PrefixFields,
    RecordPrefixes,
    gather_fronts,
    tail_words,
    topic_at,
)
from ariane.arrow.rows import EvenTopics, OneTopic, Rows, Topics, TopicSpans
from ariane.wire.host import HOST_BYTES_V4, HOST_BYTES_V6
from ariane.wire.record.layout import (
    BLANK_BYTES_MIN,
    BLANK_MAGIC,
    HOST_BITS,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MAX,
    RECORD_BYTES_MIN,
)
from ariane.wire.record.numpy_fields import HEAD_BYTES, heads_at
from ariane.wire.sys_flag import SysFlag

# --- usual_tails ---
#
# What stands behind the bodies of usual records, found without looking at one record after the other:
#
#     body ... | length | topic | length of the properties | properties ...
#              |<----------------- tail ---------------->|
#
# When all topics are equally long, a tail is gathered at once, which takes less time than the two lengths and the topic
# one by one. When all are the same topic, tails differ in the last length alone, and are compared as words of 8 bytes.
# The first word then begins with some bytes of the body, which are shifted out of it:
#
#     . . . 10 B e n c | h T o p i c length length        a topic with its length before it, as in all of this file

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


def tails_of(source: ByteGatherer, body_end: Int64s, ends: Int64s) -> Tails | None:
    """Of records whose ends lie inside the source. None when the lengths of some record do not add up."""
    places = (0, len(ends) // 2, -1)
    topics = [topic_at(source, body_end.item(place), ends.item(place)) for place in places]
    length = len(topics[0])
    even = _even(source, body_end, ends, topics) if length and length == len(topics[1]) == len(topics[2]) else None
    return _uneven(source, body_end, ends) if even is None else even


def _even(source: ByteGatherer, body_end: Int64s, ends: Int64s, samples: list[bytes]) -> Tails | None:
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


def _uneven(source: ByteGatherer, body_end: Int64s, ends: Int64s) -> Tails | None:
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


# --- usual_rows ---
#
# The fast way for the usual case, which is nearly every case: whole records with two IPv4 hosts and a short topic.
#
# The checks are those of row_checks.py. Here the smallest value answers for all, or every bit that some value has;
# if one of them says no, nothing is known of the others, and each record is looked at there.

_most = np.maximum.reduce
_some_has, _all_have = np.bitwise_or.reduce, np.bitwise_and.reduce
_MAGIC_BITS = 0xFFFFFFFF


def usual_rows(
    source: ByteGatherer, fronts: RecordPrefixes, positions: Int64s, limit: int, base: int | None, size_max: int
) -> Rows | None:
    """The rows at these positions, of which there is one at least; None when they are not all usual."""
    fields, more = fronts
    ends = _ends(fields["sizeAndMagic"].astype(np.int64, copy=False), positions, limit, size_max)
    if ends is None:
        return None
    body_length = fields["bodyLength"].astype(np.int64, copy=False)
    standing = None if base is None else positions + base
    flags = int(_some_has(fields["sysFlag"]))
    if more is not None and not is_all(body_length == more.alike.body_length):
        more = None
    if (
        (more is None and _least(body_length) < 0)
        or flags & HOST_BITS
        or not (standing is None or is_all(fields["physicalOffset"] == standing))
    ):
        return None
    body_at = positions + HEAD_BYTES
    body_end = body_at + body_length
    tails = None if more is None else tails_in(more.tails, body_end, ends, more.alike.topic)
    if tails is None:
        tails = tails_of(source, body_end, ends)
    if tails is None:
        return None
    return Rows(
        source=source,
        fields=fields,
        position=positions,
        standing=standing,
        flags=flags,
        born_shift=None,
        store_shift=None,
        body_position=body_at,
        body_length=body_length,
        text_position=tails.text_position,
        text_length=tails.text_length,
        found_topics=tails.topics,
        bodies=None if more is None else more.bodies,
    )


def _ends(size_and_magic: Int64s, positions: Int64s, limit: int, size_max: int) -> Int64s | None:
    """Where the records end; None when one has another magic number or is too large. That none is too small follows
    from the lengths in it, which add up and are not negative.
    """
    some, every = int(_some_has(size_and_magic)), int(_all_have(size_and_magic))
    if not some & _MAGIC_BITS == every & _MAGIC_BITS == MAGIC_V1:
        return None
    bound = some >> 32  # no size is larger; negative if one is
    size = size_and_magic >> 32
    if bound < 0 or (bound > size_max and _most(size) > size_max):
        return None
    ends = positions + size
    return None if positions[-1] + bound > limit and _most(ends) > limit else ends


# ---

_BORN_HOST_V6 = int(SysFlag.BORN_HOST_V6)
_STORE_HOST_V6 = int(SysFlag.STORE_HOST_V6)
_V6_MORE = HOST_BYTES_V6 - HOST_BYTES_V4
_STORE_TIMESTAMP_AT = 56
_BEHIND_HOSTS_AT = 72


class Checked(NamedTuple):
    rows: Rows
    """The records whose lengths add up."""
    numbers: Int64s
    """Which they are among the positions that were asked for."""
    broken: Int64s
    """Which of the positions hold neither a record nor a blank."""


def check_rows(
    source: ByteGatherer, positions: Int64s, limit: int, base: int | None, size_max: int = RECORD_BYTES_MAX
) -> Checked:
    """The records at these positions, which ascend and of which only the bytes before `limit` count.

    With `base`, the physical offset of the source's first byte, a record must stand where it says that it does.
    """
    if len(positions) and positions[-1] > limit - HEAD_BYTES:
        return _with_tail(source, positions, limit, base, size_max)
    if len(positions):
        usual = usual_rows(source, gather_fronts(source, positions, limit), positions, limit, base, size_max)
        if usual is not None:
            return Checked(usual, _numbers(len(positions)), _NONE)
    heads = heads_at(source.view, positions)
    magic, size = heads["magic"].astype(np.uint32), heads["size"].astype(np.int64)
    ends = positions + size
    is_wide = magic == MAGIC_V2
    ok = ((magic == MAGIC_V1) | is_wide) & (size >= RECORD_BYTES_MIN) & (size <= size_max) & (ends <= limit)
    if base is not None:
        ok &= heads["physicalOffset"] == positions + base
    rows, ok = _parts(source, heads, base, positions, ends, is_wide, ok)
    if is_all(ok):
        return Checked(rows, _numbers(len(positions)), _NONE)
    is_blank = (magic == BLANK_MAGIC) & (size >= BLANK_BYTES_MIN)
    return Checked(rows.take(ok), np.flatnonzero(ok), np.flatnonzero(~ok & ~is_blank))


_NONE: Int64s = np.empty(0, np.int64)
_kept_numbers: Int64s = _NONE


def _numbers(count: int) -> Int64s:
    """0, 1, 2, ...: kept, because nearly every batch needs them; nobody may write to them."""
    global _kept_numbers
    known = _kept_numbers
    if len(known) < count:
        known = np.arange(2 * count)
        known.flags.writeable = False
        _kept_numbers = known
    return known[:count]


def _with_tail(source: ByteGatherer, positions: Int64s, limit: int, base: int | None, size_max: int) -> Checked:
    """When the last positions are so near to the limit that only a blank fits: they are blanks, or broken."""
    inside = int(np.searchsorted(positions, limit - HEAD_BYTES, side="right"))
    checked = check_rows(source, positions[:inside], limit, base, size_max)
    is_broken = [not _is_blank(source, at, limit) for at in positions[inside:].tolist()]
    return Checked(checked.rows, checked.numbers, np.append(checked.broken, inside + np.flatnonzero(is_broken)))


def _parts(
    source: ByteGatherer,
    heads: npt.NDArray[np.void],
    base: int | None,
    positions: Int64s,
    ends: Int64s,
    is_wide: Bools,
    ok: Bools,
) -> tuple[Rows, Bools]:
    """The places of body, topic and properties, and in which rows they fit. Where they do not, nothing is followed."""
    sys_flag = heads["sysFlag"].astype(np.int32)
    born_shift, store_shift, body_at = _behind_hosts(source, heads, sys_flag, positions, ends, ok)
    body_length = heads["bodyLength"].astype(np.int64)
    body_end = body_at + body_length
    topic_at = body_end + 1
    if np.count_nonzero(is_wide):
        topic_at += is_wide
    ok = ok & (body_length >= 0) & (topic_at <= ends)
    topic_length = _topic_lengths(source, _safe(body_end, ok, positions), is_wide)
    text_at = topic_at + topic_length
    text_at += 2
    text_length = ends - text_at
    ok &= (topic_length >= 0) & (text_length >= 0)
    ok &= source.shorts(_safe(text_at - 2, ok, positions)) == text_length
    rows = Rows(
        source=source,
        fields=PrefixFields(heads),
        position=positions,
        standing=None if base is None else positions + base,
        flags=int(np.bitwise_or.reduce(sys_flag)) if len(sys_flag) else 0,
        born_shift=born_shift,
        store_shift=store_shift,
        body_position=body_at,
        body_length=body_length,
        text_position=text_at,
        text_length=text_length,
        found_topics=TopicSpans(source, topic_at, topic_length),
    )
    return rows, ok


def _safe(places: Int64s, ok: Bools, instead: Int64s) -> Int64s:
    """Places that can be looked at: those of rows that are not ok may be anywhere."""
    return places if is_all(ok) else np.where(ok, places, instead)


def _behind_hosts(
    source: ByteGatherer,
    heads: npt.NDArray[np.void],
    sys_flag: npt.NDArray[np.int32],
    positions: Int64s,
    ends: Int64s,
    ok: Bools,
) -> tuple[Int64s | None, Int64s | None, Int64s]:
    """How much the hosts move what follows, and where bodies begin. The heads get what they hold from where it is."""
    body_at = positions + HEAD_BYTES
    if not np.bitwise_or.reduce(sys_flag) & HOST_BITS:
        return None, None, body_at
    born = np.where(sys_flag & _BORN_HOST_V6, _V6_MORE, 0)
    store = np.where(sys_flag & _STORE_HOST_V6, _V6_MORE, 0)
    body_at += born + store
    ok &= body_at <= ends
    table = np.ndarray((len(heads), HEAD_BYTES), np.uint8, heads)
    moved = np.flatnonzero(ok & (born + store > 0))
    at = positions[moved] + born[moved]
    table[moved, _STORE_TIMESTAMP_AT:STORE_HOST_AT] = source.blocks(at + _STORE_TIMESTAMP_AT, 8)
    at += store[moved]
    table[moved, _BEHIND_HOSTS_AT:HEAD_BYTES] = source.blocks(at + _BEHIND_HOSTS_AT, HEAD_BYTES - _BEHIND_HOSTS_AT)
    return born, store, body_at


def _topic_lengths(source: ByteGatherer, at: Int64s, is_wide: Bools) -> Int64s:
    """Negative for a length that no topic has."""
    length = source.int8[at].astype(np.int64)
    if np.count_nonzero(is_wide):
        length[is_wide] = source.shorts(at[is_wide])
    return length


def _is_blank(source: ByteGatherer, at: int, limit: int) -> bool:
    head = bytes(source.view[at : min(at + BLANK_BYTES_MIN, limit)])
    return (
        len(head) == BLANK_BYTES_MIN
        and int.from_bytes(head[4:], "big") == BLANK_MAGIC
        and int.from_bytes(head[:4], "big", signed=True) >= BLANK_BYTES_MIN
    )
