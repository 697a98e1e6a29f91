"""The files of one consume queue as one long byte array, and a cache of open files that all queues share.

    00000000000000000000  00000000000006000000  00000000000012000000
    |--- segment_bytes --||-------------------||-------------------|
    ^ base                             data, then zeros up to here ^ end

Queues are derived from the commit log, so nothing here syncs: to make a queue durable, a thread syncs what
`take_unsynced` lists. Two invariants still hold after any crash:

* The files have no gap. A directory is synced before its names change a second time, so a crash can undo only the last
  file that was created or removed.
* A file whose name is durable and whose size is not comes back empty. Nothing from there on was durable: it is removed.

What the files must hold is known by checksums (consume_queue/block_checksums.py). The last block is checked at the
start (`restore`), every other before it is first read. A damaged block is built again from the log by `Repair`.

Every queue has at least one file, and the number of descriptors of a process is limited. So a queue looks its file up
in `OpenFiles` each time, and the least recently used one is closed to make room.
"""

import logging
import resource
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from ariane.errors import StoreCorrupt, StoreError, StoreFull
from ariane.store.blocking_io import IoSteps, UncachedBytes, are_cached, fetch_entries
from ariane.store.consume_queue.block_checksums import BlockChecksums
from ariane.store.consume_queue.entry import ENTRY_BYTES, FILLER
from ariane.store.disk import Disk, File, PendingSync
from ariane.store.layout import offset_name, offset_of

log = logging.getLogger(__name__)

OPEN_FILES_MAX = 512
"""Half of the default limit of 1,024 descriptors; connections need the others."""

_OPEN_FILES_TARGET = 16_384  # reopening a queue's file costs ten times as much as the write to it


def affordable_open_files() -> int:
    """Half of the process's descriptor limit, after raising its soft limit; at most what is useful."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * _OPEN_FILES_TARGET:
        soft = 2 * _OPEN_FILES_TARGET if hard == resource.RLIM_INFINITY else min(2 * _OPEN_FILES_TARGET, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(OPEN_FILES_MAX, min(_OPEN_FILES_TARGET, soft // 2))


class OpenFiles:
    """LRU cache of open files, for one thread. Paths are str: making and hashing a Path costs more than the read."""

    def __init__(self, disk: Disk, limit: int = OPEN_FILES_MAX) -> None:
        assert limit > 0
        self._disk = disk
        self._limit = limit
        self._files: OrderedDict[str, File] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str) -> File:
        """The file, open for reading and writing; valid only until the next call, which may close it."""
        file = self._files.get(path)
        if file is None:
            self._make_room()
            file = self._files[path] = self._disk.open(Path(path), writable=True)
        elif len(self._files) >= self._limit:  # below the limit none is closed, and the order does not matter
            self._files.move_to_end(path)
        return file

    def create(self, path: str, size: int) -> File:
        """A new sparse file of zeros, open as by `get`."""
        self._make_room()
        file = self._files[path] = self._disk.create(Path(path), size, allocated=0)
        return file

    def remove(self, path: str) -> None:
        """Closes and unlinks the file; a missing file is ignored, since a removal may be repeated after a crash."""
        file = self._files.pop(path, None)
        if file is not None:
            file.close()
        with suppress(FileNotFoundError):
            self._disk.remove(Path(path))

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()

    def _make_room(self) -> None:
        while len(self._files) >= self._limit:
            self._files.popitem(last=False)[1].close()


_FILLERS = FILLER * 4096
_BLOCK_BYTES = 4096
_EMPTY = "a file is empty"

# Marker in a directory while all its files are removed: after a crash the removal is finished, instead of leaving a
# queue with gaps.
_REMOVING = "removing"


Repair = Callable[[int, bytes], bytes]
"""From the position and the damaged bytes of a block to the bytes that the log says. It may run in a thread."""


class QueueFiles:
    __slots__ = (
        "_disk", "_names", "_names_in_doubt", "_new_names", "_open_files", "_path", "_path_base", "_read_base",
        "_read_path", "_unsynced_from", "base", "checksums", "directory", "end", "problem", "repair", "segment_bytes",
        "unusable",
    )  # fmt: skip

    def __init__(
        self, disk: Disk, open_files: OpenFiles, directory: Path, segment_bytes: int, new_names: set[Path]
    ) -> None:
        """`new_names` collects the directories above this one that a new queue's name was added to, not yet synced."""
        assert segment_bytes % ENTRY_BYTES == 0
        self._new_names = new_names
        self._disk = disk
        self._open_files = open_files
        self._names: PendingSync | None = None  # the last change of a name in this directory
        self._names_in_doubt = False
        self._path_base, self._path = -1, ""  # of the file written last
        self._read_base, self._read_path = -1, ""  # of the file read last
        self._unsynced_from: int | None = None  # the first file with bytes that were not synced
        self.directory = str(directory)
        self.segment_bytes = segment_bytes
        self.base = self.end = 0
        self.checksums = BlockChecksums(segment_bytes)
        self.repair: Repair | None = None
        self.problem: str | None = None
        """Why files are missing or unusable; None when all is well."""
        self.unusable: list[int] = []
        """The files from the first on that cannot be used."""
        with self._os_errors_as(StoreError, "opened"):
            self._load(disk.names(directory))

    def __bool__(self) -> bool:
        """Whether there is a file."""
        return self.base < self.end

    def path(self, base: int) -> str:
        return f"{self.directory}/{offset_name(base)}"

    # --- opening ----------------------------------------------------------------------------------------------------

    def _load(self, names: list[str]) -> None:
        """Takes the files from the first on, up to one that is missing or has another size."""
        if _REMOVING in names:
            self._remove_all(names)
            return
        bases = sorted(base for name in names if (base := offset_of(name)) is not None)
        for number, base in enumerate(bases):
            problem = self._add_existing(base)
            if problem is not None:
                self.unusable = bases[number:]
                is_usual = problem == _EMPTY and len(self.unusable) == 1  # a crash kept its name and not its size
                self.problem = None if is_usual else problem
                return

    def _add_existing(self, base: int) -> str | None:
        """Adds an existing file; what is wrong with it, and then it is not added."""
        size = self._disk.size(Path(self.path(base)))
        if base % self.segment_bytes or (self and base != self.end):
            return f"{self.path(base)} does not follow the file before it"
        if size != self.segment_bytes:
            return _EMPTY if not size else f"{self.path(base)} has {size} bytes and not {self.segment_bytes}"
        self.base = self.base if self else base
        self.end = base + self.segment_bytes
        return None

    def remove_unusable(self) -> None:
        """Removes the files behind `end` that cannot be used: what they should hold is built again from the log."""
        with self._os_errors_as(StoreError, "removed"):
            for base in reversed(self.unusable):
                self._open_files.remove(self.path(base))
            if self.unusable:
                self._disk.sync_directory(Path(self.directory))
        self.unusable = []

    def restore(self, checksums: BlockChecksums, needed_from: int) -> int:
        """Takes over what the files must hold, and checks the last block; returns up to where they do hold it.

        Bytes before `needed_from` are not needed any more. What is behind the result has to be built again.
        """
        if self and self.base < checksums.begin:  # a removal that a crash has undone
            self._drop_first_until(min(checksums.begin, self.end))
        needed_from -= needed_from % self.segment_bytes
        if not self or self.base > needed_from:
            self.problem = self.problem or f"{self.path(needed_from)} is missing"
            return checksums.begin
        checksums.drop_before(self.base)
        self.checksums = checksums
        if checksums.begin == checksums.end:
            return checksums.end
        last = checksums.block_begin(checksums.end - 1)
        if self.end < checksums.end:
            self.problem = self.problem or f"{self.path(self.end)} is missing"
            return self.end
        if not checksums.is_sound(last, self._read_unchecked(last, checksums.end - last)):
            self.problem = f"{self.path(last - last % self.segment_bytes)} is damaged in its last block"
            return last
        return checksums.end

    def _drop_first_until(self, position: int) -> None:
        while self and self.base + self.segment_bytes <= position:
            self._remove(self.base)
            self.base += self.segment_bytes

    def checksum_existing(self, end: int) -> None:
        """Computes the checksums of a queue without any, from the bytes that are there up to `end`."""
        self.checksums.restart(self.base)
        step = self.segment_bytes
        for position in range(self.base, end, step):
            self.checksums.add(position, self._read_unchecked(position, min(step, end - position)))

    # --- bytes ------------------------------------------------------------------------------------------------------

    def read(self, position: int, length: int) -> bytes:
        """Exactly `length` bytes, which the files must hold."""
        if position < self.checksums.unchecked_to:
            self._check(position, length)
        return self._read_unchecked(position, length)

    def _read_unchecked(self, position: int, length: int) -> bytes:
        at = position % self.segment_bytes
        if at + length <= self.segment_bytes:
            return self._read_within_file(position - at, at, length)
        return b"".join(self._read_within_file(*part) for part in self._split_by_file(position, length))

    def write(self, position: int, data: bytes | bytearray) -> None:
        """At or before the end, creating files as needed. StoreFull when it fails: then the call may be repeated."""
        at = position % self.segment_bytes
        base = position - at
        if at + len(data) <= self.segment_bytes and self.base <= base < self.end:
            self._write_within_file(base, at, data)
        else:
            self._write_across_files(position, data)
        self.checksums.add(position, data)

    def _write_within_file(self, base: int, at: int, data: bytes | bytearray) -> None:
        """The common case without loops: a busy store does this for thousands of queues every second."""
        path = self._path_to_write(base)
        self._note_unsynced(base)
        try:
            self._open_files.get(path).write(data, at)
        except OSError as error:
            raise StoreFull(f"{path} cannot be written: {error.strerror}") from error

    def _path_to_write(self, base: int) -> str:
        if base != self._path_base:
            self._path_base, self._path = base, self.path(base)
        return self._path

    def _write_across_files(self, position: int, data: bytes | bytearray) -> None:
        done = 0
        with self._os_errors_as(StoreFull, "written"):
            for base, at, length in self._split_by_file(position, len(data)):
                file = self._file(base, at)
                self._note_unsynced(base)
                file.write(data[done : done + length], at)
                done += length

    def cut(self, position: int) -> bool:
        """Removes everything from `position` on, but never the first file: its name holds the offset. Whether there was
        something."""
        self.checksums.cut(position, self.read)
        files_end = self.end
        self.drop_from(position)
        return self.zero_from(position) or self.end < files_end

    def zero_from(self, position: int) -> bool:
        """Zeroes the rest of the file from `position` on, so that no stale entry reappears behind new ones."""
        if not self.base <= position < self.end:
            return False
        at = position % self.segment_bytes
        with self._os_errors_as(StoreFull, "written"):
            is_changed = _zero_from(self._open_files.get(self.path(position - at)), at)
            if is_changed:
                self._note_unsynced(position - at)
            return is_changed

    def _split_by_file(self, position: int, length: int) -> Iterator[tuple[int, int, int]]:
        """Splits a range: base, position in the file and length for each file that it touches."""
        end = position + length
        while position < end:
            at = position % self.segment_bytes
            step = min(end - position, self.segment_bytes - at)
            yield position - at, at, step
            position += step

    def read_cached(self, position: int, length: int) -> bytes | None:
        """As `read`, if it is in one file and in the page cache; else None. Errors are left for `read` to raise."""
        at = position % self.segment_bytes
        if at + length > self.segment_bytes:
            return None
        if position < self.checksums.unchecked_to and self.checksums.unchecked(position, length):
            return None
        with suppress(OSError):
            return self._open_files.get(self._path_to_read(position - at)).read_cached(length, at)
        return None

    def _path_to_read(self, base: int) -> str:
        if base != self._read_base:  # building the path costs as much as the read itself
            self._read_base, self._read_path = base, self.path(base)
        return self._read_path

    def _read_within_file(self, base: int, at: int, length: int) -> bytes:
        path = self._path_to_read(base)
        try:
            data = self._open_files.get(path).read(length, at)
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from error
        if len(data) != length:
            raise StoreCorrupt(f"{path} ends before byte {at + length}: it was truncated while in use")
        return data

    def warm(self, position: int, length: int) -> IoSteps[None]:
        """Caches and checks what `read` needs. Errors are left for `read` to raise."""
        for begin in self.checksums.unchecked(position, length):
            yield partial(self._check_block_quietly, begin)
        for base, at, step in self._split_by_file(position, length):
            path = self._path_to_read(base)
            if not self._is_cached(path, at, step):
                yield partial(fetch_entries, self._disk, path, at, step)

    # --- checks -----------------------------------------------------------------------------------------------------

    def _check(self, position: int, length: int) -> None:
        for begin in self.checksums.unchecked(position, length):
            self._check_block(begin)

    def _check_block_quietly(self, begin: int) -> None:
        with suppress(OSError, StoreError):
            self._check_block(begin)

    def _check_block(self, begin: int) -> None:
        """Reads a block and compares its checksum; if it is damaged, writes it again as the log says.

        A thread may do this while entries are added behind the block, so it opens the file itself.
        """
        checksums, at = self.checksums, begin % self.segment_bytes
        path = Path(self.path(begin - at))
        file = self._disk.open(path, writable=True)
        try:
            length = checksums.block_end(begin) - begin
            data = file.read(length, at)
            if checksums.is_sound(begin, data) or self.repair is None:
                return
            data = self.repair(begin, data.ljust(length, b"\0"))
            file.write(data, at)
            file.sync()
        finally:
            file.close()
        checksums.repaired(begin, data)

    def _is_cached(self, path: str, at: int, length: int) -> bool:
        with suppress(OSError):
            return are_cached(UncachedBytes(self._open_files.get(path), at, length))
        return True

    def _file(self, base: int, at: int) -> File:
        if self.base <= base < self.end:
            return self._open_files.get(self.path(base))
        return self._create(base) if self else self._create_first(base, at)

    # --- names ------------------------------------------------------------------------------------------------------

    def _create_first(self, base: int, at: int) -> File:
        """For a queue that begins at `at` in its first file; the file must not stay without its fillers."""
        self._new_names.update(self._disk.make_directory(Path(self.directory), synced=False))
        self.base = self.end = base
        file = self._create(base)
        try:
            for start in range(0, at, len(_FILLERS)):
                file.write(_FILLERS[: at - start], start)
        except OSError:
            self._drop_last_until(base)
            raise
        self.checksums.restart(base)
        if at:
            self.checksums.add(base, FILLER * (at // ENTRY_BYTES))
        return file

    def _create(self, base: int) -> File:
        assert base == self.end, "files follow each other"
        self._before_name_change()
        file = self._open_files.create(self.path(base), self.segment_bytes)
        self._after_name_change()
        self.end = base + self.segment_bytes
        return file

    def create_at(self, position: int) -> None:
        """The first file of a queue without entries, whose next one is at `position`."""
        at = position % self.segment_bytes
        with self._os_errors_as(StoreFull, "written"):
            self._create_first(position - at, at)
            self._note_unsynced(position - at)

    def drop_before(self, position: int) -> IoSteps[int]:
        """Removes the files that end at or before `position`, but never the last one; returns their number.

        A file may be added at the end while a thread syncs the names: whichever of the two changes a crash undoes,
        there is no gap.
        """
        count, is_synced = 0, False
        with self._os_errors_as(StoreError, "removed"):
            while self.base + self.segment_bytes <= min(position, self.end - 1):
                if self._names_are_in_doubt and not is_synced:
                    yield PendingSync(self._disk, self.directory, is_directory=True).sync
                    is_synced = True
                    continue  # the topic may have been deleted meanwhile
                self._open_files.remove(self.path(self.base))
                self._after_name_change()
                self.base += self.segment_bytes
                self.checksums.drop_before(self.base)
                count, is_synced = count + 1, False
        return count

    def drop_from(self, position: int) -> None:
        """Removes the files that begin at or after `position`, but never the first one: its name holds the offset."""
        with self._os_errors_as(StoreError, "removed"):
            self._drop_last_until(max(position, self.base + 1))

    def _drop_last_until(self, position: int) -> None:
        while self and self.end - self.segment_bytes >= position:
            self._remove(self.end - self.segment_bytes)
            self.end -= self.segment_bytes

    def _remove(self, base: int) -> None:
        self._before_name_change()
        self._open_files.remove(self.path(base))
        self._after_name_change()

    def destroy(self) -> None:
        """Removes every file, and the directory unless something else is in it."""
        directory = Path(self.directory)
        with self._os_errors_as(StoreError, "removed"):
            if self:
                with suppress(OSError):  # on a full disk, remove the files without the marker
                    self._disk.create(directory / _REMOVING, 0, allocated=0).close()
                    self._disk.sync_directory(directory)
                self._remove_all(self._disk.names(directory))
        self.base = self.end = 0
        self.checksums.restart(0)
        self._names = self._unsynced_from = None
        with suppress(OSError):
            self._disk.remove_directory(directory)

    def _remove_all(self, names: list[str]) -> None:
        for base in (base for name in names if (base := offset_of(name)) is not None):
            self._open_files.remove(self.path(base))
        self._disk.sync_directory(Path(self.directory))
        self._open_files.remove(f"{self.directory}/{_REMOVING}")

    # --- durability -------------------------------------------------------------------------------------------------

    def take_unsynced(self) -> list[PendingSync]:
        """What to sync so that everything up to now is durable; the next call lists only later changes."""
        start, self._unsynced_from = self._unsynced_from, None
        bases = () if start is None else range(max(start, self.base), self.end, self.segment_bytes)
        unsynced = [PendingSync(self._disk, self._path_to_write(base)) for base in bases]
        if unsynced and self._names_in_doubt:
            self._after_name_change()
        if self._names is not None and not self._names.is_synced:
            unsynced.append(self._names)
        return unsynced

    def mark_unsynced_from(self, position: int | None) -> None:
        """What a killed process wrote may be in the page cache only: bytes from `position` on, and its last name.

        The bytes count as unsynced. The name is synced with the next bytes or before the next name, whichever is first:
        in a store with many queues most of them get neither for a long time.
        """
        self._names_in_doubt = True
        if position is not None:
            self._note_unsynced(position - position % self.segment_bytes)

    def _note_unsynced(self, base: int) -> None:
        if self._unsynced_from is None or base < self._unsynced_from:
            self._unsynced_from = base

    @property
    def _names_are_in_doubt(self) -> bool:
        return self._names_in_doubt or (self._names is not None and not self._names.is_synced)

    def _before_name_change(self) -> None:
        if self._names_are_in_doubt:
            self._disk.sync_directory(Path(self.directory))

    def _after_name_change(self) -> None:
        self._names = PendingSync(self._disk, self.directory, is_directory=True)
        self._names_in_doubt = False

    @contextmanager
    def _os_errors_as(self, kind: type[StoreError], what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise kind(f"{self.directory} cannot be {what}: {error.strerror}") from error


def _zero_from(file: File, position: int) -> bool:
    """Whether anything had to be zeroed. Block by block: reading into a hole would fill the page cache with zeros."""
    changed = False
    while (start := file.next_data(position)) is not None:
        position = min(start - start % _BLOCK_BYTES + _BLOCK_BYTES, file.size)
        if file.read(position - start, start).strip(b"\0"):
            file.write(bytes(position - start), start)
            changed = True
    return changed
