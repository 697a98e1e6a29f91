"""Finds and checks the records of a buffer or of a part of a commit log, and reports the damage between them.

**Finding record offsets.** The size of each record leads to the next, so a log is a chain that has to be followed.
Following it record by record costs more than all other work on a record. So it is followed from many places in
parallel, with one numpy step for all of them. Segments begin where a magic number happens to be, which may be inside a
body. That is harmless, because a segment only counts if the one before it arrives exactly at its start:

    segment 0   |record|record|record|          segment 0 begins where a record does,
    segment 1                 ^|record|record|      it arrives at the start of segment 1, so a record begins there,
    segment 2                          ^|record     and so on

If a segment start is missed, because it was wrong or because a size is damaged, the segments are given up and the chain
is followed record by record.

**Damage.** After a damaged record none of its fields can be trusted, so the walk searches for the next valid record and
reports the skipped bytes as one bad record. The spans after damage are short, so that a log that is damaged everywhere
costs no more than its length.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt
from typing import NamedTuple

import numpy as np

from ariane.arrow.gather import ByteGatherer, Int64s, all_true
from ariane.arrow.rows import Rows
from ariane.arrow.validate import CheckedRows, check_rows
from ariane.wire.record.layout import (
    BLANK_BYTES_MIN,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MAX,
    RECORD_BYTES_MIN,
    SIZE_AND_MAGIC,
)
from ariane.wire.record.read import BrokenRecord, Fault, RecordView, verify

# --- record offsets ---

_MAGICS = [re.escape(magic.to_bytes(4, "big")) for magic in (MAGIC_V1, MAGIC_V2)]
MAGIC = re.compile(b"|".join(_MAGICS), re.DOTALL)
MAGIC_AT = 4

_minimum = np.minimum.reduce
_SEGMENTS_MAX = 2048
_STEPS_PER_CHECK = 8
_SEARCHES_PER_STEP = 8
"""The cost of one step of all segments, in searches for the start of one segment."""


class Chain(NamedTuple):
    starts: Int64s
    stop: int
    """Where the item after the last start would begin."""


def find_record_offsets(source: ByteGatherer, start: int, end: int, limit: int) -> Chain:
    """The items (records and blanks) that begin in `start <= position < end`, found by following their sizes.

    Sizes are followed, not checked: validate.py checks all items at once. Bytes from `limit` on are not read. The chain
    is never empty.
    """
    if _is_record(source, start):
        segments = _segment_starts(source, start, end)
        chain = _walk_segments(source, segments, np.append(segments[1:], end), limit) if len(segments) > 1 else None
        if chain is not None:
            return chain
    return _walk(source, start, end, limit)


def find_chains(source: ByteGatherer, begins: Int64s, ends: Int64s) -> Int64s | None:
    """The items of pieces that contain only whole records, such as pull responses: each piece is a segment.

    Pieces ascend. None when the sizes in some piece do not lead from its begin to its end.
    """
    if not len(begins) or _minimum(ends - begins) < RECORD_BYTES_MIN:
        return None
    uniform = _uniform_chains(source, begins, ends)
    if uniform is not None:
        return uniform
    chain = _walk_segments(source, begins, ends, len(source))
    return chain.starts if chain is not None and chain.stop == ends[-1] else None


def _uniform_chains(source: ByteGatherer, begins: Int64s, ends: Int64s) -> Int64s | None:
    """If all items of each piece have one size, no chain has to be followed: compute the offsets and check them."""
    sizes = source.uint32[begins].astype(np.int64)
    if _minimum(sizes) < RECORD_BYTES_MIN:
        return None
    counts, rest = np.divmod(ends - begins, sizes)
    if np.count_nonzero(rest):
        return None
    first = np.cumsum(counts) - counts
    sizes = np.repeat(sizes, counts)
    starts = np.repeat(begins, counts) + (np.arange(len(sizes)) - np.repeat(first, counts)) * sizes
    return starts if all_true(source.uint32[starts] == sizes) else None


def _segment_starts(source: ByteGatherer, start: int, end: int) -> Int64s:
    step = _segment_bytes(end - start, _record_bytes(source, start))
    starts = [start]
    for at in range(start + step, end - RECORD_BYTES_MIN, step):
        if at > starts[-1]:
            magic = MAGIC.search(source.view, at + MAGIC_AT, end)
            if magic is None:
                break
            starts.append(magic.start() - MAGIC_AT)
    return np.array(starts, np.int64)


def _is_record(source: ByteGatherer, start: int) -> bool:
    """False at the blank that ends a file and where the log has not been written: there are no segments to find."""
    at = start + MAGIC_AT
    return at < len(source.uint32) and int(source.uint32[at]) in (MAGIC_V1, MAGIC_V2)


def _record_bytes(source: ByteGatherer, start: int) -> int:
    """An estimate of the size of a record, from the first one."""
    first = int(source.uint32[start]) if start < len(source.uint32) else 0
    return min(max(first, RECORD_BYTES_MIN), 1 << 20)


def _segment_bytes(length: int, record_bytes: int) -> int:
    """Long segments take many steps, short ones many searches: the length with the lowest total cost."""
    records = max(4, isqrt(length // record_bytes // _SEARCHES_PER_STEP))
    return max(records * record_bytes, length // _SEGMENTS_MAX)


def _walk_segments(source: ByteGatherer, segments: Int64s, ends: Int64s, limit: int) -> Chain | None:
    """All segments step by step; None when one of them, except the last, does not arrive at its end."""
    sizes = source.uint32
    last = min(limit, len(source)) - MAGIC_AT  # the last position that a size can be read from
    steps = [segments]
    position = segments
    steps_max = int((ends - segments).max()) // RECORD_BYTES_MIN + 2
    while len(steps) <= steps_max:
        for _ in range(_STEPS_PER_CHECK):
            at = np.minimum(position, last)
            position = np.maximum(at + sizes[at], position)  # sizes are unsigned, so no step goes backwards
            steps.append(position)
        if (position >= ends).all():
            return _join_segments(np.stack(steps), ends)
    return None


def _join_segments(table: Int64s, ends: Int64s) -> Chain | None:
    """Joins a table with one row per step and one column per segment to one chain."""
    inside = table < ends
    arrivals = table[inside.sum(axis=0), np.arange(len(ends))]
    if not (arrivals[:-1] == ends[:-1]).all():
        return None
    return Chain(table.T[inside.T], int(arrivals[-1]))


def _walk(source: ByteGatherer, start: int, end: int, limit: int) -> Chain:
    """Record by record, up to the first item that is neither a record nor a blank; it is the last of the chain."""
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


# --- bad records: each is counted and reported, and the walk resynchronises at the next valid record ---


@dataclass(frozen=True, slots=True)
class BadRecord:
    """`position`: physical offset if the base is known, else position in the buffer. `size`: all skipped bytes."""

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
    """The position of the first valid record from `start` on; `limit` when there is none.

    A valid record has a magic number, lengths that add up and a body that matches its checksum. If `base` is known, its
    physical offset must also be the one where it stands.
    """
    at = start
    while (match := MAGIC.search(source.view, at + MAGIC_AT, limit)) is not None:
        candidate = match.start() - MAGIC_AT
        verdict = verify(source.view, candidate, end=limit, size_max=size_max)
        if isinstance(verdict, RecordView) and (base is None or verdict.physical_offset == base + candidate):
            return candidate
        at = candidate + 1
    return limit


# --- the walk ---

SPAN_BYTES = 16 * 1024 * 1024
"""Large enough for many segments, small enough to be still in the CPU cache when it is decoded."""
_SPAN_BYTES_MIN = 64 * 1024


class Span(NamedTuple):
    rows: Rows
    bad: list[BadRecord]
    end: int
    """Where the next span begins."""


class Walk(NamedTuple):
    """Iterates over the records of one buffer."""

    source: ByteGatherer
    limit: int
    """Bytes from here on do not count."""
    base: int | None = None
    """The physical offset of the source's first byte; if given, every record's own offset is checked against it."""
    size_max: int = RECORD_BYTES_MAX

    def spans(self, start: int, end: int, *, partial: bool = False, piece_bytes: int = SPAN_BYTES) -> Iterator[Span]:
        """Everything that begins in `start <= position < end`, in order and without gaps, in pieces.

        `partial`: the limit may truncate the last record, which is then left for the next call and not reported.
        """
        position, step = start, SPAN_BYTES
        while position < end:
            chain = find_record_offsets(self.source, position, min(position + step, end), self.limit)
            step = min(step * 4, SPAN_BYTES)
            for starts, stop in _pieces(chain, piece_bytes):
                span = self._check_span(starts, min(stop, self.limit), partial)
                yield span
                position = span.end
                if span.end != min(stop, self.limit) or span.bad:
                    step = _SPAN_BYTES_MIN
                    break
            if position <= starts[0]:  # truncated by the limit
                return

    def _check_span(self, starts: Int64s, stop: int, partial: bool) -> Span:
        checked = check_rows(self.source, starts, self.limit, self.base, self.size_max)
        if not len(checked.broken):
            return self._with_valid_topics(checked.rows, stop)
        at = int(starts[checked.broken[0]])
        before, bad, _ = self._with_valid_topics(checked.rows.take(checked.rows.position < at), at)
        if partial and self._is_truncated(at):
            return Span(before, bad, at)
        following = next_record(self.source, at + 1, self.limit, self.base, self.size_max)
        bad.append(
            self.bad_record(at, following - at, reason_at(self.source, at, self.limit, self.base, self.size_max))
        )
        return Span(before, bad, following)

    def _with_valid_topics(self, rows: Rows, end: int) -> Span:
        """Without the records whose topic is not UTF-8; their lengths add up, so the records after them are valid."""
        invalid = rows.invalid_topics()
        if not len(invalid):
            return Span(rows, [], end)
        sizes = rows.field("size", np.int64)
        bad = [self.bad_record(int(rows.position[n]), int(sizes[n]), "a topic that is not UTF-8") for n in invalid]
        return Span(rows.take(np.setdiff1d(np.arange(len(rows)), invalid)), bad, end)

    def _is_truncated(self, at: int) -> bool:
        """Whether a record that ends after the limit may begin at `at`."""
        verdict = verify(self.source.view, at, end=self.limit, check_body_crc=False, size_max=self.size_max)
        return isinstance(verdict, BrokenRecord) and verdict.fault is Fault.TORN

    def bad_record(self, at: int, size: int, reason: str) -> BadRecord:
        return BadRecord(at + (self.base or 0), size, reason)

    def check_at(self, positions: Int64s) -> CheckedRows:
        """The records at positions that are known from elsewhere, such as a consume queue."""
        return check_rows(self.source, positions, self.limit, self.base, self.size_max)


def _pieces(chain: Chain, piece_bytes: int) -> Iterator[tuple[Int64s, int]]:
    """The chain in parts of about `piece_bytes`, each with the position where it stops."""
    starts, begin = chain.starts, 0
    while begin < len(starts):
        end = max(begin + 1, int(np.searchsorted(starts, starts[begin] + piece_bytes)))
        yield starts[begin:end], int(starts[end]) if end < len(starts) else chain.stop
        begin = end
