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
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from ariane.store.blocking_io import UncachedBytes, fetch
from ariane.store.commit_log.checksums import (
    BLOCK_BYTES_MIN,
    DAMAGED,
    NOT_KNOWN,
    BlockChecksum,
    Blocks,
    ChecksumFile,
    create_checksums,
    open_checksums,
)
from ariane.store.commit_log.log import Segment, Segments
from ariane.store.disk import Disk, PendingSync
from ariane.store.layout import offset_name, offset_of
from ariane.wire.hashes import running_crc32
from ariane.wire.record.layout import MAGIC_V1, MAGIC_V2, RECORD_BYTES_MAX
from ariane.wire.record.read import BlankRecord, RecordView, verify

# --- sums_gaps ---
#
# Block sums that are missing before others: found and made again when a store starts.
#
#     sums          known   known   .....   .....   known   known   begun
#     log       |-------|-------|-------|-------|-------|-------|----|
#                               ^ a gap         ^                    ^ goes on from here (log_sums.py)
#
# A power cut may take a page of a sums file, or its head, and leave a later one. So may a disk that refused some
# writes. What is summed goes on behind the newest sum, so the gap would stay for good, and in it changed bytes would
# not show.
#
# The bytes in a gap were durable, but nobody has looked at them since. So they are read as records first: what is no
# whole record, by its own checksum, gets no sum that would vouch for it. A sum that is damaged is no gap. It stays and
# is told by `ariane store verify`, since making it anew would hide that this disk changes what it holds.

log = logging.getLogger(__name__)

_MAGIC = re.compile(b"|".join(re.escape(magic.to_bytes(4, "big")) for magic in (MAGIC_V1, MAGIC_V2)))
_MAGIC_POSITION = 4
_FETCHED_BYTES = 8 * 1024 * 1024


class Gaps(NamedTuple):
    """Of one log file: the blocks without a sum of all their bytes, each with the sum of its first ones, if any."""

    segment: Segment
    blocks: Blocks
    known: dict[int, BlockChecksum]

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
    file = open_checksums(disk, directory / offset_name(segment.base), segment.base, segment.file.size)
    if file is None:
        blocks, checksums = Blocks(segment.base, segment.file.size, block_bytes), []
    else:
        with closing(file):
            blocks, checksums = file.blocks, file.read(file.blocks.number_at(begin))
    first, end = blocks.number_at(begin), blocks.count if high >= segment.end else blocks.number_at(high)
    checksums += [NOT_KNOWN] * (end - first - len(checksums))
    numbered = zip(range(first, end), checksums, strict=False)
    known = {number: one for number, one in numbered if one != DAMAGED and one.covered_to < blocks.end_of(number)}
    return Gaps(segment, blocks, known)


def fill(gaps: Gaps, file: ChecksumFile, log_end: int) -> None:
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
            file.write(
                number, [BlockChecksum(block_end, running_crc32(view[at - begin : block_end - begin], known.crc))]
            )
    if damaged:
        _log_damage(gaps.segment, damaged)


def _fetch(segment: Segment, begin: int, end: int) -> None:
    """By plain reads: a sector that the disk cannot read is an OSError so, and a SIGBUS through a mapping."""
    for at in range(begin, end, _FETCHED_BYTES):
        fetch([UncachedBytes(segment.file, at - segment.base, min(_FETCHED_BYTES, end - at))])


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


def _log_damage(segment: Segment, damaged: list[tuple[int, int]]) -> None:
    log.error(
        "bytes of the commit log are no record, and get no block sum: `ariane store verify` shows what is damaged",
        extra={"file": str(segment.path), "places": len(damaged), "from": damaged[0][0], "to": damaged[-1][1]},
    )


# --- sums_recovery ---
#
# Block sums at a start: those that the recovered log does not bear out go, before a byte of it changes.
#
# A sum covers nothing but bytes that were durable when it was made, so after any crash the bytes are there with it.
# They change in one case: recovery ends the log before them, as with a blank record that nothing follows, and zeroes
# the rest. So the sums are cut first, and durably: a sum that is missing says "not known", a stale one would tell of
# damage that there is not. It is done whether sums are being made or not, since an earlier run may have left some.

BACKFILL_BYTES = 512 * 1024 * 1024
"""How much of the log without sums a start makes up for: more than lies between two checkpoints, even under load."""


def truncate_checksums(disk: Disk, directory: Path, segments: Segments, end: int) -> None:
    """Leaves no sum of a byte at or behind `end`, and none of a file that is gone."""
    files = {offset_name(segment.base): segment for segment in segments if segment.base < end}
    strays = [name for name in _names(disk, directory) if not _belongs(disk, directory / name, files.get(name))]
    _remove(disk, directory, strays)
    segment = segments.find(end)
    if segment is not None and segment.base < end:
        try:
            _truncate_within(disk, directory / offset_name(segment.base), segment, end)
        except OSError as error:  # then none of them counts: no sum is a reason not to start
            log.warning("block sums removed: they cannot be written", extra={"reason": str(error)})
            _remove(disk, directory, [offset_name(segment.base)])


def drop_checksums_before(disk: Disk, directory: Path, low: int) -> None:
    """For retention: the log begins at `low` now."""
    for name in _names(disk, directory):
        if int(name) < low:
            with suppress(FileNotFoundError):
                disk.remove(directory / name)


def newest_checksum(
    disk: Disk, directory: Path, segments: Segments, block_bytes: int, begin: int, end: int
) -> BlockChecksum:
    """Where to go on: the last known sum, not before the block that holds `begin`; else that of no byte of this block.

    From `begin` on the log was walked just now. What is missing before it nobody has looked at: see sums_gaps.py. It is
    not further back than a start can afford to read, either.
    """
    begin = max(begin, segments.base, end - BACKFILL_BYTES)
    first = block_begin(disk, directory, segments.find(begin), begin, block_bytes)
    for segment in reversed(tuple(segments)):
        if segment.end <= first:
            break
        found = _newest_of(disk, directory, segment) if segment.base < end else None
        if found is not None and found.covered_to >= first:
            return found
    return BlockChecksum(first, 0)


def block_begin(disk: Disk, directory: Path, segment: Segment | None, offset: int, block_bytes: int) -> int:
    """Of the block that holds `offset`, which may also be where a file ends and none follows yet."""
    if segment is None:
        return offset
    file = open_checksums(disk, directory / offset_name(segment.base), segment.base, segment.file.size)
    if file is None:
        return Blocks(segment.base, segment.file.size, block_bytes).whole_below(offset)
    file.close()
    return file.blocks.whole_below(offset)


def _names(disk: Disk, directory: Path) -> list[str]:
    """What is not named like a log file is not ours."""
    return [name for name in disk.names(directory) if offset_of(name) is not None]


def _belongs(disk: Disk, path: Path, segment: Segment | None) -> bool:
    """Whether there is such a log file. A crash may also have kept the name of a new sums file and lost its head."""
    if segment is None:
        return False
    file = open_checksums(disk, path, segment.base, segment.file.size)
    if file is None:
        log.warning("block sums removed: their file is damaged", extra={"file": str(path)})
        return False
    file.close()
    return True


def _remove(disk: Disk, directory: Path, names: list[str]) -> None:
    for name in names:
        with suppress(FileNotFoundError):
            disk.remove(directory / name)
    if names:
        disk.sync_directory(directory)


def _truncate_within(disk: Disk, path: Path, segment: Segment, end: int) -> None:
    file = open_checksums(disk, path, segment.base, segment.file.size, writable=True)
    if file is None:
        return
    try:
        first = file.blocks.number_at(end)
        before = file.read(first)
        after = [_shortened(file.blocks, found, segment, end) for found in before[:1]]
        if after != before:
            file.write(first, after + [NOT_KNOWN] * (len(before) - 1))
            file.sync()
    finally:
        file.close()


def _shortened(blocks: Blocks, found: BlockChecksum, segment: Segment, end: int) -> BlockChecksum:
    """The sum of the block that holds `end`, up to there. It is only made anew from bytes that the old one confirms."""
    begin = blocks.whole_below(end)
    if begin == end or found in (NOT_KNOWN, DAMAGED):
        return NOT_KNOWN
    if found.covered_to <= end:
        return found
    view = segment.file.view()
    if running_crc32(view[begin - segment.base : found.covered_to - segment.base]) != found.crc:
        log.error(
            "bytes of the commit log are not those that were written: restore the file from a copy or a replica",
            extra={"file": str(segment.path), "from": begin, "to": found.covered_to},
        )
        return NOT_KNOWN
    return BlockChecksum(end, running_crc32(view[begin - segment.base : end - segment.base]))


def _newest_of(disk: Disk, directory: Path, segment: Segment) -> BlockChecksum | None:
    """The last known sum of a file. Of a whole block, as that of no byte of the next."""
    file = open_checksums(disk, directory / offset_name(segment.base), segment.base, segment.file.size)
    if file is None:
        return None
    try:
        return _last_known(file)
    finally:
        file.close()


def _last_known(file: ChecksumFile) -> BlockChecksum | None:
    for number, found in reversed(list(enumerate(file.read()))):
        if found not in (NOT_KNOWN, DAMAGED):
            return BlockChecksum(found.covered_to, 0) if found.covered_to == file.blocks.end_of(number) else found
    return None


# ---

STEP_BYTES = 8 * 1024 * 1024
"""What is summed at once while somebody may come to wait for a sync: a millisecond. No block is larger."""


class ChecksumWriter:
    """Any thread may call; one at a time is served. The log ends at `end`.

    What another process wrote behind `begin` may not be durable, nor its sums. If none is known, they begin there.
    """

    def __init__(self, disk: Disk, directory: Path, segments: Segments, block_bytes: int, begin: int, end: int) -> None:
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._block_bytes = max(block_bytes, BLOCK_BYTES_MIN)
        self._lock = threading.Lock()
        self._covered_to, self._crc = newest_checksum(disk, directory, segments, self._block_bytes, begin, end)
        """How far the log is summed; and the sum of the block that is there, up to there."""
        low = max(segments.base, end - BACKFILL_BYTES)
        self._gaps = find_gaps(disk, directory, segments, self._block_bytes, low, self._covered_to)
        self._file: ChecksumFile | None = None
        self._unsynced: dict[Path, PendingSync] = {}
        self._mark_unsynced(begin, end)
        self._is_failing = False

    def extend(self, durable_to: int) -> bool:
        """Sums some of the whole blocks below `durable_to`; whether there are more."""
        if durable_to - self._covered_to < self._block_bytes:
            return False
        with self._lock:
            before = self._covered_to
            self._try(lambda: self._extend_to(min(durable_to, before + STEP_BYTES)), durable_to)
            return before < self._covered_to <= durable_to - self._block_bytes

    def make_durable(self, durable_to: int) -> None:
        """Sums all that is below `durable_to`, the begun block too, and syncs the sums.

        The first call makes up for gaps, and may take a while: it is that of the start, before anybody is served.
        """
        with self._lock:
            self._fill_gaps(durable_to)
            self._try(lambda: self._extend_to(durable_to, with_rest=True), durable_to)
            self._try(self._sync, durable_to)

    def close(self) -> None:
        with self._lock:
            self._close_file()

    def _mark_unsynced(self, begin: int, end: int) -> None:
        """Sums that a killed process left are synced with the first of our own: a checkpoint says that all are."""
        for segment in self._segments:
            path = self._directory / offset_name(segment.base)
            if segment.end > begin and segment.base < end and self._disk.size(path) is not None:
                self._note_unsynced(path)
                self._note_unsynced(self._directory, is_directory=True)

    def _note_unsynced(self, path: Path, *, is_directory: bool = False) -> None:
        self._unsynced.setdefault(path, PendingSync(self._disk, path, is_directory))

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

    def _try(self, step: Callable[[], None], durable_to: int) -> None:
        """Tells of the first failure of several, and leaves a gap: the log may not wait for its sums."""
        try:
            step()
        except OSError as error:
            if not self._is_failing:
                log.warning("block sums of the commit log are not written", extra={"reason": str(error)})
            self._is_failing = True
            self._skip_to(durable_to)
        else:
            self._is_failing = False

    def _skip_to(self, durable_to: int) -> None:
        self._close_file()
        segment = self._segment_at(durable_to)
        try:
            begin = block_begin(self._disk, self._directory, segment, durable_to, self._block_bytes)
        except OSError:
            begin = durable_to if segment is None else segment.end
        if begin > self._covered_to:
            self._covered_to, self._crc = begin, 0

    def _extend_to(self, end: int, *, with_rest: bool = False) -> None:
        while self._covered_to < end:
            segment = self._segment_at(self._covered_to)
            if segment is None:  # deleted before its turn came
                self._skip_to(end)
                return
            file = self._file_of(segment)
            stop = min(end, segment.end, self._covered_to + STEP_BYTES) if with_rest else file.blocks.whole_below(end)
            if stop <= self._covered_to:
                return
            with segment.file.window(self._covered_to - segment.base, stop - segment.base) as view:
                self._checksum_view(view, file, stop)

    def _checksum_view(self, view: memoryview, file: ChecksumFile, stop: int) -> None:
        """`view` is the log from where the sums are to `stop`."""
        begin, blocks = self._covered_to, file.blocks
        at, crc = begin, self._crc
        first = number = blocks.number_at(at)
        checksums: list[BlockChecksum] = []
        while at < stop:
            block_end = blocks.end_of(number)
            end = min(block_end, stop)
            crc = running_crc32(view[at - begin : end - begin], crc)
            checksums.append(BlockChecksum(end, crc))
            at, number = end, number + 1
            if end == block_end:
                crc = 0
        self._note_unsynced(file.path)
        file.write(first, checksums)
        self._covered_to, self._crc = at, crc

    def _segment_at(self, offset: int) -> Segment | None:
        """By a copy of the list, which the event loop may change meanwhile."""
        return next((one for one in tuple(self._segments) if one.base <= offset < one.end), None)

    def _file_of(self, segment: Segment) -> ChecksumFile:
        if self._file is None or self._file.blocks.base != segment.base:
            self._close_file()
            self._file = self._open_file(segment)
        return self._file

    def _open_file(self, segment: Segment) -> ChecksumFile:
        path, size = self._directory / offset_name(segment.base), segment.file.size
        file = open_checksums(self._disk, path, segment.base, size, writable=True)
        if file is not None:
            return file
        if self._disk.size(path) is not None:
            self._disk.remove(path)
        self._note_unsynced(self._directory, is_directory=True)
        return create_checksums(self._disk, path, Blocks(segment.base, size, self._block_bytes))

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _sync(self) -> None:
        """What a failed sync has lost is an old sum in place of a new one: it reaches less far, and is as true."""
        unsynced, self._unsynced = self._unsynced, {}
        for one in unsynced.values():
            one.sync()
