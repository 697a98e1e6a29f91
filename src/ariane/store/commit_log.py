"""The commit log: every record of the broker, one after the other, by physical offset.

A record never crosses files. When it does not fit, the rest of the file becomes a blank record and the next file
begins: so a file always keeps the eight bytes that a blank record needs. The next file is made ready by a thread while
the active one fills, because taking its blocks may take long.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from functools import partial

from ariane.errors import StoreFull
from ariane.store.cold_reads import ColdBytes, Place, are_cached, fetch, fetch_records, is_record_cached, joined
from ariane.store.segments import Segment, Segments
from ariane.store.steps import Steps
from ariane.wire.record import BLANK_BYTES_MIN, RECORD_BYTES_MAX, pack_blank

_NOTHING = memoryview(b"")


class CommitLog:
    """Appends by `pwrite`, reads through a read-only mapping. Recovery calls `set_end` before the first append."""

    def __init__(self, segments: Segments, executor: Executor | None = None) -> None:
        self._segments = segments
        self._executor = executor
        self._end = segments.base
        self._active: Segment | None = None
        self._preparing: Future[Segment] | None = None
        self._stale_to = 0
        """Up to here a write that failed may have left whole records, which must not follow the next one."""
        self.fresh_from = 0
        """Behind this, all was written by this process a minute ago at most: it is in memory, the kernel is not asked.
        The store moves it up with each checkpoint."""

    @property
    def segments(self) -> Segments:
        return self._segments

    @property
    def min_offset(self) -> int:
        return self._segments.base

    @property
    def max_offset(self) -> int:
        """Where the next record will begin, unless it has to begin a new file."""
        return self._end

    def set_end(self, offset: int) -> None:
        """Recovery's finding: records end here."""
        self._end = offset
        self._active = self._segments.find(offset)

    def room(self) -> int:
        """Bytes of records that still fit the active file."""
        return self._active.end - self._end - BLANK_BYTES_MIN if self._active is not None else 0

    @property
    def room_max(self) -> int:
        """Bytes of records that fit a new file."""
        return self._segments.segment_bytes - BLANK_BYTES_MIN

    def append(self, records: bytes | bytearray | memoryview) -> int:
        """Writes records that fit `room()`; their physical offset. StoreFull, and nothing taken, if they cannot be."""
        active = self._active
        assert active is not None, "roll() begins a file"
        assert len(records) <= self.room(), "ask room() first"
        offset = self._end
        end = offset + len(records)
        self._write(active, records if self._stale_to <= end else bytes(records) + bytes(self._stale_to - end))
        self._end = end
        self._stale_to = 0
        return offset

    def roll(self) -> None:
        """Ends the active file with a blank record and begins the next. StoreFull, and nothing changed, if not."""
        active = self._active
        following = self._following(self._end if active is None else active.end)
        if active is not None and self._end < active.end:
            self._write(active, pack_blank(active.end - self._end))
        self._active = following
        self._end = following.base
        self._stale_to = 0
        self._prepare()

    def _write(self, active: Segment, data: bytes | bytearray | memoryview) -> None:
        try:
            active.file.write(data, self._end - active.base)
        except OSError as error:
            self._stale_to = max(self._stale_to, self._end + len(data))
            raise StoreFull(f"the commit log cannot be written: {error.strerror}") from error

    def _following(self, base: int) -> Segment:
        found = self._segments.find(base)
        if found is not None:
            return found
        preparing, self._preparing = self._preparing, None
        try:
            segment = self._create(base) if preparing is None else preparing.result()
        except OSError as error:
            raise StoreFull(
                f"no space for a commit log file of {self._segments.segment_bytes} bytes: {error.strerror}"
            ) from error
        self._segments.adopt(segment)
        return segment

    def _prepare(self) -> None:
        active = self._active
        if self._executor is not None and active is not None and self._segments.find(active.end) is None:
            self._preparing = self._executor.submit(self._create, active.end)

    def _create(self, base: int) -> Segment:
        return self._segments.create(base, allocated=self._segments.segment_bytes)

    def read(self, offset: int, size: int) -> memoryview | None:
        """`size` bytes at `offset`, none of them copied; None when they are not there (any more)."""
        end = offset + size
        segment = self._segments.find(offset)
        if segment is None or end > self._end or end > segment.end:
            return None
        base = segment.base
        return segment.file.view()[offset - base : end - base]

    def window(self, offset: int) -> tuple[int, int, memoryview]:
        """The file that holds `offset`, for who reads many records of it: where its bytes begin and end, and they."""
        segment = self._segments.find(offset)
        if segment is None:
            return 0, 0, _NOTHING
        return segment.base, min(segment.end, self._end), segment.file.view()

    # --- without waiting for the disk -------------------------------------------------------------------------------

    def is_cached(self, places: Sequence[Place]) -> bool:
        """Whether these records, in the order of the log, can be looked at without a wait for the disk.

        Asks for the first and the last: what lies between was written between, and is read by who reads these. A
        question for each of 32 records would cost three times what their pull does.
        """
        if not places or places[0][0] >= self.fresh_from:
            return True
        ends = places if len(places) == 1 else (places[0], places[-1])
        return all(map(are_cached, self._parts(ends)))

    def warm(self, places: Sequence[Place]) -> Steps[None]:
        """So that they can (cold_reads.py)."""
        if not self.is_cached(places):
            yield partial(fetch, list(self._parts(joined(places))))

    def warm_records(self, offsets: Sequence[int]) -> Steps[None]:
        """The same for records of which nobody knows more than where they begin."""
        cold = [part for offset in offsets if (part := self._cold_record(offset)) is not None]
        if cold:
            yield partial(fetch_records, cold)

    def _cold_record(self, offset: int) -> ColdBytes | None:
        segment = self._segments.find(offset)
        if segment is None or offset >= self.fresh_from:
            return None
        size_max = min(segment.end - offset, RECORD_BYTES_MAX)
        part = ColdBytes(segment.file, offset - segment.base, size_max)
        return None if is_record_cached(part) else part

    def _parts(self, places: Iterable[Place]) -> Iterator[ColdBytes]:
        for offset, size in places:
            segment = self._segments.find(offset)
            if segment is not None and 0 < size <= RECORD_BYTES_MAX:
                yield ColdBytes(segment.file, offset - segment.base, size)

    def close(self) -> None:
        """A file made ready but never used is removed, as Apache does on a clean stop."""
        preparing, self._preparing = self._preparing, None
        if preparing is not None and preparing.exception() is None:
            self._segments.adopt(preparing.result())
        while self._segments.last is not None and self._segments.last.base > self._end:
            self._segments.drop_last()
        self._segments.close()
