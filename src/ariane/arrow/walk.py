"""The records of a buffer or of a stretch of a commit log, some at a time, with what is wrong between them.

Behind a damaged record nothing that it says can be believed, so the next true record is searched for; what was passed
is told as one bad record. Short stretches follow the damage: a log that is damaged everywhere costs no more than its
length.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt
from typing import NamedTuple

import numpy as np

from ariane.arrow.gather import ByteGatherer, Int64s, is_all
from ariane.arrow.rows import Rows
from ariane.arrow.validate import Checked, check_rows
from ariane.wire.record.layout import (
    BLANK_BYTES_MIN,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MAX,
    RECORD_BYTES_MIN,
    SIZE_AND_MAGIC,
)
from ariane.wire.record.read import BrokenRecord, Fault, RecordView, verify

# --- starts ---
#
# Where records begin: each one's size leads to the next, so a log is a chain that has to be followed.
#
# Following it record by record costs more than everything else that a record costs. So it is followed in many places at
# once, one numpy step for all of them. Lanes begin where a magic number happens to be, which may be inside a body. That
# does no harm, because a lane only counts if the one before it arrives exactly at its start:
#
#     lane 0   |record|record|record|          lane 0 begins where a record does,
#     lane 1                 ^|record|record|      it arrives at the start of lane 1, so a record begins there,
#     lane 2                          ^|record     and so on
#
# A lane that is missed, because its start was wrong or because a size is damaged, ends what is believed.

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


def find_record_offsets(source: ByteGatherer, start: int, end: int, limit: int) -> Chain:
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


def find_chains(source: ByteGatherer, begins: Int64s, ends: Int64s) -> Int64s | None:
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


def _even_chains(source: ByteGatherer, begins: Int64s, ends: Int64s) -> Int64s | None:
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


def _lane_starts(source: ByteGatherer, start: int, end: int) -> Int64s:
    step = _lane_bytes(end - start, _record_bytes(source, start))
    found = [start]
    for at in range(start + step, end - RECORD_BYTES_MIN, step):
        if at > found[-1]:
            magic = MAGIC.search(source.view, at + MAGIC_AT, end)
            if magic is None:
                break
            found.append(magic.start() - MAGIC_AT)
    return np.array(found, np.int64)


def _is_record(source: ByteGatherer, start: int) -> bool:
    """Not so at the blank that ends a file, nor where the log has not been written yet: there are no lanes to find."""
    at = start + MAGIC_AT
    return at < len(source.uint32) and int(source.uint32[at]) in (MAGIC_V1, MAGIC_V2)


def _record_bytes(source: ByteGatherer, start: int) -> int:
    """What a record may take, judged by the first one."""
    first = int(source.uint32[start]) if start < len(source.uint32) else 0
    return min(max(first, RECORD_BYTES_MIN), 1 << 20)


def _lane_bytes(length: int, record_bytes: int) -> int:
    """Long lanes take many steps, short ones many searches: the least is done with a number of records in between."""
    records = max(4, isqrt(length // record_bytes // _SEARCHES_PER_STEP))
    return max(records * record_bytes, length // _LANES_MAX)


def _walk_lanes(source: ByteGatherer, lanes: Int64s, ends: Int64s, limit: int) -> Chain | None:
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


def _walk(source: ByteGatherer, start: int, end: int, limit: int) -> Chain:
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


# --- bad_records ---
#
# Records that cannot be given as rows: counted, told, and never just left out; and how to find the next whole one.


@dataclass(frozen=True, slots=True)
class BadRecord:
    """`position` is a physical offset where one is known, else a place in the buffer; `size` is all that was passed."""

    position: int
    size: int
    reason: str


def reason_at(
    source: ByteGatherer, position: int, limit: int, base: int | None, size_max: int = RECORD_BYTES_MAX
) -> str:
    """Why there is no record at `position`."""
    verdict = verify(source.view, position, end=limit, check_body_crc=False, size_max=size_max)
    if isinstance(verdict, BrokenRecord):
        return verdict.reason
    if isinstance(verdict, RecordView) and base is not None:
        return f"a record that belongs at {verdict.physical_offset}: an older or a copied one"
    return "the blank end of a file"


def next_record(
    source: ByteGatherer, start: int, limit: int, base: int | None, size_max: int = RECORD_BYTES_MAX
) -> int:
    """The first true record start from `start` on; `limit` when there is none.

    True is a record with a magic number, lengths that add up and a body that fits its checksum; where `base` is known,
    it also has to stand where it says that it does.
    """
    at = start
    while (found := MAGIC.search(source.view, at + MAGIC_AT, limit)) is not None:
        candidate = found.start() - MAGIC_AT
        verdict = verify(source.view, candidate, end=limit, size_max=size_max)
        if isinstance(verdict, RecordView) and (base is None or verdict.physical_offset == base + candidate):
            return candidate
        at = candidate + 1
    return limit


# ---

STRETCH_BYTES = 16 * 1024 * 1024
"""Many lanes need much to walk over; and what is walked over should still be in the cache when it is decoded."""
_STRETCH_BYTES_MIN = 64 * 1024


class Span(NamedTuple):
    rows: Rows
    bad: list[BadRecord]
    end: int
    """Where the next stretch begins."""


class Walk(NamedTuple):
    source: ByteGatherer
    limit: int
    """Bytes from here on are not there."""
    base: int | None = None
    """The physical offset of the source's first byte, for records that stand where they say."""
    size_max: int = RECORD_BYTES_MAX

    def stretches(
        self, start: int, end: int, *, partial: bool = False, piece_bytes: int = STRETCH_BYTES
    ) -> Iterator[Span]:
        """Everything that begins from `start` on and before `end`, in order and without a gap, in pieces.

        `partial`: the limit may cut the last record, which is then left, and no bad one.
        """
        position, step = start, STRETCH_BYTES
        while position < end:
            chain = find_record_offsets(self.source, position, min(position + step, end), self.limit)
            step = min(step * 4, STRETCH_BYTES)
            for starts, stop in _pieces(chain, piece_bytes):
                stretch = self._checked(starts, min(stop, self.limit), partial)
                yield stretch
                position = stretch.end
                if stretch.end != min(stop, self.limit) or stretch.bad:
                    step = _STRETCH_BYTES_MIN
                    break
            if position <= starts[0]:  # cut by the limit
                return

    def _checked(self, starts: Int64s, stop: int, partial: bool) -> Span:
        checked = check_rows(self.source, starts, self.limit, self.base, self.size_max)
        if not len(checked.broken):
            return self._text_only(checked.rows, stop)
        at = int(starts[checked.broken[0]])
        before, bad, _ = self._text_only(checked.rows.take(checked.rows.position < at), at)
        if partial and self._is_cut(at):
            return Span(before, bad, at)
        following = next_record(self.source, at + 1, self.limit, self.base, self.size_max)
        bad.append(self.bad(at, following - at, reason_at(self.source, at, self.limit, self.base, self.size_max)))
        return Span(before, bad, following)

    def _text_only(self, rows: Rows, end: int) -> Span:
        """Without the records whose topic is no text; their lengths add up, so what follows them is believed."""
        wrong = rows.odd_topics()
        if not len(wrong):
            return Span(rows, [], end)
        sizes = rows.field("size", np.int64)
        bad = [self.bad(int(rows.position[n]), int(sizes[n]), "a topic that is not UTF-8") for n in wrong]
        return Span(rows.take(np.setdiff1d(np.arange(len(rows)), wrong)), bad, end)

    def _is_cut(self, at: int) -> bool:
        """Whether a record may begin at `at` that ends behind the limit."""
        verdict = verify(self.source.view, at, end=self.limit, check_body_crc=False, size_max=self.size_max)
        return isinstance(verdict, BrokenRecord) and verdict.fault is Fault.TORN

    def bad(self, at: int, size: int, reason: str) -> BadRecord:
        return BadRecord(at + (self.base or 0), size, reason)

    def check(self, positions: Int64s) -> Checked:
        """The records at places that are known from elsewhere."""
        return check_rows(self.source, positions, self.limit, self.base, self.size_max)


def _pieces(chain: Chain, piece_bytes: int) -> Iterator[tuple[Int64s, int]]:
    """The chain in parts of so many bytes, each with where it stops."""
    starts, begin = chain.starts, 0
    while begin < len(starts):
        end = max(begin + 1, int(np.searchsorted(starts, starts[begin] + piece_bytes)))
        yield starts[begin:end], int(starts[end]) if end < len(starts) else chain.stop
        begin = end
