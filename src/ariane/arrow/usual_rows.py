"""The fast way for the usual case, which is nearly every case: whole records with two IPv4 hosts and a short topic.

The checks are those of row_checks.py. Here the smallest and the largest value answer for all, in half the time;
if one of them says no, nothing is known of the others, and each record is looked at there.

What stands behind the bodies is gathered at once when all topics are equally long, which takes less time than the two
lengths and the topic one by one:

    body ... | length | topic | length of the properties | properties ...
             |<----------------- tail ---------------->|
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ariane.arrow.rows import Rows
from ariane.arrow.source import HEAD_BYTES, HEAD_TYPE, Int64s, Source, is_all
from ariane.wire.record import HOST_BITS, MAGIC_V1, RECORD_BYTES_MIN

_LENGTHS_BYTES = 3
"""Of the two lengths behind the body: that of the topic, that of the properties."""
_SIZE_AND_MAGIC = np.dtype({"names": ["both"], "formats": [">i8"], "offsets": [0], "itemsize": HEAD_BYTES})
"""The first two fields as one: what costs is the way to each head, not what is read there."""
_least, _most = np.minimum.reduce, np.maximum.reduce


def usual_rows(
    source: Source, heads: npt.NDArray[np.void], positions: Int64s, limit: int, base: int | None, size_max: int
) -> Rows | None:
    """The rows at these positions, of which there is one at least; None when they are not all usual."""
    fields, size_and_magic = heads.view(HEAD_TYPE), heads.view(_SIZE_AND_MAGIC)["both"].astype(np.int64)
    size, body_length = size_and_magic >> 32, fields["bodyLength"].astype(np.int64)
    sys_flag, ends = fields["sysFlag"].astype(np.int32), positions + size
    if (
        _least(size) < RECORD_BYTES_MIN
        or _most(size) > size_max
        or _most(ends) > limit
        or _least(body_length) < 0
        or np.bitwise_or.reduce(sys_flag) & HOST_BITS
        or not is_all(size_and_magic & 0xFFFFFFFF == MAGIC_V1)
        or not (base is None or is_all(fields["physicalOffset"] == positions + base))
    ):
        return None
    body_at = positions + HEAD_BYTES
    body_end = body_at + body_length
    behind_body = ends - body_end
    if _least(behind_body) < _LENGTHS_BYTES:
        return None
    topics = _even_topics(source, body_end, behind_body)
    behind = _behind(source, body_end, behind_body) if topics is None else topics
    if behind is None:
        return None
    return Rows(
        source=source,
        heads=heads,
        base=base,
        position=positions,
        sys_flag=sys_flag,
        born_shift=None,
        store_shift=None,
        body_position=body_at,
        body_length=body_length,
        topic_position=body_end + 1,
        topic_length=behind.topic_length,
        text_position=ends - behind.text_length,
        text_length=behind.text_length,
        topic_blocks=behind.topics,
    )


class _Behind(NamedTuple):
    """What follows the bodies."""

    topic_length: Int64s
    text_length: Int64s
    topics: npt.NDArray[np.void] | None = None


def _even_topics(source: Source, body_end: Int64s, behind_body: Int64s) -> _Behind | None:
    """When all topics have one length: three of them are asked before all are."""
    length = int(source.int8[body_end[0]])
    if length <= 0 or not length == source.int8[body_end[len(body_end) // 2]] == source.int8[body_end[-1]]:
        return None
    if _least(behind_body) < length + _LENGTHS_BYTES:
        return None
    kind = _tail_type(length)
    tails = source.at_every_byte(f"V{kind.itemsize}")[body_end].view(kind)
    text_length = behind_body - (length + _LENGTHS_BYTES)
    if not (is_all(tails["topicLength"] == length) and is_all(tails["textLength"] == text_length)):
        return None
    return _Behind(np.full(len(body_end), length, np.int64), text_length, tails["topic"])


@lru_cache(maxsize=256)
def _tail_type(length: int) -> np.dtype[np.void]:
    return np.dtype([("topicLength", "i1"), ("topic", f"V{length}"), ("textLength", ">i2")])


def _behind(source: Source, body_end: Int64s, behind_body: Int64s) -> _Behind | None:
    topic_length = source.int8[body_end].astype(np.int64)
    text_length = behind_body - topic_length - _LENGTHS_BYTES
    if _least(topic_length) < 0 or _least(text_length) < 0:
        return None
    lengths_at = body_end + topic_length
    lengths_at += 1
    return _Behind(topic_length, text_length) if is_all(source.shorts(lengths_at) == text_length) else None
