"""Block sums that are missing before others: found and made again when a store starts.

    sums          known   known   .....   .....   known   known   begun
    log       |-------|-------|-------|-------|-------|-------|----|
                              ^ a gap         ^                    ^ goes on from here (log_sums.py)

A power cut may take a page of a sums file, or its head, and leave a later one. So may a disk that refused some writes.
What is summed goes on behind the newest sum, so the gap would stay for good, and in it changed bytes would not show.

The bytes in a gap were durable, but nobody has looked at them since. So they are read as records first: what is no
whole record, by its own checksum, gets no sum that would vouch for it. A sum that is damaged is no gap. It stays and is
told by `ariane store verify`, since making it anew would hide that this disk changes what it holds.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from ariane.store.cold_reads import ColdBytes, fetch
from ariane.store.disk import Disk
from ariane.store.layout import offset_name
from ariane.store.segments import Segment, Segments
from ariane.store.sums_file import DAMAGED, NOT_KNOWN, Blocks, Sum, SumsFile, open_sums
from ariane.wire.crc import crc32_onward
from ariane.wire.record import MAGIC_V1, MAGIC_V2, RECORD_BYTES_MAX
from ariane.wire.record_view import BlankRecord, RecordView, verify

log = logging.getLogger(__name__)

_MAGIC = re.compile(b"|".join(re.escape(magic.to_bytes(4, "big")) for magic in (MAGIC_V1, MAGIC_V2)))
_MAGIC_POSITION = 4
_FETCHED_BYTES = 8 * 1024 * 1024


class Gaps(NamedTuple):
    """Of one log file: the blocks without a sum of all their bytes, each with the sum of its first ones, if any."""

    segment: Segment
    blocks: Blocks
    known: dict[int, Sum]

    @property
    def begin(self) -> int:
        return self.blocks.begin_of(min(self.known))

    @property
    def end(self) -> int:
        return self.blocks.end_of(max(self.known))


def find_gaps(disk: Disk, directory: Path, segments: Segments, block_bytes: int, low: int, high: int) -> list[Gaps]:
    """Among the blocks that end at or before `high`, from that of `low` on. Reads sums and nothing of the log."""
    found = (
        _gaps_of(disk, directory, segment, block_bytes, low, high)
        for segment in segments
        if segment.end > low and segment.base < high
    )
    return [gaps for gaps in found if gaps.known]


def _gaps_of(disk: Disk, directory: Path, segment: Segment, block_bytes: int, low: int, high: int) -> Gaps:
    begin = max(low, segment.base)
    file = open_sums(disk, directory / offset_name(segment.base), segment.base, segment.file.size)
    if file is None:
        blocks, sums = Blocks(segment.base, segment.file.size, block_bytes), []
    else:
        with closing(file):
            blocks, sums = file.blocks, file.read(file.blocks.number_at(begin))
    first, end = blocks.number_at(begin), blocks.count if high >= segment.end else blocks.number_at(high)
    sums += [NOT_KNOWN] * (end - first - len(sums))
    numbered = zip(range(first, end), sums, strict=False)
    known = {number: one for number, one in numbered if one != DAMAGED and one.covered_to < blocks.end_of(number)}
    return Gaps(segment, blocks, known)


def fill(gaps: Gaps, file: SumsFile, log_end: int) -> None:
    """Writes the sums that are missing, but for blocks with damage. Blocks; OSError when the log cannot be read."""
    base = gaps.segment.base
    begin = max(base, gaps.begin - RECORD_BYTES_MAX)  # the record that lies over the first block's begin is found
    end = min(gaps.segment.end, log_end, gaps.end + RECORD_BYTES_MAX)
    _fetch(gaps.segment, begin, end)
    with gaps.segment.file.window(begin - base, end - base) as view:
        damaged = list(_damaged(view, gaps, begin))
        for number in gaps.known.keys() - _numbers(gaps.blocks, damaged):
            known, block_end = gaps.known[number], gaps.blocks.end_of(number)
            at = known.covered_to or gaps.blocks.begin_of(number)
            file.write(number, [Sum(block_end, crc32_onward(view[at - begin : block_end - begin], known.crc))])
    if damaged:
        _tell(gaps.segment, damaged)


def _fetch(segment: Segment, begin: int, end: int) -> None:
    """By plain reads: a sector that the disk cannot read is an OSError so, and a SIGBUS through a mapping."""
    for at in range(begin, end, _FETCHED_BYTES):
        fetch([ColdBytes(segment.file, at - segment.base, min(_FETCHED_BYTES, end - at))])


def _damaged(view: memoryview, gaps: Gaps, begin: int) -> Iterator[tuple[int, int]]:
    """What is no whole record, from its first byte to the next record. `view` begins at the physical offset `begin`."""
    position, first, end = begin, gaps.begin, gaps.end
    while position < end:
        verdict = verify(view, position - begin)
        if isinstance(verdict, RecordView) and verdict.physical_offset == position:
            position += verdict.size
        elif isinstance(verdict, BlankRecord) and position + verdict.size == gaps.segment.end:
            return
        else:
            following = _next_record(view, position, begin)
            if following > first:
                yield position, following
            position = following


def _next_record(view: memoryview, position: int, begin: int) -> int:
    """Behind `position`; the end of `view` when there is none."""
    for hit in _MAGIC.finditer(view, position + 1 - begin + _MAGIC_POSITION):
        at = hit.start() - _MAGIC_POSITION
        found = verify(view, at, check_body_crc=False)  # the walk goes on from there, and checks it
        if isinstance(found, RecordView) and found.physical_offset == begin + at:
            return begin + at
    return begin + len(view)


def _numbers(blocks: Blocks, damaged: list[tuple[int, int]]) -> set[int]:
    """The blocks that hold any of these bytes."""
    return {
        number for begin, end in damaged for number in range(blocks.number_at(begin), blocks.number_at(end - 1) + 1)
    }


def _tell(segment: Segment, damaged: list[tuple[int, int]]) -> None:
    log.error(
        "bytes of the commit log are no record, and get no block sum: `ariane store verify` shows what is damaged",
        extra={"file": str(segment.path), "places": len(damaged), "from": damaged[0][0], "to": damaged[-1][1]},
    )
