"""A new directory in the place of an old one, in one step: at no time is there none, whenever the process is killed.

Linux can exchange two names. Two renames would leave a moment without queues, and a broker that starts then believes
its checkpoint and gives no message.
"""

import ctypes
import errno
import os
from pathlib import Path

from ariane.errors import StoreError
from ariane.store.disk import RealDisk

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def put_in_place(new: Path, place: Path) -> bool:
    """Whether there was an old one, which then has the name of the new one."""
    if not place.exists():
        new.rename(place)
        RealDisk().sync_directory(place.parent)
        return False
    _exchange(new, place)
    RealDisk().sync_directory(place.parent)
    return True


def _exchange(one: Path, other: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        raise _cannot(one, errno.ENOSYS)
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        raise _cannot(one, ctypes.get_errno())


def _cannot(path: Path, number: int) -> StoreError:
    return StoreError(
        f"{path.parent}: this file system cannot exchange two directories in one step ({os.strerror(number)}). Rebuild "
        "with targetPath into a new directory, and move it while no broker runs"
    )
