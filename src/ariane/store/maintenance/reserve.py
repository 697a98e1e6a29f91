"""The reserve: a file of a few MiB that is given up when the file system is full, so that a start needs no space.

A broker that was killed without a free byte has to write before it can serve what it stored: the marker of a running
store, a checkpoint, tables, entries of queues. With the reserve given up there is room for these; messages are refused
until there is twice as much space again, and then the reserve is made again. (The next file of the log is made ready by
store/commit_log/log.py.)

    free space    below an eighth of the reserve          at twice the reserve
    reserve       given up, messages are refused    ──▶   made again, messages are accepted
"""

import logging
import os
from pathlib import Path

from ariane.errors import StoreFull
from ariane.store.disk import mount_of

log = logging.getLogger(__name__)

_SHARE_MAX = 64
"""Of the whole file system it takes at most one part of so many."""
_LOW_SHARE = 8


class Reserve:
    """For one thread at a time. Every method blocks for a system call or two."""

    def __init__(self, path: Path, size: int) -> None:
        usage = os.statvfs(path.parent)
        self._path = path
        self._size = min(size, usage.f_blocks * usage.f_frsize // _SHARE_MAX)

    def update(self) -> StoreFull | None:
        """Gives the reserve up or makes it, as the space demands. The error for those who write messages, if any."""
        if not self._size:
            return None
        free = _free_bytes(self._path.parent)
        if self._path.exists():
            if free >= self._size // _LOW_SHARE:
                return None
            self._path.unlink()
            where = mount_of(self._path.parent)
            log.critical(
                f"the file system {where} is full: the reserve is given up, and messages are refused until "
                f"{2 * self._size} bytes are free",
                extra={"free": free, "reserve": self._size},
            )
            return self._refusal(free)
        if free < 2 * self._size or not self._make():
            return self._refusal(free)
        return None

    def _make(self) -> bool:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, self._size)
        except OSError as error:
            self._path.unlink()
            log.warning("reserve not made", extra={"file": str(self._path), "reason": error.strerror})
            return False
        finally:
            os.close(descriptor)
        return True

    def _refusal(self, free: int) -> StoreFull:
        return StoreFull(
            f"the file system {mount_of(self._path.parent)} has {free} bytes free, {2 * self._size} are needed: free "
            "some space; writes resume by themselves"
        )


def _free_bytes(path: Path) -> int:
    usage = os.statvfs(path)
    return usage.f_bavail * usage.f_frsize
