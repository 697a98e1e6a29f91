"""A disk in memory whose power a test can cut. It keeps apart what was written and what a dead machine still holds.

    what                     readers see it     it survives a power cut
    bytes, by 4 KiB page     at once            after `sync` of the file
    size of a new file       at once            after `sync` of the file
    names                    at once            after `sync_directory` of their directory
    all of these             at once            after `sync` of the whole file system

`cut_power` lets a seed choose for all that was not synced: the old, the newest, for a page any version between. That is
harsher than Linux, which orders some of it, and kinder in one thing: no page is torn inside.

Every crash point of a scenario is found by counting: run it once, read `operations`, run it again with `crash_at(n)`
for each n up to that. PowerCut ends the run; `cut_power` and `crash_process` then give disks to recover from. Many can
be taken of one disk, at little cost: they share its pages.
"""

import errno
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ariane.clock import Clock
from ariane.testing.clock import FakeClock
from ariane.testing.disk_names import Directory, Names, os_error
from ariane.testing.disk_pages import PAGE_BYTES, Content, Luck


class PowerCut(BaseException):
    """The machine is off. Not an Exception, so that no handler takes it for a call that failed."""


class Operation(NamedTuple):
    """One line of a disk's journal."""

    kind: str
    path: Path
    position: int = 0
    length: int = 0


class SimulatedFile:
    def __init__(self, disk: "SimulatedDisk", path: Path, content: Content, *, writable: bool) -> None:
        self._disk = disk
        self._path = path
        self._open_content: Content | None = content
        self._size = content.size
        self._writable = writable

    @property
    def size(self) -> int:
        return self._size

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        if not self._writable:
            raise os_error(errno.EBADF)
        with self._disk._lock:
            self._disk._write(self._path, self._content(), data, position)

    def read(self, length: int, position: int) -> bytes:
        with self._disk._lock:
            return bytes(self._content().image[position : position + length])

    def next_data(self, position: int) -> int | None:
        with self._disk._lock:
            return self._content().next_data(position)

    def view(self) -> memoryview:
        with self._disk._lock:
            return memoryview(self._content().image).toreadonly()

    def writable_view(self, length: int) -> memoryview:
        if not self._writable:
            raise os_error(errno.EACCES)
        with self._disk._lock:
            return self._content().map_writable(length)

    @contextmanager
    def window(self, begin: int, end: int) -> Iterator[memoryview]:
        yield self.view()[begin:end]

    def read_cached(self, length: int, position: int) -> bytes | None:
        data = b"" if self._disk.is_cold else self.read(length, position)
        return data if len(data) == length else None

    def sync(self) -> None:
        with self._disk._lock:
            self._disk._sync(self._path, self._content())

    def close(self) -> None:
        self._open_content = None

    def _content(self) -> Content:
        if self._open_content is None:
            raise os_error(errno.EBADF)
        return self._open_content


class SimulatedFileSystem:
    """All of a disk. While its syncs fail, each file's does: nobody is spared."""

    def __init__(self, disk: "SimulatedDisk", path: Path) -> None:
        self._disk = disk
        self._path = path

    def holds(self, path: Path) -> bool:
        with self._disk._lock:
            return self._disk._names.get(path) is not None

    def sync(self) -> None:
        with self._disk._lock:
            self._disk._sync_all(self._path)

    def close(self) -> None:
        """It holds nothing."""


class SimulatedDisk:
    """What `ariane.store.disk.Disk` asks for. It begins empty: `/` and `.` are there, other directories are made."""

    def __init__(self, clock: Clock | None = None, *, space_left: int | None = None) -> None:
        self.space_left = space_left
        """Bytes that can still be taken, by pages; None for no limit. Set it to fill the disk, or to free some."""
        self.is_cold = False
        """Whether files tell that their bytes are not in memory."""
        self.journal: list[Operation] = []
        self._clock = clock if clock is not None else FakeClock()
        self._names = Names()
        self._write_error: OSError | None = None
        self._sync_error: OSError | None = None
        self._crash_at: int | None = None
        self._is_off = False
        self._lock = threading.Lock()  # a flush thread syncs while the loop writes

    def create(self, path: Path, size: int, *, allocated: int) -> SimulatedFile:
        with self._lock:
            self._step(Operation("create", path, 0, size))
            self._names.find(path.parent, Directory)
            if self._names.get(path) is not None:
                raise os_error(errno.EEXIST)
            content = Content(size, min(allocated, size), self._clock.now_ms())
            self._take(content.block_bytes())
            self._names.put(content, path, path.parent)
            return SimulatedFile(self, path, content, writable=True)

    def open(self, path: Path, *, writable: bool) -> SimulatedFile:
        return SimulatedFile(self, path, self._names.find(path, Content), writable=writable)

    def names(self, directory: Path) -> list[str]:
        with self._lock:
            return self._names.below(directory)

    def size(self, path: Path) -> int | None:
        node = self._names.get(path)
        return node.size if isinstance(node, Content) else None

    def modified_ms(self, path: Path) -> int:
        return self._names.find(path, Content).modified_ms

    def remove(self, path: Path) -> None:
        with self._lock:
            self._step(Operation("remove", path))
            content = self._names.find(path, Content)
            self._take(-content.block_bytes())
            self._names.put(content, None, path.parent)

    def remove_directory(self, path: Path) -> None:
        with self._lock:
            self._step(Operation("remove_directory", path))
            directory = self._names.find(path, Directory)
            if self._names.below(path):
                raise os_error(errno.ENOTEMPTY)
            self._names.put(directory, None, path.parent, path)

    def make_directory(self, path: Path, *, synced: bool = True) -> list[Path]:
        missing = []
        while self._names.get(path) is None:
            missing.append(path)
            path = path.parent
        for new in reversed(missing):
            with self._lock:
                self._step(Operation("make_directory", new))
                self._names.find(new.parent, Directory)
                self._names.put(Directory(), new, new.parent)
            if synced:
                self.sync_directory(new.parent)
        return [new.parent for new in missing]

    def rename(self, source: Path, target: Path) -> None:
        """Of files: a store renames no directory."""
        with self._lock:
            self._step(Operation("rename", source))
            content = self._names.find(source, Content)
            self._names.find(target.parent, Directory)
            if self._names.get(target) not in (None, content):
                self._take(-self._names.find(target, Content).block_bytes())
            self._names.put(content, target, source.parent, target.parent)

    def sync_directory(self, path: Path) -> None:
        with self._lock:
            self._step(Operation("sync_directory", path), self._sync_error)
            self._names.find(path, Directory)
            self._names.sync(path)

    def file_system(self, path: Path) -> SimulatedFileSystem | None:
        return SimulatedFileSystem(self, path)

    def used_ratio(self, path: Path) -> float:
        with self._lock:
            if self._names.get(path) is None:
                raise os_error(errno.ENOENT)
            used = self._names.block_bytes()
            return 0.0 if self.space_left is None else used / max(1, used + self.space_left)

    @property
    def operations(self) -> int:
        """How many writes, syncs and changes of names were asked for."""
        return len(self.journal)

    def crash_at(self, operation: int) -> None:
        """The machine goes off before this operation, counted from 1; of a write, the first page may be done."""
        self._crash_at = operation

    def fail_writes(self, error: OSError | None) -> None:
        """Every write raises this, until told None; of a write over several pages the first may be done."""
        self._write_error = error

    def fail_syncs(self, error: OSError | None) -> None:
        """Every sync raises this, until told None. What it should have written stays in doubt, as on Linux."""
        self._sync_error = error

    def flip_bit(self, path: Path, position: int, bit: int) -> None:
        """Decay of what is stored: neither readers nor restarts see the old value again."""
        with self._lock:
            self._names.find(path, Content).flip(position, 1 << bit)

    def crash_process(self) -> "SimulatedDisk":
        """What a new process finds after kill -9: every write, and no more of it durable than before."""
        with self._lock:
            found = SimulatedDisk(self._clock, space_left=self.space_left)
            found._names = self._names.after_process_crash()
            return found

    def cut_power(self, rng: random.Random) -> "SimulatedDisk":
        """What the machine finds when it is on again; the same for the same history and seed."""
        with self._lock:
            found = SimulatedDisk(self._clock)
            found._names = self._names.after_power_cut(Luck(rng), Luck(rng))
            if self.space_left is not None:
                found.space_left = max(0, self.space_left + self._names.block_bytes() - found._names.block_bytes())
            return found

    def _step(self, operation: Operation, error: OSError | None = None) -> None:
        self._check_power()
        if self._crash_at is not None and self.operations + 1 >= self._crash_at:
            self._is_off = True
            raise PowerCut(f"before operation {self._crash_at}: {operation}")
        self.journal.append(operation)
        if error is not None:
            raise OSError(error.errno, error.strerror)

    def _check_power(self) -> None:
        if self._is_off:
            raise PowerCut("the machine is off: go on with a disk from cut_power or crash_process")

    def _write(self, path: Path, content: Content, data: bytes | bytearray | memoryview, position: int) -> None:
        self._check_power()
        try:
            self._step(Operation("write", path, position, len(data)), self._write_error)
            self._take(content.sparse_bytes(position, len(data)))
        except (PowerCut, OSError):
            front = PAGE_BYTES - position % PAGE_BYTES  # Linux breaks a write off between pages
            if front < len(data) and not content.sparse_bytes(position, front):
                content.write(memoryview(data)[:front], position)
            raise
        content.write(data, position)
        content.modified_ms = self._clock.now_ms()

    def _sync(self, path: Path, content: Content) -> None:
        try:
            self._step(Operation("sync", path), self._sync_error)
        except OSError:
            content.fail_to_sync()
            raise
        content.sync()

    def _sync_all(self, path: Path) -> None:
        contents = self._names.contents()
        try:
            self._step(Operation("sync_file_system", path), self._sync_error)
        except OSError:
            for content in contents:
                content.fail_to_sync()
            raise
        for content in contents:
            content.sync()
        self._names.sync_all()

    def _take(self, space: int) -> None:
        if self.space_left is None:
            return
        if space > self.space_left:
            raise os_error(errno.ENOSPC)
        self.space_left -= space
