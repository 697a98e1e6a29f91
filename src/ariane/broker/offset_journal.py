"""Commits since the table of offsets was last saved, in files that a killed process leaves behind.

The table is saved every few seconds, as Apache does; what was committed in between would be consumed again after a
kill. So each commit is also appended here, without a sync: the page cache outlives the process.

    consumerOffset.journal.7    boot 3f1c...           the machine's boot in which it was written
                                orders@billing 0 126   topic@group, queue, offset
                                orders@billing -       the pair was deleted

A snapshot of the table begins a new file; once it is saved, the files before that go. After a crash of the machine its
journals are not read: which of their pages and names survived is unknown, and commits that come again cost only time.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

from ariane.store.checkpoint import boot_id
from ariane.store.disk import Disk, File, read_all

log = logging.getLogger(__name__)

_NAME = "consumerOffset.journal"
_DELETED = "-"
_FILE_BYTES = 1024 * 1024  # like every file of a store it never grows: zeros follow what is written


class OffsetJournal:
    """For the event loop; a write costs a system call."""

    def __init__(self, disk: Disk, directory: Path, boot: str | None = None) -> None:
        self._disk = disk
        self._directory = directory
        self._boot = boot_id() if boot is None else boot
        self._number = max(self._numbers(), default=0) + 1
        self._file: File | None = None
        self._end = 0
        self._is_failing = False

    def replay(self) -> Iterator[tuple[str, int | None, int]]:
        """Key, queue and offset of each commit, oldest first; queue None when the pair was deleted."""
        for number in self._numbers() if self._boot else ():  # where boots have no id, any may have been another
            data = read_all(self._disk, self._path(number), _FILE_BYTES) or b""
            lines = data.partition(b"\0")[0].decode("utf-8", "replace").split("\n")
            if lines[0] == f"boot {self._boot}":
                yield from _commits(lines[1:-1])  # the last is empty, or was cut short

    def note(self, key: str, queue_id: int, offset: int) -> None:
        self._append(f"{key} {queue_id} {offset}\n")

    def note_deleted(self, key: str) -> None:
        self._append(f"{key} {_DELETED}\n")

    def rotate(self) -> int:
        """Begins a new file. What was noted until now lies in files up to this number."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._number += 1
        return self._number - 1

    def drop_until(self, number: int) -> None:
        """The table is saved with everything that these files say."""
        for old in self._numbers():
            if old <= number:
                try:
                    self._disk.remove(self._path(old))
                except OSError as error:
                    log.warning("journal not removed", extra={"file": str(self._path(old)), "reason": error.strerror})

    def _append(self, line: str) -> None:
        data = line.encode()
        try:
            if self._end + len(data) > _FILE_BYTES:
                self.rotate()
            file = self._file or self._begin()
            file.write(data, self._end)
            self._end += len(data)
            self._is_failing = False
        except OSError as error:  # the table is saved all the same as soon as the disk takes it
            if not self._is_failing:
                log.warning("commits not noted", extra={"reason": error.strerror})
            self._is_failing = True

    def _begin(self) -> File:
        self._disk.make_directory(self._directory)
        file = self._disk.create(self._path(self._number), _FILE_BYTES, allocated=0)
        head = f"boot {self._boot}\n".encode()
        file.write(head, 0)
        self._file, self._end = file, len(head)
        return file

    def _path(self, number: int) -> Path:
        return self._directory / f"{_NAME}.{number}"

    def _numbers(self) -> list[int]:
        suffixes = (name.removeprefix(f"{_NAME}.") for name in self._disk.names(self._directory))
        return sorted(int(suffix) for suffix in suffixes if suffix.isascii() and suffix.isdigit())


def _commits(lines: list[str]) -> Iterator[tuple[str, int | None, int]]:
    for line in lines:
        key, *numbers = line.split(" ")
        if numbers == [_DELETED]:
            yield key, None, 0
            continue
        if len(numbers) != 2 or not all(number.isascii() and number.isdigit() for number in numbers):
            log.warning("journal of offsets ends early", extra={"line": line[:200]})
            return
        yield key, int(numbers[0]), int(numbers[1])
