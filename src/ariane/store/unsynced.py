"""What was written and may still be lost with the machine's power: a job for a thread."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ariane.store.disk import Disk, WholeFileSystem

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Unsynced:
    """A file, or the names in a directory. The thread opens a descriptor of its own, since the queue's may be closed
    at any time to make room for another; syncing any descriptor of a file syncs the file."""

    disk: Disk
    path: str | Path
    """Text where there may be thousands: the loop lists them, and the thread makes a Path of each."""
    is_directory: bool = False
    is_synced: bool = False
    """Set by the thread, read by the loop."""

    def sync(self) -> None:
        """What was removed meanwhile needs no sync. OSError if the disk fails."""
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


def sync_together(file_system: WholeFileSystem, unsynced: Sequence[Unsynced], *, trust: bool = True) -> None:
    """Syncs many by one call. One by one when that fails, or is not to be trusted: most of them are clean by then.

    OSError if one of them was lost. That something else on the file system was is no concern of ours.
    """
    try:
        file_system.sync()
    except OSError as error:
        log.warning("the file system lost something: files are synced one by one", extra={"error": str(error)})
        trust = False
    for one in unsynced:
        if trust:
            one.is_synced = True
        else:
            one.sync()
