"""The fast way for the usual case, which is nearly every case: whole records with two IPv4 hosts and a short topic.

The checks are those of row_checks.py. Here the smallest and the largest value answer for all, in half the time;
if one of them says no, nothing is known of the others, and each record is looked at there.
"""

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
    topic_length = source.int8[body_end].astype(np.int64)
    text_length = behind_body - topic_length - _LENGTHS_BYTES
    text_at = ends - text_length
    if _least(topic_length) < 0 or _least(text_length) < 0 or not is_all(source.shorts(text_at - 2) == text_length):
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
        topic_length=topic_length,
        text_position=text_at,
        text_length=text_length,
    )
