"""The records of a buffer or of a stretch of a commit log, some at a time, with what is wrong between them.

Behind a damaged record nothing that it says can be believed, so the next true record is searched for; what was passed
is told as one bad record. Short stretches follow the damage: a log that is damaged everywhere costs no more than its
length.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ariane.arrow.bad_records import BadRecord, next_record, reason_at
from ariane.arrow.row_checks import Checked, check_rows
from ariane.arrow.rows import Rows
from ariane.arrow.source import Int64s, Source
from ariane.arrow.starts import Chain, find_chain
from ariane.wire.record import RECORD_BYTES_MAX
from ariane.wire.record_view import BrokenRecord, Fault, verify

STRETCH_BYTES = 16 * 1024 * 1024
"""Many lanes need much to walk over; and what is walked over should still be in the cache when it is decoded."""
_STRETCH_BYTES_MIN = 64 * 1024


class Stretch(NamedTuple):
    rows: Rows
    bad: list[BadRecord]
    end: int
    """Where the next stretch begins."""


class Walk(NamedTuple):
    source: Source
    limit: int
    """Bytes from here on are not there."""
    base: int | None = None
    """The physical offset of the source's first byte, for records that stand where they say."""
    size_max: int = RECORD_BYTES_MAX

    def stretches(
        self, start: int, end: int, *, partial: bool = False, piece_bytes: int = STRETCH_BYTES
    ) -> Iterator[Stretch]:
        """Everything that begins from `start` on and before `end`, in order and without a gap, in pieces.

        `partial`: the limit may cut the last record, which is then left, and no bad one.
        """
        position, step = start, STRETCH_BYTES
        while position < end:
            chain = find_chain(self.source, position, min(position + step, end), self.limit)
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

    def _checked(self, starts: Int64s, stop: int, partial: bool) -> Stretch:
        checked = check_rows(self.source, starts, self.limit, self.base, self.size_max)
        if not len(checked.broken):
            return self._text_only(checked.rows, stop)
        at = int(starts[checked.broken[0]])
        before, bad, _ = self._text_only(checked.rows.take(checked.rows.position < at), at)
        if partial and self._is_cut(at):
            return Stretch(before, bad, at)
        following = next_record(self.source, at + 1, self.limit, self.base, self.size_max)
        bad.append(self.bad(at, following - at, reason_at(self.source, at, self.limit, self.base, self.size_max)))
        return Stretch(before, bad, following)

    def _text_only(self, rows: Rows, end: int) -> Stretch:
        """Without the records whose topic is no text; their lengths add up, so what follows them is believed."""
        wrong = rows.odd_topics()
        if not len(wrong):
            return Stretch(rows, [], end)
        sizes = rows.field("size", np.int64)
        bad = [self.bad(int(rows.position[n]), int(sizes[n]), "a topic that is not UTF-8") for n in wrong]
        return Stretch(rows.take(np.setdiff1d(np.arange(len(rows)), wrong)), bad, end)

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
