"""The fast way for the usual case, which is nearly every case: whole records with two IPv4 hosts and a short topic.

The checks are those of row_checks.py. Here the smallest value answers for all, or every bit that some value has;
if one of them says no, nothing is known of the others, and each record is looked at there.
"""

import numpy as np

from ariane.arrow.fronts import Fronts
from ariane.arrow.rows import Rows
from ariane.arrow.source import Int64s, Source, is_all
from ariane.arrow.usual_tails import tails_in, tails_of
from ariane.wire.record import HOST_BITS, MAGIC_V1
from ariane.wire.record_fields import HEAD_BYTES

_least, _most = np.minimum.reduce, np.maximum.reduce
_some_has, _all_have = np.bitwise_or.reduce, np.bitwise_and.reduce
_MAGIC_BITS = 0xFFFFFFFF


def usual_rows(
    source: Source, fronts: Fronts, positions: Int64s, limit: int, base: int | None, size_max: int
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
