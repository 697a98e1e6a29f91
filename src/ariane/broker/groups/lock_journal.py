"""The journal of queue locks: a restarted broker knows who holds which queue.

A member trusts its lock for 30 s without asking. If a restart forgot the locks, another member could get a queue while
the first still works on it. So each change of a holder is written, without a sync: the page cache outlives the process.
A renewal changes no holder and writes nothing; at a start, the life of every lock begins anew.

    config/queueLocks.journal    queue locks                                              or `incomplete`
                                 1c2f0a9b ["billing","10.0.0.7@4711","orders","broker-a",3]    locked by that client
                                 5d0331e2 ["billing",null,"orders","broker-a",3]               free

Each line begins with its checksum, as in other journals (store/config/journal.py). The file is allocated as a whole;
when it is full, a new one with the current locks replaces it. A clean stop syncs it. It says nothing after a crash of
the machine, if it is damaged, if it is not there although the store was used, or if a change could not be written (then
its first line says `incomplete`): in these cases no lock is granted for the life of a lock (`QueueLocks`).
"""

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ariane.model.route import MessageQueue
from ariane.store.config.journal import checked_line, line_with_checksum
from ariane.store.disk import Disk, File, read_all

log = logging.getLogger(__name__)

LockChange = tuple[str, MessageQueue, str | None]
"""Group, queue, and the client that holds it from now on; None if it is free."""

_COMPLETE = b"queue locks\n"
_INCOMPLETE = b"incomplete \n"
_FILE_BYTES = 64 * 1024
_READ_BYTES_MAX = 256 * 1024 * 1024


class LockJournal:
    """Use on the event loop only; each write is one system call. Call `replay` and then `begin` before the first."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._file: File | None = None
        self._end = 0

    def replay(self) -> list[LockChange] | None:
        """All changes, oldest first; None if some may be missing."""
        data = read_all(self._disk, self._path, _READ_BYTES_MAX)
        if data is None or not data.startswith(_COMPLETE):
            return None
        *lines, rest = data[len(_COMPLETE) :].rstrip(b"\0").split(b"\n")
        changes = [_decode(line) for line in (*lines, *([rest] if rest else ()))]
        complete = [change for change in changes if change is not None]
        if len(complete) < len(changes):
            log.warning("the journal of queue locks is damaged", extra={"file": str(self._path)})
            return None
        return complete

    def begin(self, held: Iterable[LockChange]) -> None:
        """Replaces the file by one with the current locks. OSError if that is not possible."""
        data = _COMPLETE + b"".join(_encode(held))
        beside = self._path.with_name(self._path.name + ".tmp")
        if self._disk.size(beside) is not None:
            self._disk.remove(beside)
        size = max(_FILE_BYTES, 2 * len(data))
        file = self._disk.create(beside, size, allocated=size)
        try:
            file.write(data, 0)
            self._disk.rename(beside, self._path)
        except OSError:
            file.close()
            raise
        self._close_file()
        self._file, self._end = file, len(data)

    def append(self, changes: Sequence[LockChange], held: Iterable[LockChange]) -> None:
        """Writes the changes; `held` are all locks after them, for a new file when this one is full."""
        data = b"".join(_encode(changes))
        try:
            if self._file is None or self._end + len(data) >= self._file.size:
                self.begin(held)
            else:
                self._file.write(data, self._end)
                self._end += len(data)
        except OSError as error:
            log.warning(
                "queue locks not written: after a restart none is granted for a minute",
                extra={"file": str(self._path), "reason": error.strerror},
            )
            self._invalidate()

    def close(self) -> None:
        """At a clean stop. Blocks for one or two syncs."""
        if self._file is None:
            return
        try:
            self._file.sync()
            self._disk.sync_directory(self._path.parent)
        except OSError as error:
            log.warning("queue locks not synced", extra={"file": str(self._path), "reason": error.strerror})
            self._invalidate()
        self._close_file()

    def _invalidate(self) -> None:
        """The file is kept without some changes: it must not be read. Its first block is allocated."""
        self._close_file()
        try:
            if self._disk.size(self._path) is not None:
                file = self._disk.open(self._path, writable=True)
                try:
                    file.write(_INCOMPLETE, 0)
                finally:
                    file.close()
        except OSError as error:
            log.error(  # noqa: TRY400 - the reason says it all
                "queue locks cannot be marked as incomplete: remove the file before the next start",
                extra={"file": str(self._path), "reason": error.strerror},
            )

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _encode(changes: Iterable[LockChange]) -> Iterator[bytes]:
    for group, queue, client_id in changes:
        fields = [group, client_id, queue.topic, queue.broker_name, queue.queue_id]
        yield line_with_checksum(json.dumps(fields, separators=(",", ":")))


def _decode(raw: bytes) -> LockChange | None:
    line = checked_line(raw)
    if not line:
        return None
    group, client_id, topic, broker_name, queue_id = json.loads(line)
    return group, MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id), client_id


def is_damaged(data: bytes | None) -> bool:
    """Whether the file has a line that is not intact, for `ariane store verify`; None if there is no file."""
    if data is None or data.startswith(_INCOMPLETE):
        return False
    *lines, rest = data.rstrip(b"\0").split(b"\n")
    if not lines or lines[0] + b"\n" != _COMPLETE:
        return True
    return any(_decode(line) is None for line in (*lines[1:], *([rest] if rest else ())))
