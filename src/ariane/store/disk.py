"""File system abstraction of the store, kept minimal so that tests can simulate power cuts.

How full the disk may get is decided in maintenance/disk_space.py.

`RealDisk` uses Linux. `SimulatedDisk` (tests/simulation/simulated_disk.py) distinguishes written from synced bytes and
lets a seed choose what survives a crash. Both follow these rules:

* A write is visible to every later read. It survives a crash of the process. It survives a crash of the machine only
  after `sync` of that file returned, and a new name only after `sync_directory` of its directory did.
* Nothing is written through a mapping but the slots of an index, whose blocks are allocated first: a full disk is an
  OSError from a call, never a SIGBUS.
"""

import ctypes
import errno
import logging
import mmap
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

# --- syncfs: one call for all files of a file system ---

_KERNEL_MIN = (5, 8)
_TYPES = frozenset({"ext4", "xfs"})
_MOUNTS = Path("/proc/self/mountinfo")


class FileSystem:
    """An open file system whose files are all made durable by one syncfs(2), for thousands of changed queue files.

        fdatasync of each of 2,000 files      2.2 to 6.4 s, of which CPU 160 to 510 ms
        one syncfs for all of them            0.1 to 0.25 s, of which CPU 1 to 11 ms

    Each fdatasync ends in a journal commit, for which the whole machine waits, and then reacquires the GIL. What the
    result of syncfs means:

    * It reports a page of any file that could not be written since this descriptor was opened, so the descriptor is
      opened before the first write that it has to cover. True from Linux 5.8 on, for the types in `_TYPES`.
    * That page may belong to another program. If syncfs fails, sync the files one by one and rely on those results.
    * A file system that was shut down (its journal cannot be written) may report no error here. It stays shut down, so
      the next fdatasync of any file fails: that of the checkpoint, which is written and synced after this.

    `sync` is for a thread; another thread may close the object meanwhile, and then `sync` fails.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._device = os.fstat(descriptor).st_dev
        self._libc = ctypes.CDLL(None, use_errno=True)

    def holds(self, path: Path) -> bool:
        """Whether that file or directory, links resolved, is on this file system."""
        return path.stat().st_dev == self._device

    def sync(self) -> None:
        """Blocks without holding the GIL. OSError when any page was lost, of our files or of others."""
        if self._libc.syncfs(self._descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)


def open_file_system(path: Path) -> FileSystem | None:
    """The file system of a directory; None when its syncfs would not report every loss."""
    try:
        if kernel_version(os.uname().release) < _KERNEL_MIN or type_of(path) not in _TYPES:
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    return FileSystem(descriptor)


def kernel_version(release: str) -> tuple[int, int]:
    """Of "6.1.0-18-amd64" the first two numbers; zeros when there are none, or when it is not Linux."""
    match = re.match(r"(\d+)\.(\d+)", release)
    if match is None or os.uname().sysname != "Linux":
        return 0, 0
    return int(match[1]), int(match[2])


def type_of(path: Path, mounts: Path = _MOUNTS) -> str | None:
    """The kernel's name of the file system type that holds `path`; None when it is not among the mounts."""
    mount = _mount(path, mounts)
    return None if mount is None else mount[1]


def mount_of(path: Path, mounts: Path = _MOUNTS) -> str:
    """Where the file system that holds `path` is mounted, its device and type, for a message; else the path."""
    try:
        mount = _mount(path, mounts)
    except OSError:
        mount = None
    return f"of {path}" if mount is None else f"at {mount[0]} ({mount[2]}, {mount[1]})"


def _mount(path: Path, mounts: Path) -> tuple[str, str, str] | None:
    """Mount point, type and device."""
    device = path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.read_text().splitlines():
        mount, _, source = line.partition(" - ")
        if mount.split()[2] == number:
            kind, origin = source.split()[:2]
            return mount.split()[4], kind, origin
    return None


# --- files and directories ---


class File(Protocol):
    """An open file. All numbers are bytes."""

    @property
    def size(self) -> int: ...
    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Writes all of it or raises OSError; a partial write may then have happened."""

    def read(self, length: int, position: int) -> bytes:
        """At most `length` bytes; fewer at the end of the file."""

    def read_cached(self, length: int, position: int) -> bytes | None:
        """The same when it is in the page cache; None when it is not, or when the file ends before."""

    def next_data(self, position: int) -> int | None:
        """The first position from here on that may hold something other than zeros; None when there is none."""

    def view(self) -> memoryview:
        """The whole file, read-only, mapped once. It stays valid while referenced, even after `close`."""

    def window(self, begin: int, end: int) -> AbstractContextManager[memoryview]:
        """These bytes, mapped only during the context, so that they do not count as this process's memory."""
        ...

    def writable_view(self, length: int) -> memoryview:
        """The first `length` bytes, which must be allocated."""

    def sync(self) -> None:
        """Makes what was written durable. Blocks without holding the GIL: call it in a thread, unless it is known to be
        short (maintenance/sync_policy.py)."""

    def close(self) -> None: ...


class WholeFileSystem(Protocol):
    def holds(self, path: Path) -> bool:
        """Whether that file or directory is on it."""
        ...

    def sync(self) -> None:
        """Makes everything written to it durable. OSError when any page was lost, even one of another program."""

    def close(self) -> None: ...


class Disk(Protocol):
    def create(self, path: Path, size: int, *, allocated: int) -> File:
        """A new file of zeros. The blocks of its first `allocated` bytes are allocated now; the rest is sparse."""

    def open(self, path: Path, *, writable: bool) -> File: ...
    def names(self, directory: Path) -> list[str]:
        """Sorted; empty when there is no such directory."""

    def size(self, path: Path) -> int | None:
        """None when there is no such file."""

    def modified_ms(self, path: Path) -> int: ...
    def remove(self, path: Path) -> None: ...
    def remove_directory(self, path: Path) -> None:
        """Removes an empty directory."""

    def make_directory(self, path: Path, *, synced: bool = True) -> list[Path]:
        """With its parents, each new name synced. Returns the directories that got a name, to be synced later if not
        `synced`."""

    def rename(self, source: Path, target: Path) -> None: ...
    def sync_directory(self, path: Path) -> None: ...
    def file_system(self, path: Path) -> WholeFileSystem | None:
        """The file system of a directory, if one call can sync all of it; see `FileSystem` for when that holds."""

    def used_ratio(self, path: Path) -> float:
        """Used share of the file system that holds `path`, 0 to 1."""


class RealFile:
    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._size = size
        self._view: memoryview | None = None

    @property
    def size(self) -> int:
        return self._size

    @property
    def descriptor(self) -> int:
        return self._descriptor

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        written = os.pwrite(self._descriptor, data, position)
        if written != len(data):
            self._write_rest(memoryview(data), written, position)

    def _write_rest(self, data: memoryview, written: int, position: int) -> None:
        while written < len(data):
            step = os.pwrite(self._descriptor, data[written:], position + written)
            if not step:
                raise OSError(errno.ENOSPC, "no byte was written")
            written += step

    def read(self, length: int, position: int) -> bytes:
        return os.pread(self._descriptor, length, position)

    def read_cached(self, length: int, position: int) -> bytes | None:
        """If the kernel cannot tell, the bytes count as cached."""
        buffer = bytearray(length)
        try:
            count = os.preadv(self._descriptor, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError:  # this file system does not support RWF_NOWAIT
            buffer = bytearray(self.read(length, position))
            count = len(buffer)
        return bytes(buffer) if count == length else None

    def next_data(self, position: int) -> int | None:
        # Otherwise a read of that data would read ahead into the hole, whose pages would then count as data.
        os.posix_fadvise(self._descriptor, position, 0, os.POSIX_FADV_RANDOM)
        try:
            return os.lseek(self._descriptor, position, os.SEEK_DATA)
        except OSError as error:
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_NORMAL)
            if error.errno == errno.ENXIO:  # only a hole is left
                return None
            return position if position < self._size else None  # this file system does not support holes

    def view(self) -> memoryview:
        if self._view is None:
            self._check_open()
            self._view = memoryview(mmap.mmap(self._descriptor, self._size, prot=mmap.PROT_READ))
        return self._view

    @contextmanager
    def window(self, begin: int, end: int) -> Iterator[memoryview]:
        self._check_open()
        start = begin - begin % mmap.ALLOCATIONGRANULARITY
        with (
            mmap.mmap(self._descriptor, end - start, prot=mmap.PROT_READ, offset=start) as mapped,
            memoryview(mapped) as whole,
            whole[begin - start :] as view,
        ):
            yield view

    def writable_view(self, length: int) -> memoryview:
        self._check_open()
        return memoryview(mmap.mmap(self._descriptor, length))

    def sync(self) -> None:
        self._check_open()
        os.fdatasync(self._descriptor)

    def _check_open(self) -> None:
        """For calls that accept -1: mmap would map anonymous memory."""
        if self._descriptor < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def close(self) -> None:
        """Drops this reference to the mapping; readers may still hold it, and the last of them unmaps it."""
        self._view = None
        descriptor, self._descriptor = self._descriptor, -1  # a reused number would be another file's
        os.close(descriptor)


class RealDisk:
    def create(self, path: Path, size: int, *, allocated: int) -> RealFile:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if allocated:
                os.posix_fallocate(descriptor, 0, allocated)
            os.ftruncate(descriptor, size)
        except OSError:
            os.close(descriptor)
            path.unlink()
            raise
        return RealFile(descriptor, size)

    def open(self, path: Path, *, writable: bool) -> RealFile:
        descriptor = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        return RealFile(descriptor, os.fstat(descriptor).st_size)

    def names(self, directory: Path) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, path: Path) -> int | None:
        try:
            return path.stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def remove(self, path: Path) -> None:
        path.unlink()

    def remove_directory(self, path: Path) -> None:
        path.rmdir()

    def make_directory(self, path: Path, *, synced: bool = True) -> list[Path]:
        missing = []
        while not path.exists():
            missing.append(path)
            path = path.parent
        for new in reversed(missing):
            new.mkdir(mode=0o700, exist_ok=True)
            if synced:
                self.sync_directory(new.parent)
        return [new.parent for new in missing]

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def file_system(self, path: Path) -> WholeFileSystem | None:
        return open_file_system(path)

    def used_ratio(self, path: Path) -> float:
        usage = shutil.disk_usage(path)
        return usage.used / usage.total


def read_all(disk: Disk, path: Path, length_max: int) -> bytes | None:
    """The content of a small file, None when there is none; at most `length_max` bytes of it."""
    if disk.size(path) is None:
        return None
    file = disk.open(path, writable=False)
    try:
        return file.read(length_max, 0)
    finally:
        file.close()


def replace_all(disk: Disk, path: Path, content: bytes) -> None:
    """Replaces a small file atomically: after any crash it has either the old or the new content.

    If it fails, for want of space, the old content stays and nothing is left beside it.
    """
    beside = path.with_name(path.name + ".tmp")
    if disk.size(beside) is not None:
        disk.remove(beside)
    file = disk.create(beside, len(content), allocated=0)
    try:
        try:
            file.write(content, 0)
            file.sync()
        finally:
            file.close()
        disk.rename(beside, path)
    except OSError:
        with suppress(OSError):
            disk.remove(beside)
        raise
    disk.sync_directory(path.parent)


# --- syncs to be done by a thread ---

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class PendingSync:
    """A file, or the names of a directory, that a power cut may still undo; `sync` is for a thread.

    The thread opens its own descriptor, since the queue's may be closed at any time to make room for another; syncing
    any descriptor of a file syncs the file.
    """

    disk: Disk
    path: str | Path
    """A str where there may be thousands: the event loop lists them, and the thread makes a Path of each."""
    is_directory: bool = False
    is_synced: bool = False
    """Set by the thread, read by the event loop."""

    def sync(self) -> None:
        """A file removed meanwhile needs no sync. OSError if the disk fails."""
        with suppress(FileNotFoundError):
            if self.is_directory:
                self.disk.sync_directory(Path(self.path))
            else:
                self._sync_file()
        self.is_synced = True

    def _sync_file(self) -> None:
        file = self.disk.open(Path(self.path), writable=True)
        try:
            file.sync()
        finally:
            file.close()


def sync_together(file_system: WholeFileSystem, unsynced: Sequence[PendingSync], *, trust: bool = True) -> None:
    """Syncs many by one syncfs. One by one if that fails, or without `trust`: most of them are clean by then.

    OSError if one of them was lost; the loss of other files on the file system is ignored.
    """
    try:
        file_system.sync()
    except OSError as error:
        log.warning("syncfs reported a write error: files are synced one by one", extra={"error": str(error)})
        trust = False
    for pending in unsynced:
        if trust:
            pending.is_synced = True
        else:
            pending.sync()
