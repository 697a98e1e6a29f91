"""Validates the records at many positions at once, and locates their parts.

The checks are those of `ariane.wire.record.read.verify`. For a record that fails, `verify` is called to get the reason,
so that both report the same.

The fast path (`simple_rows`) covers nearly every case: whole records with two IPv4 hosts and a short topic. It checks
minimums and the union of bits over all records. If such a check fails, nothing is known about single records, and the
general path (`check_rows`) checks each of them.

A suffix is what stands between the body and the properties:

    body ... | length | topic | length of the properties | properties ...
             |<--------------- suffix ---------------->|

If all topics have one length, a suffix is gathered in one copy, which takes less time than the two lengths and the
topic separately. If all records have the same topic, suffixes differ only in the last length, and are compared as words
of 8 bytes. The first word then begins with some bytes of the body, which are shifted out of it:

    . . . 10 B e n c | h T o p i c length length        a topic with its length byte, as everywhere in this module
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ariane.arrow.gather import STORE_HOST_AT, Bools, ByteGatherer, Int64s, all_true
from ariane.arrow.record_prefixes import (
    TEXT_LENGTH_BYTES,
    WORD,
    HeaderArray,
    RecordPrefixes,
    gather_prefixes,
    suffix_words,
    topic_at,
)
from ariane.arrow.rows import OneTopic, Rows, Topics, TopicSpans, UniformTopics
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

# --- suffixes ---

_TEXT_BYTES_MAX = 0x7FFF
_minimum = np.minimum.reduce


class Suffixes(NamedTuple):
    topics: Topics
    properties_position: Int64s
    properties_length: Int64s


def suffixes_from_words(words: list[Int64s], body_end: Int64s, ends: Int64s, topic: bytes) -> Suffixes | None:
    """Suffixes that were gathered with the prefixes; None when not all records have this topic."""
    text_at = body_end + (len(topic) + TEXT_LENGTH_BYTES)
    properties_length = ends - text_at
    if not _fit_length_field(properties_length) or not _all_have_topic(words, properties_length, topic):
        return None
    return Suffixes(OneTopic(topic[1:], len(ends)), text_at, properties_length)


def read_suffixes(source: ByteGatherer, body_end: Int64s, ends: Int64s) -> Suffixes | None:
    """Suffixes of records whose ends lie inside the source. None when the lengths of some record do not add up."""
    sample = (0, len(ends) // 2, -1)
    topics = [topic_at(source, body_end.item(index), ends.item(index)) for index in sample]
    length = len(topics[0])
    uniform = (
        _uniform_suffixes(source, body_end, ends, topics)
        if length and length == len(topics[1]) == len(topics[2])
        else None
    )
    return _varying_suffixes(source, body_end, ends) if uniform is None else uniform


def _uniform_suffixes(source: ByteGatherer, body_end: Int64s, ends: Int64s, samples: list[bytes]) -> Suffixes | None:
    """If all topics have the length of the samples, else None."""
    topic = samples[0]
    text_at = body_end + (len(topic) + TEXT_LENGTH_BYTES)
    properties_length = ends - text_at
    if not _fit_length_field(properties_length):
        return None
    if topic == samples[1] == samples[2]:
        width = suffix_words(len(topic)) * WORD
        words = source.blocks(text_at - width, width).view(">i8").astype(np.int64).T
        if _all_have_topic(words, properties_length, topic):
            return Suffixes(OneTopic(topic[1:], len(ends)), text_at, properties_length)
    kind = _suffix_type(len(topic) - 1)
    suffixes = np.ndarray(ends.shape, kind, source.blocks(body_end, kind.itemsize))
    if not (all_true(suffixes["topicLength"] == topic[0]) and all_true(suffixes["textLength"] == properties_length)):
        return None
    return Suffixes(UniformTopics(suffixes["topic"]), text_at, properties_length)


def _fit_length_field(properties_length: Int64s) -> bool:
    """Whether each of them fits: the union of all bits does, because in the largest length every bit is set."""
    return bool(0 <= np.bitwise_or.reduce(properties_length) <= _TEXT_BYTES_MAX)


def _all_have_topic(words: Iterable[Int64s], properties_length: Int64s, topic: bytes) -> bool:
    """Whether each record has this topic, and the length of its properties adds up: word by word, for all records."""
    expected, shift = _expected_words(topic)
    *before, last = words
    actual = [*before, last ^ properties_length]
    actual[0] = actual[0] << shift
    return all(all_true(column == word) for column, word in zip(actual, expected, strict=True))


@lru_cache(maxsize=256)
def _expected_words(topic: bytes) -> tuple[list[int], int]:
    """The words of a suffix with 0 for its last length, and by how many bits the first one is shifted."""
    suffix = topic + bytes(TEXT_LENGTH_BYTES)
    before = -len(suffix) % WORD
    suffix = suffix[: WORD - before] + bytes(before) + suffix[WORD - before :]
    return [int.from_bytes(suffix[at : at + WORD], signed=True) for at in range(0, len(suffix), WORD)], 8 * before


@lru_cache(maxsize=256)
def _suffix_type(length: int) -> np.dtype[np.void]:
    return np.dtype([("topicLength", "i1"), ("topic", f"V{length}"), ("textLength", ">i2")])


def _varying_suffixes(source: ByteGatherer, body_end: Int64s, ends: Int64s) -> Suffixes | None:
    behind_body = ends - body_end
    if _minimum(behind_body) < 1 + TEXT_LENGTH_BYTES:
        return None
    topic_length = source.int8[body_end].astype(np.int64)
    properties_length = behind_body - topic_length
    properties_length -= 1 + TEXT_LENGTH_BYTES
    if _minimum(topic_length) < 0 or _minimum(properties_length) < 0:
        return None
    topic_position = body_end + 1
    if not all_true(source.int16_at(topic_position + topic_length) == properties_length):
        return None
    return Suffixes(TopicSpans(source, topic_position, topic_length), ends - properties_length, properties_length)


# --- fast path ---

_maximum = np.maximum.reduce
_any_bits, _all_bits = np.bitwise_or.reduce, np.bitwise_and.reduce
_MAGIC_BITS = 0xFFFFFFFF


def simple_rows(
    source: ByteGatherer, prefixes: RecordPrefixes, positions: Int64s, limit: int, base: int | None, size_max: int
) -> Rows | None:
    """The rows at these positions, at least one; None when not all of them fit the fast path."""
    fields, uniform = prefixes
    ends = _ends(fields["sizeAndMagic"].astype(np.int64, copy=False), positions, limit, size_max)
    if ends is None:
        return None
    body_length = fields["bodyLength"].astype(np.int64, copy=False)
    verified_offsets = None if base is None else positions + base
    flags = int(_any_bits(fields["sysFlag"]))
    if uniform is not None and not all_true(body_length == uniform.shape.body_length):
        uniform = None
    if (
        (uniform is None and _minimum(body_length) < 0)
        or flags & HOST_BITS
        or not (verified_offsets is None or all_true(fields["physicalOffset"] == verified_offsets))
    ):
        return None
    body_at = positions + HEAD_BYTES
    body_end = body_at + body_length
    suffixes = None if uniform is None else suffixes_from_words(uniform.suffixes, body_end, ends, uniform.shape.topic)
    if suffixes is None:
        suffixes = read_suffixes(source, body_end, ends)
    if suffixes is None:
        return None
    return Rows(
        source=source,
        fields=fields,
        position=positions,
        verified_offsets=verified_offsets,
        flags=flags,
        born_shift=None,
        store_shift=None,
        body_position=body_at,
        body_length=body_length,
        properties_position=suffixes.properties_position,
        properties_length=suffixes.properties_length,
        topic_data=suffixes.topics,
        bodies=None if uniform is None else uniform.bodies,
    )


def _ends(size_and_magic: Int64s, positions: Int64s, limit: int, size_max: int) -> Int64s | None:
    """Where the records end; None when one has another magic number or is too large.

    A minimum need not be checked: the lengths inside a record add up and are not negative.
    """
    some, every = int(_any_bits(size_and_magic)), int(_all_bits(size_and_magic))
    if not some & _MAGIC_BITS == every & _MAGIC_BITS == MAGIC_V1:
        return None
    bound = some >> 32  # no size is larger; negative if one is
    size = size_and_magic >> 32
    if bound < 0 or (bound > size_max and _maximum(size) > size_max):
        return None
    ends = positions + size
    return None if positions[-1] + bound > limit and _maximum(ends) > limit else ends


# --- general path ---

_BORN_HOST_V6 = int(SysFlag.BORN_HOST_V6)
_STORE_HOST_V6 = int(SysFlag.STORE_HOST_V6)
_V6_MORE = HOST_BYTES_V6 - HOST_BYTES_V4
_STORE_TIMESTAMP_AT = 56
_AFTER_HOSTS_AT = 72


class CheckedRows(NamedTuple):
    rows: Rows
    """The records whose lengths add up."""
    indexes: Int64s
    """Their indexes in the array of positions."""
    broken: Int64s
    """Indexes of the positions that hold neither a record nor a blank."""


def check_rows(
    source: ByteGatherer, positions: Int64s, limit: int, base: int | None, size_max: int = RECORD_BYTES_MAX
) -> CheckedRows:
    """The records at these ascending positions, within the bytes before `limit`.

    With `base`, the physical offset of the source's first byte, the physical offset in a record must be right.
    """
    if len(positions) and positions[-1] > limit - HEAD_BYTES:
        return _with_truncated_end(source, positions, limit, base, size_max)
    if len(positions):
        rows = simple_rows(source, gather_prefixes(source, positions, limit), positions, limit, base, size_max)
        if rows is not None:
            return CheckedRows(rows, _indexes(len(positions)), _NONE)
    headers = heads_at(source.view, positions)
    magic, size = headers["magic"].astype(np.uint32), headers["size"].astype(np.int64)
    ends = positions + size
    is_v2 = magic == MAGIC_V2
    ok = ((magic == MAGIC_V1) | is_v2) & (size >= RECORD_BYTES_MIN) & (size <= size_max) & (ends <= limit)
    if base is not None:
        ok &= headers["physicalOffset"] == positions + base
    rows, ok = _locate_parts(source, headers, base, positions, ends, is_v2, ok)
    if all_true(ok):
        return CheckedRows(rows, _indexes(len(positions)), _NONE)
    is_blank = (magic == BLANK_MAGIC) & (size >= BLANK_BYTES_MIN)
    return CheckedRows(rows.take(ok), np.flatnonzero(ok), np.flatnonzero(~ok & ~is_blank))


_NONE: Int64s = np.empty(0, np.int64)
_cached_indexes: Int64s = _NONE


def _indexes(count: int) -> Int64s:
    """0, 1, 2, ...: cached, because nearly every batch needs them, and therefore read-only."""
    global _cached_indexes
    cached = _cached_indexes
    if len(cached) < count:
        cached = np.arange(2 * count)
        cached.flags.writeable = False
        _cached_indexes = cached
    return cached[:count]


def _with_truncated_end(
    source: ByteGatherer, positions: Int64s, limit: int, base: int | None, size_max: int
) -> CheckedRows:
    """If the last positions are so near to the limit that only a blank fits: they are blanks, or broken."""
    inside = int(np.searchsorted(positions, limit - HEAD_BYTES, side="right"))
    checked = check_rows(source, positions[:inside], limit, base, size_max)
    is_broken = [not _is_blank(source, at, limit) for at in positions[inside:].tolist()]
    return CheckedRows(checked.rows, checked.indexes, np.append(checked.broken, inside + np.flatnonzero(is_broken)))


def _locate_parts(
    source: ByteGatherer,
    headers: npt.NDArray[np.void],
    base: int | None,
    positions: Int64s,
    ends: Int64s,
    is_v2: Bools,
    ok: Bools,
) -> tuple[Rows, Bools]:
    """Positions of body, topic and properties, and in which rows they fit. Wrong lengths are not followed."""
    sys_flag = headers["sysFlag"].astype(np.int32)
    born_shift, store_shift, body_at = _after_hosts(source, headers, sys_flag, positions, ends, ok)
    body_length = headers["bodyLength"].astype(np.int64)
    body_end = body_at + body_length
    topic_at = body_end + 1
    if np.count_nonzero(is_v2):
        topic_at += is_v2
    ok = ok & (body_length >= 0) & (topic_at <= ends)
    topic_length = _topic_lengths(source, _safe_positions(body_end, ok, positions), is_v2)
    text_at = topic_at + topic_length
    text_at += 2
    properties_length = ends - text_at
    ok &= (topic_length >= 0) & (properties_length >= 0)
    ok &= source.int16_at(_safe_positions(text_at - 2, ok, positions)) == properties_length
    rows = Rows(
        source=source,
        fields=HeaderArray(headers),
        position=positions,
        verified_offsets=None if base is None else positions + base,
        flags=int(np.bitwise_or.reduce(sys_flag)) if len(sys_flag) else 0,
        born_shift=born_shift,
        store_shift=store_shift,
        body_position=body_at,
        body_length=body_length,
        properties_position=text_at,
        properties_length=properties_length,
        topic_data=TopicSpans(source, topic_at, topic_length),
    )
    return rows, ok


def _safe_positions(positions: Int64s, ok: Bools, fallback: Int64s) -> Int64s:
    """Positions that can be read: in rows that are not ok they may be anywhere."""
    return positions if all_true(ok) else np.where(ok, positions, fallback)


def _after_hosts(
    source: ByteGatherer,
    headers: npt.NDArray[np.void],
    sys_flag: npt.NDArray[np.int32],
    positions: Int64s,
    ends: Int64s,
    ok: Bools,
) -> tuple[Int64s | None, Int64s | None, Int64s]:
    """By how much the hosts shift the fields after them, and where bodies begin.

    The shifted fields are copied into the header, to the positions that they have with IPv4 hosts.
    """
    body_at = positions + HEAD_BYTES
    if not np.bitwise_or.reduce(sys_flag) & HOST_BITS:
        return None, None, body_at
    born = np.where(sys_flag & _BORN_HOST_V6, _V6_MORE, 0)
    store = np.where(sys_flag & _STORE_HOST_V6, _V6_MORE, 0)
    body_at += born + store
    ok &= body_at <= ends
    table = np.ndarray((len(headers), HEAD_BYTES), np.uint8, headers)
    moved = np.flatnonzero(ok & (born + store > 0))
    at = positions[moved] + born[moved]
    table[moved, _STORE_TIMESTAMP_AT:STORE_HOST_AT] = source.blocks(at + _STORE_TIMESTAMP_AT, 8)
    at += store[moved]
    table[moved, _AFTER_HOSTS_AT:HEAD_BYTES] = source.blocks(at + _AFTER_HOSTS_AT, HEAD_BYTES - _AFTER_HOSTS_AT)
    return born, store, body_at


def _topic_lengths(source: ByteGatherer, at: Int64s, is_v2: Bools) -> Int64s:
    """Negative for a length that is not valid."""
    length = source.int8[at].astype(np.int64)
    if np.count_nonzero(is_v2):
        length[is_v2] = source.int16_at(at[is_v2])
    return length


def _is_blank(source: ByteGatherer, at: int, limit: int) -> bool:
    head = bytes(source.view[at : min(at + BLANK_BYTES_MIN, limit)])
    return (
        len(head) == BLANK_BYTES_MIN
        and int.from_bytes(head[4:], "big") == BLANK_MAGIC
        and int.from_bytes(head[:4], "big", signed=True) >= BLANK_BYTES_MIN
    )
