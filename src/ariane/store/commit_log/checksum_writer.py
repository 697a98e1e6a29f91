"""Computes the block checksums of the growing commit log after its syncs, and repairs them at start-up.

    appended ──────────────────────────────────────────────────────────────> the end of the log
    durable ─────────────────────────────────────────────────> flushed
    checksummed ───────────────────────────────> covered, and known up to there in commitlog_sums/

Only durable bytes are checksummed, so no crash leaves a checksum without its bytes. They are read just after they were
written, by a thread that releases the GIL meanwhile: appends are not delayed. The thread uses its own short-lived
mapping: through that of the readers, everything ever checksummed would count as memory of this process. A partly
covered block is continued from its stored checksum, not from its bytes: a change in those bytes must still show.

Checksums are an aid and not the data. When they cannot be written, the blocks stay unknown, which `ariane store verify`
reports, and the store continues.

**At start-up**, checksums that the recovered log contradicts are removed before a byte of the log changes. A checksum
covers only bytes that were durable when it was made, so after any crash those bytes are there. They change in one case:
recovery ends the log before them, as with a blank record that nothing follows, and zeroes the rest. So the checksums
are truncated first, and durably: a missing checksum means "not known", a stale one would report damage where there is
none. This is done even if checksums are switched off, since an earlier run may have left some.

**Gaps** are missing checksums before existing ones:

    checksums     known   known   .....   .....   known   known   begun
    log       |-------|-------|-------|-------|-------|-------|----|
                              ^ a gap         ^                    ^ continues here

A power cut may take a page of a checksum file, or its header, and leave a later one. So may a disk that refused some
writes. New checksums continue after the newest one, so the gap would stay for good, and changes in it would not show.
So `find_gaps` and `fill` restore them when a store starts. The bytes in a gap were durable, but have not been read
since. They are checked as records first: what is not a valid record, by its own CRC, gets no block checksum. A damaged
checksum is not a gap. It stays for `ariane store verify` to report: a new one would hide that the disk changes data.
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
    checksum_of,
    create_checksums,
    open_checksums,
)
from ariane.store.commit_log.log import Segment, Segments
from ariane.store.disk import Disk, PendingSync
from ariane.store.layout import offset_name, offset_of
from ariane.wire.record.layout import MAGIC_V1, MAGIC_V2, RECORD_BYTES_MAX
from ariane.wire.record.read import BlankRecord, RecordView, verify

log = logging.getLogger(__name__)

_MAGIC = re.compile(b"|".join(re.escape(magic.to_bytes(4, "big")) for magic in (MAGIC_V1, MAGIC_V2)))
_MAGIC_POSITION = 4
_FETCHED_BYTES = 8 * 1024 * 1024


class Gaps(NamedTuple):
    """The blocks of one log file that are not covered completely, each with its partial checksum, if any."""

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
    """Gaps in the blocks from the one of `low` to those that end at or before `high`. Reads checksums, not the log."""
    per_file = (
        _gaps_of(disk, directory, segment, block_bytes, low, high)
        for segment in segments
        if segment.end > low and segment.base < high
    )
    return [gaps for gaps in per_file if gaps.known]


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
    known = {
        number: checksum
        for number, checksum in numbered
        if checksum != DAMAGED and checksum.covered_to < blocks.end_of(number)
    }
    return Gaps(segment, blocks, known)


def fill(gaps: Gaps, file: ChecksumFile, log_end: int) -> None:
    """Writes the missing checksums, except for damaged blocks. Blocks; OSError if the log is unreadable."""
    base = gaps.segment.base
    begin = max(base, gaps.begin - RECORD_BYTES_MAX)  # so that the record across the first block's begin is found
    end = min(gaps.segment.end, log_end, gaps.end + RECORD_BYTES_MAX)
    _fetch(gaps.segment, begin, end)
    with gaps.segment.file.window(begin - base, end - base) as view:
        damaged = list(_damaged(view, gaps, begin))
        for number in gaps.known.keys() - _numbers(gaps.blocks, damaged):
            known, block_end = gaps.known[number], gaps.blocks.end_of(number)
            at = known.covered_to or gaps.blocks.begin_of(number)
            file.write(number, [BlockChecksum(block_end, checksum_of(view[at - begin : block_end - begin], known.crc))])
    if damaged:
        _log_damage(gaps.segment, damaged)


def _fetch(segment: Segment, begin: int, end: int) -> None:
    """By plain reads: an unreadable sector is then an OSError, where a mapping would give a SIGBUS."""
    for at in range(begin, end, _FETCHED_BYTES):
        fetch([UncachedBytes(segment.file, at - segment.base, min(_FETCHED_BYTES, end - at))])


def _damaged(view: memoryview, gaps: Gaps, begin: int) -> Iterator[tuple[int, int]]:
    """Ranges without a valid record, up to the next record. `view` begins at the physical offset `begin`."""
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
    """The next record after `position`; the end of `view` when there is none."""
    for hit in _MAGIC.finditer(view, position + 1 - begin + _MAGIC_POSITION):
        at = hit.start() - _MAGIC_POSITION
        candidate = verify(view, at, check_body_crc=False)  # the scan continues from there, and checks the body
        if isinstance(candidate, RecordView) and candidate.physical_offset == begin + at:
            return begin + at
    return begin + len(view)


def _numbers(blocks: Blocks, damaged: list[tuple[int, int]]) -> set[int]:
    """The numbers of the blocks that hold any of these bytes."""
    return {
        number for begin, end in damaged for number in range(blocks.number_at(begin), blocks.number_at(end - 1) + 1)
    }


def _log_damage(segment: Segment, damaged: list[tuple[int, int]]) -> None:
    log.error(
        "bytes of the commit log are no valid record and get no block checksum: `ariane store verify` shows the damage",
        extra={"file": str(segment.path), "places": len(damaged), "from": damaged[0][0], "to": damaged[-1][1]},
    )


# --- recovery of checksum files ---

BACKFILL_BYTES = 512 * 1024 * 1024
"""How much of the log without checksums a start covers: more than lies between two checkpoints, even under load."""


def truncate_checksums(disk: Disk, directory: Path, segments: Segments, end: int) -> None:
    """Removes checksums of bytes at or after `end`, and those of deleted log files."""
    files = {offset_name(segment.base): segment for segment in segments if segment.base < end}
    strays = [name for name in _names(disk, directory) if not _belongs(disk, directory / name, files.get(name))]
    _remove(disk, directory, strays)
    segment = segments.find(end)
    if segment is not None and segment.base < end:
        try:
            _truncate_within(disk, directory / offset_name(segment.base), segment, end)
        except OSError as error:  # remove the whole file instead: checksums must not prevent a start
            log.warning("block checksums removed: they cannot be written", extra={"reason": str(error)})
            _remove(disk, directory, [offset_name(segment.base)])


def drop_checksums_before(disk: Disk, directory: Path, low: int) -> None:
    """For retention: removes checksums of log files before `low`, where the log begins now."""
    for name in _names(disk, directory):
        if int(name) < low:
            with suppress(FileNotFoundError):
                disk.remove(directory / name)


def newest_checksum(
    disk: Disk, directory: Path, segments: Segments, block_bytes: int, begin: int, end: int
) -> BlockChecksum:
    """Where to continue: the last known checksum, not before the block of `begin`; else an empty one of this block.

    Recovery has just scanned the log from `begin` on. What is missing before it is a gap (`find_gaps`). Never further
    back than a start can afford to read.
    """
    begin = max(begin, segments.base, end - BACKFILL_BYTES)
    first = block_begin(disk, directory, segments.find(begin), begin, block_bytes)
    for segment in reversed(tuple(segments)):
        if segment.end <= first:
            break
        newest = _newest_of(disk, directory, segment) if segment.base < end else None
        if newest is not None and newest.covered_to >= first:
            return newest
    return BlockChecksum(first, 0)


def block_begin(disk: Disk, directory: Path, segment: Segment | None, offset: int, block_bytes: int) -> int:
    """Start of the block that holds `offset`, which may also be the end of the last file."""
    if segment is None:
        return offset
    file = open_checksums(disk, directory / offset_name(segment.base), segment.base, segment.file.size)
    if file is None:
        return Blocks(segment.base, segment.file.size, block_bytes).whole_below(offset)
    file.close()
    return file.blocks.whole_below(offset)


def _names(disk: Disk, directory: Path) -> list[str]:
    """Names of checksum files; other files are ignored."""
    return [name for name in disk.names(directory) if offset_of(name) is not None]


def _belongs(disk: Disk, path: Path, segment: Segment | None) -> bool:
    """Whether its log file exists and the header is valid: a crash may keep a new file's name and lose its header."""
    if segment is None:
        return False
    file = open_checksums(disk, path, segment.base, segment.file.size)
    if file is None:
        log.warning("block checksums removed: their file is damaged", extra={"file": str(path)})
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
        after = [_shortened(file.blocks, checksum, segment, end) for checksum in before[:1]]
        if after != before:
            file.write(first, after + [NOT_KNOWN] * (len(before) - 1))
            file.sync()
    finally:
        file.close()


def _shortened(blocks: Blocks, checksum: BlockChecksum, segment: Segment, end: int) -> BlockChecksum:
    """The checksum of the block of `end`, up to `end`. Computed only from bytes that match the old checksum."""
    begin = blocks.whole_below(end)
    if begin == end or checksum in (NOT_KNOWN, DAMAGED):
        return NOT_KNOWN
    if checksum.covered_to <= end:
        return checksum
    view = segment.file.view()
    if checksum_of(view[begin - segment.base : checksum.covered_to - segment.base]) != checksum.crc:
        log.error(
            "bytes of the commit log are not those that were written: restore the file from a copy or a replica",
            extra={"file": str(segment.path), "from": begin, "to": checksum.covered_to},
        )
        return NOT_KNOWN
    return BlockChecksum(end, checksum_of(view[begin - segment.base : end - segment.base]))


def _newest_of(disk: Disk, directory: Path, segment: Segment) -> BlockChecksum | None:
    """The last known checksum of a file; if it covers a whole block, an empty one of the next block."""
    file = open_checksums(disk, directory / offset_name(segment.base), segment.base, segment.file.size)
    if file is None:
        return None
    with closing(file):
        known = file.last_known()
    if known is None:
        return None
    number, checksum = known
    is_whole = checksum.covered_to == file.blocks.end_of(number)
    return BlockChecksum(checksum.covered_to, 0) if is_whole else checksum


# --- the writer ---

STEP_BYTES = 8 * 1024 * 1024
"""Bytes per step, a millisecond of work, because a sync may be requested meanwhile. No block is larger."""


class ChecksumWriter:
    """Thread-safe: a lock serialises the calls. The log ends at `end`.

    What another process wrote after `begin` may not be durable, nor its checksums. If none is known, they begin there.
    """

    def __init__(self, disk: Disk, directory: Path, segments: Segments, block_bytes: int, begin: int, end: int) -> None:
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._block_bytes = max(block_bytes, BLOCK_BYTES_MIN)
        self._lock = threading.Lock()
        self._covered_to, self._crc = newest_checksum(disk, directory, segments, self._block_bytes, begin, end)
        """How far the log is checksummed, and the checksum of that block up to there."""
        low = max(segments.base, end - BACKFILL_BYTES)
        self._gaps = find_gaps(disk, directory, segments, self._block_bytes, low, self._covered_to)
        self._file: ChecksumFile | None = None
        self._unsynced: dict[Path, PendingSync] = {}
        self._mark_unsynced(begin, end)
        self._is_failing = False

    def extend(self, durable_to: int) -> bool:
        """Checksums some of the bytes below `durable_to`, the partial last block too; whether there are more."""
        if durable_to <= self._covered_to:
            return False
        with self._lock:
            before = self._covered_to
            is_done = self._try(lambda: self._extend_to(min(durable_to, before + STEP_BYTES)), durable_to)
            return is_done and before < self._covered_to < durable_to

    def make_durable(self, durable_to: int) -> None:
        """Checksums everything below `durable_to` and syncs the checksums.

        The first call also fills gaps and may take a while: it runs at start-up, before clients are served.
        """
        with self._lock:
            self._fill_gaps(durable_to)
            self._try(lambda: self._extend_to(durable_to), durable_to)
            self._try(self._sync, durable_to)

    def close(self) -> None:
        with self._lock:
            self._close_file()

    def _mark_unsynced(self, begin: int, end: int) -> None:
        """Checksums of a killed process are synced with our first ones: a checkpoint states that all are durable."""
        for segment in self._segments:
            path = self._directory / offset_name(segment.base)
            if segment.end > begin and segment.base < end and self._disk.size(path) is not None:
                self._note_unsynced(path)
                self._note_unsynced(self._directory, is_directory=True)

    def _note_unsynced(self, path: Path, *, is_directory: bool = False) -> None:
        self._unsynced.setdefault(path, PendingSync(self._disk, path, is_directory))

    def _fill_gaps(self, durable_to: int) -> None:
        """A gap that cannot be read or written stays, and the next start tries again."""
        gaps, self._gaps = self._gaps, []
        for file_gaps in gaps:
            try:
                self._fill(file_gaps, durable_to)
            except OSError as error:
                extra = {"file": str(file_gaps.segment.path), "reason": str(error)}
                log.warning("missing block checksums cannot be restored", extra=extra)

    def _fill(self, gaps: Gaps, durable_to: int) -> None:
        file = self._file_of(gaps.segment)
        self._note_unsynced(file.path)
        fill(gaps, file, durable_to)

    def _try(self, step: Callable[[], None], durable_to: int) -> bool:
        """Whether it succeeded. Logs the first of several errors and leaves a gap: the log must not wait for them."""
        try:
            step()
        except OSError as error:
            if not self._is_failing:
                log.warning("block checksums of the commit log are not written", extra={"reason": str(error)})
            self._is_failing = True
            self._skip_to(durable_to)
            return False
        self._is_failing = False
        return True

    def _skip_to(self, durable_to: int) -> None:
        self._close_file()
        segment = self._segment_at(durable_to)
        try:
            begin = block_begin(self._disk, self._directory, segment, durable_to, self._block_bytes)
        except OSError:
            begin = durable_to if segment is None else segment.end
        if begin > self._covered_to:
            self._covered_to, self._crc = begin, 0

    def _extend_to(self, end: int) -> None:
        while self._covered_to < end:
            segment = self._segment_at(self._covered_to)
            if segment is None:  # retention has deleted the file already
                self._skip_to(end)
                return
            file = self._file_of(segment)
            stop = min(end, segment.end, self._covered_to + STEP_BYTES)
            with segment.file.window(self._covered_to - segment.base, stop - segment.base) as view:
                self._checksum_view(view, file, stop)

    def _checksum_view(self, view: memoryview, file: ChecksumFile, stop: int) -> None:
        """`view` is the log from the covered offset to `stop`."""
        begin, blocks = self._covered_to, file.blocks
        at, crc = begin, self._crc
        first = number = blocks.number_at(at)
        checksums: list[BlockChecksum] = []
        while at < stop:
            block_end = blocks.end_of(number)
            end = min(block_end, stop)
            crc = checksum_of(view[at - begin : end - begin], crc)
            checksums.append(BlockChecksum(end, crc))
            at, number = end, number + 1
            if end == block_end:
                crc = 0
        self._note_unsynced(file.path)
        file.write(first, checksums)
        self._covered_to, self._crc = at, crc

    def _segment_at(self, offset: int) -> Segment | None:
        """From a copy of the list, which the event loop may change meanwhile."""
        return next((segment for segment in tuple(self._segments) if segment.base <= offset < segment.end), None)

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
        """A failed sync may leave an old checksum in place of a new one: it covers less, and is still right."""
        unsynced, self._unsynced = self._unsynced, {}
        for pending in unsynced.values():
            pending.sync()
