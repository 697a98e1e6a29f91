"""Many records of the log at once, if they are of the usual kind: a start after a crash may have to read a million.

Looked at one by one (wire/record_view.py), a record costs several times as much. The checks are the same. Whatever is
unusual, from an IPv6 host to a torn end, is left for that way to judge: records are taken up to it.

    head with two IPv4 hosts | body | length topic length properties
                                    |<---------- tail ------------>|        version 1; topic and properties are text
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ariane.store.delay_levels import SCHEDULE_TOPIC
from ariane.store.usual_tails import Facts, Tails
from ariane.wire.crc import POSITIVE_INT32, whole_crc32_of_each
from ariane.wire.record import HOST_BITS, MAGIC_V1, RECORD_BYTES_MIN, SIZE_AND_MAGIC, TOPIC_BYTES_MAX_V1
from ariane.wire.record_fields import HEAD_BYTES, heads_at
from ariane.wire.record_seal import SEAL_NAME, is_sealed, seal_fault

Int64s: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

RECORDS_MAX = 4096
"""At once: a step for all of them costs little for each, and they are still in the cache at the next step."""
_BYTES_MAX = 16 * 1024 * 1024
_LENGTHS_BYTES = 3
"""Of the topic, 1, and of the properties, 2."""


class UsualRecords(NamedTuple):
    """Records that follow each other: where each one is, and what queues and index keep of it."""

    end: int
    """Behind the last one, in the buffer."""
    physical: list[int]
    sizes: list[int]
    topics: list[str]
    queue_ids: list[int]
    queue_offsets: list[int]
    sys_flags: list[int]
    timestamps_ms: list[int]
    facts: Facts

    def entry(self, number: int) -> tuple[int, int, int]:
        """Of one of them, for its queue: physical offset, size, tags code."""
        return self.physical[number], self.sizes[number], self.facts.tags_codes[number]


class _Places(NamedTuple):
    """Of each record's parts, in the buffer."""

    starts: Int64s
    body_ends: Int64s
    topic_lengths: Int64s
    ends: Int64s

    def first(self, count: int) -> "_Places":
        return _Places(*(part[:count] for part in self))


def read_usual(view: memoryview, position: int, base: int, size_max: int) -> UsualRecords | None:
    """Some usual records from `position` on; None when the first one is not usual.

    `base` is the physical offset of the buffer's first byte: records must say that they belong where they are.
    """
    starts = _chain(view, position)
    heads = heads_at(view, starts)
    places = _places(view, starts, heads, base, size_max)
    places = places.first(_count_whole(view, places, heads))
    tails = Tails.joined(
        _pieces(view, places.body_ends, places.ends), places.ends - places.body_ends, places.topic_lengths
    )
    count = _count_sealed(view, places.first(tails.count_plain()), tails)
    topics = tails.first(count).topics()
    if SCHEDULE_TOPIC in topics:  # their entries have the time of delivery where others have the tags' code
        count = topics.index(SCHEDULE_TOPIC)
    if not count:
        return None
    places, heads = places.first(count), heads[:count]
    return UsualRecords(
        end=int(places.ends[-1]),
        physical=(places.starts + base).tolist(),
        sizes=(places.ends - places.starts).tolist(),
        topics=topics[:count],
        queue_ids=heads["queueId"].tolist(),
        queue_offsets=heads["queueOffset"].tolist(),
        sys_flags=heads["sysFlag"].tolist(),
        timestamps_ms=heads["storeTimestamp"].tolist(),
        facts=tails.first(count).facts(),
    )


def _chain(view: memoryview, position: int) -> Int64s:
    """Where records of version 1 begin, each where the size of the one before leads; of the last only the head may be
    there."""
    starts: list[int] = []
    unpack, last = SIZE_AND_MAGIC.unpack_from, min(position + _BYTES_MAX, len(view) - RECORD_BYTES_MIN)
    for _ in range(RECORDS_MAX):
        if position > last:
            break
        size, magic = unpack(view, position)
        if magic != MAGIC_V1 or size < RECORD_BYTES_MIN:
            break
        starts.append(position)
        position += size
    return np.array(starts, np.int64)


def _places(view: memoryview, starts: Int64s, heads: npt.NDArray[np.void], base: int, size_max: int) -> _Places:
    """Up to the first record whose lengths do not add up, or that belongs elsewhere. Before a length is followed, it is
    known to lead to a place inside the record, and the record to be inside the buffer."""
    sizes, bodies = heads["size"].astype(np.int64), heads["bodyLength"].astype(np.int64)
    ends, body_ends = starts + sizes, starts + HEAD_BYTES + bodies
    odd = (heads["sysFlag"] & HOST_BITS) != 0
    odd |= heads["physicalOffset"] != starts + base
    odd |= (sizes > size_max) | (ends > len(view)) | (bodies < 0) | (body_ends + _LENGTHS_BYTES > ends)
    count = _count_before(odd)
    bytes_ = np.frombuffer(view, np.uint8)
    topics = bytes_[body_ends[:count]].astype(np.int64)
    places = _Places(starts, body_ends, topics, ends).first(count)
    texts = places.ends - places.body_ends - topics - _LENGTHS_BYTES
    places = places.first(_count_before((topics > TOPIC_BYTES_MAX_V1) | (texts < 0)))
    length_at = places.body_ends + 1 + places.topic_lengths
    stored = bytes_[length_at].astype(np.int64) << 8 | bytes_[length_at + 1]
    return places.first(_count_before(stored != texts[: len(stored)]))


def _count_whole(view: memoryview, places: _Places, heads: npt.NDArray[np.void]) -> int:
    """Records before the first one whose body is not what was written."""
    begins, ends = places.starts + HEAD_BYTES, places.body_ends
    found = np.fromiter(whole_crc32_of_each(_pieces(view, begins, ends)), np.int64, len(begins)) & POSITIVE_INT32
    return _count_before((found != heads["bodyCRC"][: len(begins)]) & (begins < ends))


def _count_sealed(view: memoryview, places: _Places, tails: Tails) -> int:
    """Records before the first one with a seal that says that it is not what was written."""
    if SEAL_NAME in tails.data:
        for number, record in enumerate(_pieces(view, places.starts, places.ends)):
            text = tails.text(number)
            if is_sealed(text) and seal_fault(record, text) is not None:
                return number
    return len(places.starts)


def _pieces(view: memoryview, begins: Int64s, ends: Int64s) -> Iterator[memoryview]:
    return map(view.__getitem__, map(slice, begins.tolist(), ends.tolist()))


def _count_before(odd: Bools) -> int:
    """How many there are before the first odd one."""
    first = int(odd.argmax()) if len(odd) else 0
    return first if len(odd) and odd[first] else len(odd)
