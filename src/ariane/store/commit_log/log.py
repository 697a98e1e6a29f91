"""The commit log: all records of the broker in one append-only log, addressed by physical offset.

It is a sequence of files (`Segments`) of equal size that together are one long byte array:

    name = offset of the first byte      00000000000000000000  00000000001073741824  00000000002147483648
                                         |--- segment_bytes --||-------------------||-------------------|

A record never crosses files. When it does not fit, the rest of the file becomes a blank record and the next file
begins: so a file always keeps the eight bytes that a blank record needs. A thread creates the next file while the
active one fills, because allocating its blocks may take long.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from ariane.errors import StoreFull, StoreMismatch
from ariane.store.blocking_io import (
    IoSteps,
    RecordLocation,
    UncachedBytes,
    are_cached,
    fetch,
    fetch_records,
    is_record_cached,
    merge_adjacent,
)
from ariane.store.disk import Disk, File
from ariane.store.layout import offset_name, offset_of
from ariane.wire.record.layout import BLANK_BYTES_MIN, RECORD_BYTES_MAX, pack_blank


@dataclass(eq=False, slots=True)
class Segment:
    base: int
    path: Path
    file: File
    end: int = field(init=False)

    def __post_init__(self) -> None:
        self.end = self.base + self.file.size


class Segments:
    """The files of the log, oldest first, without gaps. Opens existing files; `adopt` appends, `drop_*` remove."""

    def __init__(self, disk: Disk, directory: Path, segment_bytes: int, *, writable: bool) -> None:
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._writable = writable
        self._segments: list[Segment] = []
        for name in disk.names(directory):
            base = offset_of(name)
            if base is not None and not self._is_unfinished(name):
                self._open(name, base)

    def _is_unfinished(self, name: str) -> bool:
        """An empty file: a crash kept its name but not its size, so nothing was ever written to it."""
        path = self._directory / name
        if self._disk.size(path):
            return False
        if self._writable:
            self._disk.remove(path)
        return True

    def _open(self, name: str, base: int) -> None:
        path = self._directory / name
        size = self._disk.size(path)
        if size != self._segment_bytes:
            raise StoreMismatch(
                f"{path} has {size} bytes, the settings say {self._segment_bytes}: set the size that the store was "
                "written with, or move the file away"
            )
        if self._segments and base != self._segments[-1].end:
            raise StoreMismatch(f"{path} does not follow {self._segments[-1].path}: a file between them is missing")
        self._segments.append(Segment(base, path, self._disk.open(path, writable=self._writable)))

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def segment_bytes(self) -> int:
        return self._segment_bytes

    @property
    def first(self) -> Segment | None:
        return self._segments[0] if self._segments else None

    @property
    def last(self) -> Segment | None:
        return self._segments[-1] if self._segments else None

    @property
    def base(self) -> int:
        """The first offset of the oldest file, 0 when there is none."""
        return self._segments[0].base if self._segments else 0

    def find(self, offset: int) -> Segment | None:
        """The segment that holds `offset`."""
        segments = self._segments
        index = (offset - segments[0].base) // self._segment_bytes if segments else -1
        return segments[index] if 0 <= index < len(segments) else None

    def between(self, begin: int, end: int) -> list[Segment]:
        """The segments with bytes from `begin` to `end`, oldest first; a thread may call it."""
        found = []
        for segment in reversed(tuple(self._segments)):
            if segment.end <= begin:
                break
            if segment.base < end:
                found.append(segment)
        return found[::-1]

    def before(self, offset: int) -> list[Segment]:
        """The segments that end at or before `offset`."""
        return [segment for segment in self._segments if segment.end <= offset]

    def create(self, base: int, *, allocated: int) -> Segment:
        """A new file of zeros, synced. Does not change this object, so a thread may call it; then `adopt` the file."""
        path = self._directory / offset_name(base)
        file = self._disk.create(path, self._segment_bytes, allocated=allocated)
        try:
            file.sync()
            self._disk.sync_directory(self._directory)
        except OSError:  # it is empty; its name must not block the next attempt
            file.close()
            self._disk.remove(path)
            raise
        return Segment(base, path, file)

    def adopt(self, segment: Segment) -> None:
        assert not self._segments or segment.base == self._segments[-1].end, "segments follow each other"
        self._segments.append(segment)

    def drop_first_steps(self) -> IoSteps[Segment]:
        """Forgets and unlinks the oldest file; a thread does it, since freeing the blocks of a large file takes long.

        The file leaves the list first, so `find` no longer returns it while a thread removes it. Offsets are never used
        again, so its name is never another file's. Readers that hold its view keep the bytes.
        """
        segment = self._segments.pop(0)
        yield partial(self._remove, segment)
        return segment

    def drop_last(self) -> Segment:
        segment = self._segments.pop()
        self._remove(segment)
        return segment

    def _remove(self, segment: Segment) -> None:
        segment.file.close()
        self._disk.remove(segment.path)
        self._disk.sync_directory(self._directory)  # after each removal: a crash must not undo one and keep the next

    def close(self) -> None:
        for segment in self._segments:
            segment.file.close()
        self._segments.clear()


_NOTHING = memoryview(b"")


class RecordChecks(Protocol):
    """Compares what is read with the block checksums (checked_blocks.py)."""

    has_damage: bool
    """Whether `withholds` is true of any record."""
    damaged_blocks: int
    """Found since the start, each counted once."""
    withheld_records: int
    """Asked for since the start, each counted once."""

    def are_intact(self, begin: int, end: int) -> bool:
        """Whether these bytes are in one file, were checked, and are what was written."""
        ...

    def check_steps(self, locations: Sequence[RecordLocation], hot_from: int, *, is_cold: bool) -> IoSteps[None]:
        """Fetches and checks these records, as far as they lie before `hot_from`."""
        ...

    def withholds(self, offset: int, size: int) -> bool:
        """Whether this record may be damaged, so that no reader may get it."""
        ...

    def expire(self) -> None:
        """Called with each checkpoint: now and then what was checked is checked again."""

    def forget_all(self) -> None:
        """Everything is unchecked from now on."""


class CommitLog:
    """Appends by `pwrite`, reads through a read-only mapping. Recovery calls `set_end` before the first append."""

    def __init__(self, segments: Segments, executor: Executor | None = None) -> None:
        self._segments = segments
        self._executor = executor
        self._end = segments.base
        self._active: Segment | None = None
        self._preparing: Future[Segment] | None = None
        self._stale_to = 0
        """Up to here a failed write may have left valid records, which must not follow the next record."""
        self.assume_cached_from = 0
        """From here on this process wrote everything at most a minute ago: it counts as cached without a system call.
        The store advances it with each checkpoint."""
        self.checks: RecordChecks | None = None
        """Set by the store; None without block checksums."""
        self.followed_to: int | None = None
        """At a slave: up to where the log was dispatched, always between two records. None: as far as it goes."""

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

    @property
    def active_base(self) -> int:
        """Where the file begins that is written to."""
        return self._end if self._active is None else self._active.base

    @property
    def is_preparing(self) -> bool:
        """Whether a thread allocates the next file."""
        return self._preparing is not None and not self._preparing.done()

    @property
    def dispatched_to(self) -> int:
        """Queues and index have, at least in memory, all records below this offset."""
        return self._end if self.followed_to is None else self.followed_to

    def whole_below(self, offset: int) -> int:
        """`offset`, or what of it is known to be whole records: the log of a slave may end inside of one."""
        return offset if self.followed_to is None else min(offset, self.followed_to)

    def set_end(self, offset: int) -> None:
        """Sets the end of the log that recovery found."""
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
        offset = self._end
        end = offset + len(records)
        assert end <= active.end - BLANK_BYTES_MIN, "ask room() first"
        self._write_over_stale(active, records, end)
        return offset

    def append_raw(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """For a slave: bytes of its master's log, cut anywhere but across files. An empty log begins with any file.

        StoreMismatch when they do not fit, StoreFull when they cannot be written; nothing has changed then.
        """
        active, size = self._active, self._segments.segment_bytes
        if offset != self._end and (len(self._segments) or offset % size):
            raise StoreMismatch(f"bytes of the log at {offset} do not follow its end at {self._end}")
        file_end = offset - offset % size + size
        if offset + len(data) > file_end:
            raise StoreMismatch(
                f"{len(data)} bytes at {offset} cross the end of a file at {file_end}: the master's log files have "
                f"another size than {size} bytes; set mappedFileSizeCommitLog alike, and begin with an empty slave"
            )
        if active is None or offset == active.end:
            self._active = active = self._next_segment(offset)
            self._end = offset
            self._prepare()
        self._write_over_stale(active, data, self._end + len(data))

    def _write_over_stale(self, active: Segment, data: bytes | bytearray | memoryview, end: int) -> None:
        self._write(active, data if self._stale_to <= end else bytes(data) + bytes(self._stale_to - end))
        self._end = end
        self._stale_to = 0

    def roll(self) -> None:
        """Ends the active file with a blank record and begins the next. StoreFull, and nothing changed, if not."""
        active = self._active
        following = self._next_segment(self._end if active is None else active.end)
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

    def _next_segment(self, base: int) -> Segment:
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
        """`size` bytes at `offset`, not copied; None when they are not in the log (any more), or are damaged."""
        end = offset + size
        segment = self._segments.find(offset)
        if segment is None or end > self._end or end > segment.end or self.withholds(offset, size):
            return None
        base = segment.base
        return segment.file.view()[offset - base : end - base]

    def window(self, offset: int) -> tuple[int, int, memoryview]:
        """Base, end and bytes of the file that holds `offset`, for reading many records of it."""
        segment = self._segments.find(offset)
        if segment is None:
            return 0, 0, _NOTHING
        return segment.base, min(segment.end, self._end), segment.file.view()

    # --- page cache and checks --------------------------------------------------------------------------------------

    def is_ready(self, locations: Sequence[RecordLocation]) -> bool:
        """Whether these records, in the order of the log, are in the page cache and were checked there."""
        if not locations or locations[0][0] >= self.assume_cached_from:
            return True
        offset, size = locations[-1]
        checks = self.checks
        return (checks is None or checks.are_intact(locations[0][0], offset + size)) and self._is_cached(locations)

    def _is_cached(self, locations: Sequence[RecordLocation]) -> bool:
        """Probes the first and the last only: those between were written and are read together with them. A probe of
        each of 32 records would cost three times as much as their pull."""
        ends = locations if len(locations) == 1 else (locations[0], locations[-1])
        return all(map(are_cached, self._byte_ranges(ends)))

    def warm(self, locations: Sequence[RecordLocation]) -> IoSteps[None]:
        """Fetches these records into the page cache (store/blocking_io.py), and checks them."""
        if self.is_ready(locations):
            return
        is_cold = not self._is_cached(locations)
        if self.checks is not None:
            yield from self.checks.check_steps(locations, self.assume_cached_from, is_cold=is_cold)
        elif is_cold:
            yield partial(fetch, list(self._byte_ranges(merge_adjacent(locations))))

    def warm_end(self) -> IoSteps[None]:
        """Fetches the page that the next append writes to."""
        last = [(self._end - 1, 1)]
        if self._end <= self.assume_cached_from and not self._is_cached(last):
            yield partial(fetch, list(self._byte_ranges(last)))

    def warm_records(self, offsets: Sequence[int]) -> IoSteps[None]:
        """The same for records of unknown size."""
        cold = [byte_range for offset in offsets if (byte_range := self._cold_record(offset)) is not None]
        if cold:
            yield partial(fetch_records, cold)
        if self.checks is not None:
            yield from self.warm([(offset, size) for offset in sorted(offsets) if (size := self._size_at(offset))])

    def _size_at(self, offset: int) -> int:
        """As the record itself says, which may be damaged; 0 if it cannot be."""
        base, end, view = self.window(offset)
        size = int.from_bytes(view[offset - base : offset - base + 4], "big")
        return size if offset + size <= end else 0

    def withholds(self, offset: int, size: int) -> bool:
        """Whether this record may be damaged, so that no reader may get it. `warm` it first."""
        checks = self.checks
        return checks is not None and checks.has_damage and checks.withholds(offset, size)

    @property
    def has_damage(self) -> bool:
        """Whether `withholds` is true of any record."""
        return self.checks is not None and self.checks.has_damage

    def _cold_record(self, offset: int) -> UncachedBytes | None:
        segment = self._segments.find(offset)
        if segment is None or offset >= self.assume_cached_from:
            return None
        size_max = min(segment.end - offset, RECORD_BYTES_MAX)
        byte_range = UncachedBytes(segment.file, offset - segment.base, size_max)
        return None if is_record_cached(byte_range) else byte_range

    def _byte_ranges(self, locations: Iterable[RecordLocation]) -> Iterator[UncachedBytes]:
        for offset, size in locations:
            segment = self._segments.find(offset)
            if segment is not None and 0 < size <= RECORD_BYTES_MAX:
                yield UncachedBytes(segment.file, offset - segment.base, size)

    def close(self) -> None:
        """Removes a file that was created ahead but not used, as Apache does on a clean stop."""
        preparing, self._preparing = self._preparing, None
        if preparing is not None and preparing.exception() is None:
            self._segments.adopt(preparing.result())
        while self._segments.last is not None and self._segments.last.base > self._end:
            self._segments.drop_last()
        self._segments.close()
