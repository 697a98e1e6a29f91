"""Sums the blocks of a growing commit log, behind its syncs.

    appended ──────────────────────────────────────────────────────────────> the end of the log
    durable ─────────────────────────────────────────────────> flushed
    summed ────────────────────────────────────> covered, and known up to there in commitlog_sums/

Only what is durable is summed, so no crash leaves a sum without its bytes. It is read just after it was written, by a
thread that lets go of the interpreter meanwhile: an append does not know of it. And through a mapping of its own that
goes again: through that of the readers, all that was ever summed would count as memory of this process. A block that
was summed in part is gone on with from its sum, not from its bytes: what changed in them is not summed anew.

Sums are a help and not the data. When they cannot be written, the blocks stay unknown, which `ariane store verify`
tells, and the store goes on.
"""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from ariane.store.disk import Disk
from ariane.store.layout import offset_name
from ariane.store.segments import Segment, Segments
from ariane.store.sums_file import BLOCK_BYTES_MIN, Blocks, Sum, SumsFile, create_sums, open_sums
from ariane.store.sums_gaps import Gaps, fill, find_gaps
from ariane.store.sums_recovery import LOOK_BACK_BYTES, block_begin, newest_sum
from ariane.store.unsynced import Unsynced
from ariane.wire.crc import crc32_onward

log = logging.getLogger(__name__)

STEP_BYTES = 8 * 1024 * 1024
"""What is summed at once while somebody may come to wait for a sync: a millisecond. No block is larger."""


class LogSums:
    """Any thread may call; one at a time is served. The log ends at `end`.

    What another process wrote behind `begin` may not be durable, nor its sums. If none is known, they begin there.
    """

    def __init__(self, disk: Disk, directory: Path, segments: Segments, block_bytes: int, begin: int, end: int) -> None:
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._block_bytes = max(block_bytes, BLOCK_BYTES_MIN)
        self._one_at_a_time = threading.Lock()
        self._at, self._crc = newest_sum(disk, directory, segments, self._block_bytes, begin, end)
        """How far the log is summed; and the sum of the block that is there, up to there."""
        low = max(segments.base, end - LOOK_BACK_BYTES)
        self._gaps = find_gaps(disk, directory, segments, self._block_bytes, low, self._at)
        self._file: SumsFile | None = None
        self._unsynced: dict[Path, Unsynced] = {}
        self._doubt(begin, end)
        self._is_failing = False

    def extend(self, durable_to: int) -> bool:
        """Sums some of the whole blocks below `durable_to`; whether there are more."""
        if durable_to - self._at < self._block_bytes:
            return False
        with self._one_at_a_time:
            before = self._at
            self._unless_failing(lambda: self._sum_to(min(durable_to, before + STEP_BYTES)), durable_to)
            return before < self._at <= durable_to - self._block_bytes

    def make_durable(self, durable_to: int) -> None:
        """Sums all that is below `durable_to`, the begun block too, and syncs the sums.

        The first call makes up for gaps, and may take a while: it is that of the start, before anybody is served.
        """
        with self._one_at_a_time:
            self._fill_gaps(durable_to)
            self._unless_failing(lambda: self._sum_to(durable_to, with_rest=True), durable_to)
            self._unless_failing(self._sync, durable_to)

    def close(self) -> None:
        with self._one_at_a_time:
            self._close_file()

    def _doubt(self, begin: int, end: int) -> None:
        """Sums that a killed process left are synced with the first of our own: a checkpoint says that all are."""
        for segment in self._segments:
            path = self._directory / offset_name(segment.base)
            if segment.end > begin and segment.base < end and self._disk.size(path) is not None:
                self._note_unsynced(path)
                self._note_unsynced(self._directory, is_directory=True)

    def _note_unsynced(self, path: Path, *, is_directory: bool = False) -> None:
        self._unsynced.setdefault(path, Unsynced(self._disk, path, is_directory))

    def _fill_gaps(self, durable_to: int) -> None:
        """What cannot be read or written stays a gap, for the next start to try again."""
        gaps, self._gaps = self._gaps, []
        for one in gaps:
            try:
                self._fill(one, durable_to)
            except OSError as error:
                extra = {"file": str(one.segment.path), "reason": str(error)}
                log.warning("block sums that are missing cannot be made again", extra=extra)

    def _fill(self, gaps: Gaps, durable_to: int) -> None:
        file = self._file_of(gaps.segment)
        self._note_unsynced(file.path)
        fill(gaps, file, durable_to)

    def _unless_failing(self, step: Callable[[], None], durable_to: int) -> None:
        """Tells of the first failure of several, and leaves a gap: the log may not wait for its sums."""
        try:
            step()
        except OSError as error:
            if not self._is_failing:
                log.warning("block sums of the commit log are not written", extra={"reason": str(error)})
            self._is_failing = True
            self._pass_over(durable_to)
        else:
            self._is_failing = False

    def _pass_over(self, durable_to: int) -> None:
        self._close_file()
        segment = self._segment_at(durable_to)
        try:
            begin = block_begin(self._disk, self._directory, segment, durable_to, self._block_bytes)
        except OSError:
            begin = durable_to if segment is None else segment.end
        if begin > self._at:
            self._at, self._crc = begin, 0

    def _sum_to(self, end: int, *, with_rest: bool = False) -> None:
        while self._at < end:
            segment = self._segment_at(self._at)
            if segment is None:  # deleted before its turn came
                self._pass_over(end)
                return
            file = self._file_of(segment)
            stop = min(end, segment.end, self._at + STEP_BYTES) if with_rest else file.blocks.whole_below(end)
            if stop <= self._at:
                return
            with segment.file.window(self._at - segment.base, stop - segment.base) as view:
                self._sum_within(view, file, stop)

    def _sum_within(self, view: memoryview, file: SumsFile, stop: int) -> None:
        """`view` is the log from where the sums are to `stop`."""
        begin, blocks = self._at, file.blocks
        at, crc = begin, self._crc
        first = number = blocks.number_at(at)
        sums: list[Sum] = []
        while at < stop:
            block_end = blocks.end_of(number)
            end = min(block_end, stop)
            crc = crc32_onward(view[at - begin : end - begin], crc)
            sums.append(Sum(end, crc))
            at, number = end, number + 1
            if end == block_end:
                crc = 0
        self._note_unsynced(file.path)
        file.write(first, sums)
        self._at, self._crc = at, crc

    def _segment_at(self, offset: int) -> Segment | None:
        """By a copy of the list, which the event loop may change meanwhile."""
        return next((one for one in tuple(self._segments) if one.base <= offset < one.end), None)

    def _file_of(self, segment: Segment) -> SumsFile:
        if self._file is None or self._file.blocks.base != segment.base:
            self._close_file()
            self._file = self._open_file(segment)
        return self._file

    def _open_file(self, segment: Segment) -> SumsFile:
        path, size = self._directory / offset_name(segment.base), segment.file.size
        file = open_sums(self._disk, path, segment.base, size, writable=True)
        if file is not None:
            return file
        if self._disk.size(path) is not None:
            self._disk.remove(path)
        self._note_unsynced(self._directory, is_directory=True)
        return create_sums(self._disk, path, Blocks(segment.base, size, self._block_bytes))

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _sync(self) -> None:
        """What a failed sync has lost is an old sum in place of a new one: it reaches less far, and is as true."""
        unsynced, self._unsynced = self._unsynced, {}
        for one in unsynced.values():
            one.sync()
