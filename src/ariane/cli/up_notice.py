"""Where a running `ariane up` tells its address, so that commands in the same place need no `-n`.

The file is locked while the servers run. A lock ends with its process, however that ended, so what a crash left behind
is never taken for a running server.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ariane.errors import SettingsError, StoreInUse
from ariane.model.address import Address

DATA = Path(".ariane")
"""Where `ariane up` keeps its data unless it is told otherwise, and where clients look for one that runs."""

_NAME = "up.json"
_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Notice:
    _descriptor: int

    def tell(self, namesrv: str) -> None:
        """Written through the locked descriptor: closing any other one of the file would drop the lock."""
        text = json.dumps({"namesrv": namesrv, "pid": os.getpid()}) + "\n"
        os.pwrite(self._descriptor, text.encode(), 0)


@contextmanager
def posted(directory: Path) -> Iterator[Notice]:
    """A notice that only one process can hold in `directory`; gone at the end. StoreInUse when another has it."""
    path = directory / _NAME
    descriptor = _open(path)
    try:
        _lock(descriptor, directory)
        os.ftruncate(descriptor, 0)
        try:
            yield Notice(descriptor)
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)  # and with it the lock


def find_notice(directory: Path) -> str | None:
    """The nameserver of the `ariane up` that runs on `directory` now."""
    from ariane.store.lock_holder import lock_holder

    path = directory / _NAME
    if lock_holder(path) is None:
        return None
    try:
        with path.open("rb") as file:
            told = json.loads(file.read(_BYTES_MAX))
        return str(Address.parse(told["namesrv"]))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):  # not written yet, or not by us
        return None


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SettingsError(
            f"{path.parent} cannot hold the data: {error.strerror}; choose another directory with --data"
        ) from error


def _lock(descriptor: int, directory: Path) -> None:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError as error:
        raise StoreInUse(
            f"another `ariane up` runs on {directory}: use that one, stop it, or choose another directory with --data"
        ) from error
