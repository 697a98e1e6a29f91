"""Whether a broker runs on a store, asked without taking its lock and without touching the file."""

import fcntl
import os
import struct
from pathlib import Path

_FLOCK = struct.Struct("@hhqqi")  # type, whence, start, length, process: Linux's struct flock


def lock_holder(path: Path) -> int | None:
    """The process that holds the lock, None when nobody does. A lock of our own process does not count."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # no broker has ever run here, or it is somebody else's copy
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    except OSError:  # a file system without locks
        return None
    finally:
        os.close(descriptor)
    return process if kind != fcntl.F_UNLCK else None
