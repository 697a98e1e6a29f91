"""The open files of all consume queues: a few at a time, however many queues there are.

Every queue has at least one file, and a process may only have so many descriptors. So a queue names its file each time
it needs it, and whichever was not named for longest is closed to make room.
"""

import resource
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from ariane.store.disk import Disk, File

OPEN_FILES_MAX = 512
"""Half of the 1,024 descriptors that a process has unless told otherwise; connections need the others."""

_WANTED = 16_384  # opening a queue's file again costs ten times the write that it is opened for


def affordable_open_files() -> int:
    """Half of what the process may have open, after raising its own soft limit; at most what helps."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * _WANTED:
        soft = 2 * _WANTED if hard == resource.RLIM_INFINITY else min(2 * _WANTED, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(OPEN_FILES_MAX, min(_WANTED, soft // 2))


class OpenFiles:
    """For one thread. Paths are strings, because making and hashing a Path costs more than the read it is made for."""

    def __init__(self, disk: Disk, limit: int = OPEN_FILES_MAX) -> None:
        assert limit > 0
        self._disk = disk
        self._limit = limit
        self._files: OrderedDict[str, File] = OrderedDict()  # used longest ago first

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str) -> File:
        """The file, open for reading and writing; only until the next call here, which may close it."""
        file = self._files.get(path)
        if file is None:
            self._make_room()
            file = self._files[path] = self._disk.open(Path(path), writable=True)
        elif len(self._files) >= self._limit:  # before that none is closed, and who was last does not matter
            self._files.move_to_end(path)
        return file

    def create(self, path: str, size: int) -> File:
        """A new sparse file of zeros, open as by `get`."""
        self._make_room()
        file = self._files[path] = self._disk.create(Path(path), size, allocated=0)
        return file

    def remove(self, path: str) -> None:
        """Closes and unlinks the file. That it is gone already is no error: a removal may be repeated after a crash."""
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
