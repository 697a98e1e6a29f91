"""Offline scan of a commit log: no broker, no lock, nothing is written; works on a copy and on Apache's logs.

Files are read in windows and not mapped: a bad sector is then an OSError that can be reported, not a signal that kills
the process, and memory use does not grow with the store.

The scan resynchronises after bad bytes. Every record holds its own physical offset, so the next position with a magic
number and its own offset is a record again:

    record   record   ????????????????   record   blank │ record   0000000
    item     item     one broken item    item     item  │ item     one broken item, all zeros
                                                        └ next file
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ariane.store.disk import Disk, File
from ariane.store.layout import offset_of
from ariane.wire.record.layout import (
    BLANK_BYTES_MIN,
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MAX,
    RECORD_BYTES_MIN,
    SIZE_AND_MAGIC,
)
from ariane.wire.record.read import BlankRecord, BrokenRecord, Fault, RecordView, Verdict, verify

WINDOW_BYTES = 32 * 1024 * 1024
assert WINDOW_BYTES > RECORD_BYTES_MAX, "every record fits a window"

_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2, BLANK_MAGIC))
_MAGIC_POSITION = 4
_ZEROS_BYTES = 1024 * 1024  # stays in the processor's cache
_ZEROS = bytes(_ZEROS_BYTES)
_PHYSICAL_OFFSET_POSITION = 28


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a log or a queue, named by the offset of its first byte."""

    path: Path
    base: int
    size: int

    @property
    def end(self) -> int:
        return self.base + self.size


def list_files(disk: Disk, directory: Path) -> list[DataFile]:
    """The files of a commit log or a queue, oldest first. The caller checks for gaps and wrong sizes."""
    files = []
    for name in disk.names(directory):
        base = offset_of(name)
        size = disk.size(directory / name) if base is not None else None
        if base is not None and size is not None:
            files.append(DataFile(directory / name, base, size))
    return files


class LogItem(NamedTuple):
    """What is at a physical offset. `size` is the distance to the next item; `verdict` refers to `buffer`."""

    offset: int
    size: int
    file: DataFile
    verdict: Verdict
    buffer: bytes
    is_zeros: bool = False
    """For a broken record: whether all of its `size` bytes are zero."""


def walk_files(
    disk: Disk,
    files: Iterable[DataFile],
    start: int = 0,
    *,
    check_crc: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Iterator[LogItem]:
    """Every item from `start`, which must be the start of a record, to the end of the last file."""
    for file in files:
        if start < file.end:
            yield from _FileWalk(disk, file, check_crc, progress).items(max(start - file.base, 0))


class LocatedRecord(NamedTuple):
    """A valid record and the file that holds it."""

    view: RecordView
    file: DataFile
    position: int
    """Of its first byte in the file."""
    buffer: bytes

    @property
    def raw(self) -> bytes:
        return self.buffer[self.view.position : self.view.position + self.view.size]


def walk_records(disk: Disk, files: Iterable[DataFile], start: int = 0) -> Iterator[LocatedRecord]:
    """The valid records from `start` on; if `start` is inside a record, from the next one on."""
    for item in walk_files(disk, files, start):
        if isinstance(item.verdict, RecordView):
            yield LocatedRecord(item.verdict, item.file, item.offset - item.file.base, item.buffer)


def record_at(disk: Disk, files: Iterable[DataFile], offset: int) -> LocatedRecord | None:
    """The valid record that begins at a physical offset, None when there is none. Reads only that record."""
    file = next((file for file in files if file.base <= offset < file.end), None)
    if file is None:
        return None
    handle = disk.open(file.path, writable=False)
    try:
        raw = _read_record(handle, offset - file.base)
    finally:
        handle.close()
    view = verify(raw)
    return LocatedRecord(view, file, offset - file.base, raw) if isinstance(view, RecordView) else None


def _read_record(handle: File, position: int) -> bytes:
    """The bytes of the record, by its size field; none when the size is implausible."""
    head = handle.read(SIZE_AND_MAGIC.size, position)
    size = SIZE_AND_MAGIC.unpack(head)[0] if len(head) == SIZE_AND_MAGIC.size else 0
    return handle.read(size, position) if RECORD_BYTES_MIN <= size <= RECORD_BYTES_MAX else b""


class _FileWalk:
    """One pass over one file. Positions are those in the file."""

    def __init__(self, disk: Disk, file: DataFile, check_crc: bool, progress: Callable[[int], None] | None) -> None:
        self._disk = disk
        self._file = file
        self._check_crc = check_crc
        self._progress = progress

    def items(self, position: int) -> Iterator[LogItem]:
        handle = self._disk.open(self._file.path, writable=False)
        try:
            while position < self._file.size:
                window = handle.read(WINDOW_BYTES, position)
                if not window:  # it was truncated after it was listed
                    return
                before = position
                for item in self._window_items(handle, window, position):
                    yield item
                    position = item.offset - self._file.base + item.size
                if self._progress is not None:
                    self._progress(position - before)
        finally:
            handle.close()

    def _window_items(self, handle: File, window: bytes, start: int) -> Iterator[LogItem]:
        """Items until the window ends. At least one: a window holds its first record completely."""
        reaches_end = start + len(window) >= self._file.size
        at = 0
        while at < len(window):
            verdict = verify(window, at, check_body_crc=self._check_crc)
            if isinstance(verdict, BrokenRecord) and verdict.fault is Fault.TORN and at > 0 and not reaches_end:
                return  # the rest of it is in the next window
            item = self._item(handle, window, start + at, verdict)
            yield item
            at += item.size

    def _item(self, handle: File, window: bytes, position: int, verdict: Verdict) -> LogItem:
        offset = self._file.base + position
        if isinstance(verdict, RecordView):
            return LogItem(offset, verdict.size, self._file, verdict, window)
        if isinstance(verdict, BlankRecord):  # whatever its size field, the next record begins the next file
            return LogItem(offset, self._file.size - position, self._file, verdict, window)
        if verdict.fault in (Fault.BAD_CRC, Fault.BAD_TEXT):  # its lengths add up, so its size is right
            return LogItem(offset, verdict.size, self._file, verdict, window)
        data_at = first_nonzero(handle, position, self._file.size)  # first, because most often only zeros follow
        if data_at is None:
            return LogItem(offset, self._file.size - position, self._file, verdict, window, is_zeros=True)
        # The size field may begin with zeros.
        following = self._next_valid(handle, max(position + 1, data_at - BLANK_BYTES_MIN))
        return LogItem(offset, following - position, self._file, verdict, window, is_zeros=data_at >= following)

    def _next_valid(self, handle: File, start: int) -> int:
        """Position of the next record; the end of the file when there is none."""
        position = start
        while (data_at := handle.next_data(position)) is not None and data_at < self._file.size:
            position = max(position, data_at - BLANK_BYTES_MIN)  # the size field may begin with zeros
            window = handle.read(WINDOW_BYTES, position)
            for at in _magic_positions(window):
                candidate = position + at - _MAGIC_POSITION
                if candidate >= start and self._is_valid(handle, candidate):
                    return candidate
            if len(window) <= 2 * BLANK_BYTES_MIN or position + len(window) >= self._file.size:
                break  # at the end of the file, or of what is left of it
            position += len(window) - BLANK_BYTES_MIN  # a magic number may lie across two windows
        return self._file.size

    def _is_valid(self, handle: File, position: int) -> bool:
        head = handle.read(RECORD_BYTES_MIN, position)
        size, magic = SIZE_AND_MAGIC.unpack_from(head)
        if magic == BLANK_MAGIC:
            return bool(size == self._file.size - position)
        own_offset = int.from_bytes(head[_PHYSICAL_OFFSET_POSITION : _PHYSICAL_OFFSET_POSITION + 8], "big")
        if own_offset != self._file.base + position:
            return False
        return isinstance(verify(_read_record(handle, position), check_body_crc=False), RecordView)


def _magic_positions(window: bytes) -> Iterator[int]:
    """Positions of the three magic numbers, in order."""
    following = {magic: window.find(magic) for magic in _MAGICS}
    while candidates := [(at, magic) for magic, at in following.items() if at >= 0]:
        at, magic = min(candidates)
        yield at
        following[magic] = window.find(magic, at + 1)


def first_nonzero(handle: File, start: int, end: int) -> int | None:
    """The position of the first byte between `start` and `end` that is not zero. Holes are skipped, not read."""
    while (data_at := handle.next_data(start)) is not None and data_at < end:
        window = handle.read(min(_ZEROS_BYTES, end - data_at), data_at)
        if not _ZEROS.startswith(window):  # one comparison: a hundred times faster than a search
            return data_at + len(window) - len(window.lstrip(b"\0"))
        if not window:
            return None
        start = data_at + len(window)
    return None
