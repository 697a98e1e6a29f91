"""The lock file of a store: one process per store. Locked as Java does, so Apache's broker and ours exclude each other.

`lock_holder` asks which process runs on a store without taking the lock and without changing the file.
"""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ariane.errors import StoreInUse

_CONTENT = b"lock"
_held: set[tuple[int, int]] = set()
"""Files locked by this process: a POSIX lock does not exclude its own process."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    _check_not_held(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    status = os.fstat(descriptor)
    identity = (status.st_dev, status.st_ino)
    try:
        _take(descriptor, identity, path)
        try:
            os.pwrite(descriptor, _CONTENT, 0)
            yield
        finally:
            _held.discard(identity)
    finally:
        os.close(descriptor)  # this also releases the lock


def _take(descriptor: int, identity: tuple[int, int], path: Path) -> None:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError as error:
        raise _in_use(path) from error
    _held.add(identity)


def _check_not_held(path: Path) -> None:
    """Must run before the file is opened: closing any descriptor of it releases the lock that this process holds."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return
    if (status.st_dev, status.st_ino) in _held:
        raise _in_use(path)


def _in_use(path: Path) -> StoreInUse:
    return StoreInUse(
        f"{path.parent} is in use by another broker (its file `lock` is locked): stop that one, or choose another "
        "directory"
    )


_FLOCK = struct.Struct("@hhqqi")  # type, whence, start, length, process: Linux's struct flock


def lock_holder(path: Path) -> int | None:
    """The id of the process that holds the lock, None if there is none. A lock of this process does not count."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # no broker has ever run here, or the file is not readable for this user
        return None
    try:
        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, request))
    except OSError:  # a file system without locks
        return None
    finally:
        os.close(descriptor)
    return process if kind != fcntl.F_UNLCK else None
