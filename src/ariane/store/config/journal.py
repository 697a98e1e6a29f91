"""Journals: lines with checksums that outlive the process, for changes since a table was last saved.

    consumerOffset.journal.7    5c1e0f33 boot 3f1c...            id of the machine's boot in which it was written,
                                5c1e0f33 boot 3f1c...            three times: without it no line can be used
                                5c1e0f33 boot 3f1c...
                                0b7d21aa orders@billing 0 126    checksum of the line, and the line

A line is written without a sync: the page cache outlives the process. After a crash of the machine it is unknown which
pages survived, so journals of an earlier boot are not read. All blocks of a file are allocated when it is made: a full
disk refuses a new file, never a line in a file that is there. Releases before this one wrote lines without checksums.

Each snapshot of the table begins a new file; once the snapshot is saved, the older files are deleted. Without space for
a new file the last one is continued, and kept. A process that runs always has a file, even without a line: so a start
after a kill finds one, or somebody has removed it.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ariane.errors import StoreFull
from ariane.store.disk import Disk, File, read_all
from ariane.wire.hashes import running_crc32

log = logging.getLogger(__name__)

JOURNAL_BYTES = 1024 * 1024
_BOOT = "boot "
_HEAD_LINES = 3  # a damaged end of line takes two lines
_CHECKSUM_DIGITS = 8


class JournalLines(NamedTuple):
    boot: str | None
    """None if none of the lines that name the boot is intact."""
    lines: list[str]
    damaged: list[int]
    """Positions of lines that are not intact."""


class Journal:
    """Use on the event loop only; a line is one system call."""

    def __init__(self, disk: Disk, directory: Path, name: str, boot: str) -> None:
        """`boot` is empty when it is not known: then any journal may be of an earlier boot, and none is read."""
        self._disk = disk
        self._directory = directory
        self._name = name
        self._boot = boot
        self._number = max(self._numbers(), default=0) + 1
        self._file: File | None = None
        self._end = 0
        self._is_rotation_due = False
        self._is_failing = False

    def replay(self, *, was_killed: bool = False) -> Iterator[str]:
        """The lines of this boot, oldest first. A damaged one is reported and left out, and so is a missing file."""
        numbers = self._numbers() if self._boot else []
        if was_killed and self._boot and not numbers:
            log.error(
                "a journal is missing: changes since the last save are lost, and messages may be consumed again",
                extra={"file": str(self._directory / f"{self._name}.*")},
            )
        for number in numbers:
            path = self._path(number)
            data = read_all(self._disk, path, JOURNAL_BYTES) or b""
            content = read_journal(data)
            if content.boot == self._boot or content.boot is None:
                if len(data) < JOURNAL_BYTES and not data.startswith(_BOOT.encode()):
                    log.error(
                        "a journal is truncated: changes since the last save may be lost, and messages may be consumed "
                        "again",
                        extra={"file": str(path), "bytes": len(data), "expected": JOURNAL_BYTES},
                    )
                for position in content.damaged:
                    log.error(
                        "a line of a journal is damaged and left out: a change since the last save is lost, and "
                        "messages may be consumed again",
                        extra={"file": str(path), "position": position},
                    )
            if content.boot == self._boot:
                yield from content.lines

    def begin(self, *, has_unsaved: bool) -> None:
        """Makes the file before its first line, for a start after a kill to find. Without space the first line does.

        Earlier files are deleted, unless they have lines that are not in the saved table.
        """
        if self._file is None:
            with suppress(OSError):
                self._create(self._number)
        if self._file is not None and not has_unsaved:
            self.delete_up_to(self._number - 1)

    def append(self, line: str) -> None:
        """StoreFull if it cannot be written: then the change would not survive a kill."""
        data = line_with_checksum(line)
        try:
            self._file_for(len(data)).write(data, self._end)
        except OSError as error:
            if not self._is_failing:
                fields = {"file": str(self._path(self._number)), "reason": error.strerror}
                log.warning("journal cannot be written, changes are refused", extra=fields)
            self._is_failing = True
            raise StoreFull(
                f"{self._path(self._number)} cannot be written ({error.strerror}): free disk space, then it works again"
            ) from error
        self._end += len(data)
        self._is_failing = False

    def rotate(self) -> int:
        """Begins a new file with the next line. All earlier lines are in files up to the returned number."""
        if self._file is None:
            self._number += 1
            return self._number - 1
        self._is_rotation_due = True
        return self._number

    def delete_up_to(self, number: int) -> None:
        """Deletes files whose lines are all in the saved table."""
        if self._file is not None and self._is_rotation_due and self._number <= number:
            try:
                self._create(self._number + 1)
            except OSError:
                self._is_rotation_due = False  # it is continued
        for old in self._numbers():
            if old <= number and (self._file is None or old != self._number):
                try:
                    self._disk.remove(self._path(old))
                except OSError as error:
                    log.warning("journal not removed", extra={"file": str(self._path(old)), "reason": error.strerror})

    def _file_for(self, length: int) -> File:
        has_room = self._file is not None and self._end + length <= JOURNAL_BYTES
        if self._file is not None and has_room and not self._is_rotation_due:
            return self._file
        if self._file is None:
            return self._create(self._number)
        try:
            return self._create(self._number + 1)
        except OSError:
            if not has_room:
                raise
            self._is_rotation_due = False  # it is continued, so it must not be deleted with the lines before
            return self._file

    def _create(self, number: int) -> File:
        self._disk.make_directory(self._directory)
        path = self._path(number)
        if self._disk.size(path) is not None:  # left by an attempt that had no space for its first line
            self._disk.remove(path)
        file = self._disk.create(path, JOURNAL_BYTES, allocated=JOURNAL_BYTES)
        head = line_with_checksum(f"{_BOOT}{self._boot}") * _HEAD_LINES
        try:
            file.write(head, 0)
        except OSError:
            file.close()
            raise
        self._close()
        self._file, self._number, self._end = file, number, len(head)
        return file

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._is_rotation_due = None, False

    def _path(self, number: int) -> Path:
        return self._directory / f"{self._name}.{number}"

    def _numbers(self) -> list[int]:
        return sorted(
            number for name in self._disk.names(self._directory) if (number := journal_number(name, self._name)) >= 0
        )


def is_journal(file_name: str) -> bool:
    name = file_name.rpartition(".")[0]
    return name.endswith(".journal") and journal_number(file_name, name) >= 0


def journal_number(file_name: str, name: str) -> int:
    """The number of a journal's file; -1 if it is something else."""
    prefix, _, suffix = file_name.rpartition(".")
    return int(suffix) if prefix == name and suffix.isascii() and suffix.isdigit() else -1


def read_journal(data: bytes) -> JournalLines:
    """The intact lines of one file, without those that name the boot."""
    written = data.rstrip(b"\0")
    if written.startswith(_BOOT.encode()):
        return _without_checksums(written)
    boot: str | None = None
    lines, damaged, position = list[str](), list[int](), 0
    for raw in written.split(b"\n"):
        line = checked_line(raw)
        if line is None and raw:
            damaged.append(position)
        elif line is not None and line.startswith(_BOOT):
            boot = line.removeprefix(_BOOT)
        elif line is not None:
            lines.append(line)
        position += len(raw) + 1
    return JournalLines(boot, lines, damaged)


def _without_checksums(written: bytes) -> JournalLines:
    """Of an earlier release. The last line is empty or incomplete."""
    boot, *lines = written.decode("utf-8", "replace").split("\n")
    return JournalLines(boot.removeprefix(_BOOT), lines[:-1], [])


def line_with_checksum(line: str) -> bytes:
    data = line.encode()
    return b"%08x %s\n" % (running_crc32(data), data)


def checked_line(raw: bytes) -> str | None:
    """The line without its checksum; None if it is not intact."""
    checksum, data = raw[:_CHECKSUM_DIGITS], raw[_CHECKSUM_DIGITS + 1 :]
    if raw[_CHECKSUM_DIGITS : _CHECKSUM_DIGITS + 1] != b" " or checksum != b"%08x" % running_crc32(data):
        return None
    return data.decode("utf-8", "replace")
