"""Where records begin: each one's size leads to the next, so a log is a chain that has to be followed.

Following it record by record costs more than everything else that a record costs. So it is followed in many places at
once, one numpy step for all of them. Lanes begin where a magic number happens to be, which may be inside a body. That
does no harm, because a lane only counts if the one before it arrives exactly at its start:

    lane 0   |record|record|record|          lane 0 begins where a record does,
    lane 1                 ^|record|record|      it arrives at the start of lane 1, so a record begins there,
    lane 2                          ^|record     and so on

A lane that is missed, because its start was wrong or because a size is damaged, ends what is believed.
"""

import re
from math import isqrt
from typing import NamedTuple

import numpy as np

from ariane.arrow.source import Int64s, Source, is_all
from ariane.wire.record import BLANK_BYTES_MIN, MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN, SIZE_AND_MAGIC

_MAGICS = [re.escape(magic.to_bytes(4, "big")) for magic in (MAGIC_V1, MAGIC_V2)]
MAGIC = re.compile(b"|".join(_MAGICS), re.DOTALL)
MAGIC_AT = 4

_least = np.minimum.reduce
_LANES_MAX = 2048
_STEPS_AT_ONCE = 8
_SEARCHES_PER_STEP = 8
"""What one step of all lanes costs, in searches for the start of one lane."""


class Chain(NamedTuple):
    starts: Int64s
    stop: int
    """Where the item behind the last start would begin."""


def find_chain(source: Source, start: int, end: int, limit: int) -> Chain:
    """The items that begin from `start` on and before `end`, each where the size of the one before leads.

    Sizes are followed, not checked: that is done for all items at once (row_checks.py). Bytes from `limit` on are not
    looked at. The chain is never empty.
    """
    if _is_record(source, start):
        lanes = _lane_starts(source, start, end)
        chain = _walk_lanes(source, lanes, np.append(lanes[1:], end), limit) if len(lanes) > 1 else None
        if chain is not None:
            return chain
    return _walk(source, start, end, limit)


def find_chains(source: Source, begins: Int64s, ends: Int64s) -> Int64s | None:
    """The items of pieces that are known to hold nothing else, as the answers to pulls: each piece is a lane.

    Pieces ascend. None when the sizes in some piece do not lead from its begin to its end.
    """
    if not len(begins) or _least(ends - begins) < RECORD_BYTES_MIN:
        return None
    even = _even_chains(source, begins, ends)
    if even is not None:
        return even
    chain = _walk_lanes(source, begins, ends, len(source))
    return chain.starts if chain is not None and chain.stop == ends[-1] else None


def _even_chains(source: Source, begins: Int64s, ends: Int64s) -> Int64s | None:
    """When in each piece all items have one size, there is nothing to follow: to guess and look is a few steps."""
    sizes = source.uint32[begins].astype(np.int64)
    if _least(sizes) < RECORD_BYTES_MIN:
        return None
    counts, rest = np.divmod(ends - begins, sizes)
    if np.count_nonzero(rest):
        return None
    first = np.cumsum(counts) - counts
    sizes = np.repeat(sizes, counts)
    starts = np.repeat(begins, counts) + (np.arange(len(sizes)) - np.repeat(first, counts)) * sizes
    return starts if is_all(source.uint32[starts] == sizes) else None


def _lane_starts(source: Source, start: int, end: int) -> Int64s:
    step = _lane_bytes(end - start, _record_bytes(source, start))
    found = [start]
    for at in range(start + step, end - RECORD_BYTES_MIN, step):
        if at > found[-1]:
            magic = MAGIC.search(source.view, at + MAGIC_AT, end)
            if magic is None:
                break
            found.append(magic.start() - MAGIC_AT)
    return np.array(found, np.int64)


def _is_record(source: Source, start: int) -> bool:
    """Not so at the blank that ends a file, nor where the log has not been written yet: there are no lanes to find."""
    at = start + MAGIC_AT
    return at < len(source.uint32) and int(source.uint32[at]) in (MAGIC_V1, MAGIC_V2)


def _record_bytes(source: Source, start: int) -> int:
    """What a record may take, judged by the first one."""
    first = int(source.uint32[start]) if start < len(source.uint32) else 0
    return min(max(first, RECORD_BYTES_MIN), 1 << 20)


def _lane_bytes(length: int, record_bytes: int) -> int:
    """Long lanes take many steps, short ones many searches: the least is done with a number of records in between."""
    records = max(4, isqrt(length // record_bytes // _SEARCHES_PER_STEP))
    return max(records * record_bytes, length // _LANES_MAX)


def _walk_lanes(source: Source, lanes: Int64s, ends: Int64s, limit: int) -> Chain | None:
    """All lanes step by step; None when one of them, but for the last, does not arrive at its end."""
    sizes = source.uint32
    last = min(limit, len(source)) - MAGIC_AT  # the last place that a size can be read from
    steps = [lanes]
    position = lanes
    steps_max = int((ends - lanes).max()) // RECORD_BYTES_MIN + 2
    while len(steps) <= steps_max:
        for _ in range(_STEPS_AT_ONCE):
            at = np.minimum(position, last)
            position = np.maximum(at + sizes[at], position)  # sizes are unsigned, so no step leads back
            steps.append(position)
        if (position >= ends).all():
            return _joined(np.stack(steps), ends)
    return None


def _joined(table: Int64s, ends: Int64s) -> Chain | None:
    """One row for each step, one column for each lane, to one chain."""
    inside = table < ends
    arrivals = table[inside.sum(axis=0), np.arange(len(ends))]
    if not (arrivals[:-1] == ends[:-1]).all():
        return None
    return Chain(table.T[inside.T], int(arrivals[-1]))


def _walk(source: Source, start: int, end: int, limit: int) -> Chain:
    """One by one, up to the first item that is no record and no blank; it is the last of the chain."""
    view, unpack = source.view, SIZE_AND_MAGIC.unpack_from
    starts = [start]
    position = start
    while limit - position >= SIZE_AND_MAGIC.size:
        size, magic = unpack(view, position)
        minimum = RECORD_BYTES_MIN if magic in (MAGIC_V1, MAGIC_V2) else BLANK_BYTES_MIN
        position += max(size, minimum)
        if size < minimum or position >= end:
            break
        starts.append(position)
    else:
        position = limit
    return Chain(np.array(starts, np.int64), position)
