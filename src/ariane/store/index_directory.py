"""The files of the index, oldest first: found, made, dropped, synced and closed."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ariane.errors import StoreError, StoreReadOnly
from ariane.store.disk import Disk
from ariane.store.index_file import IndexFile, Shape
from ariane.store.index_header import Header
from ariane.store.steps import Steps, at_once

log = logging.getLogger(__name__)

_NAME_DIGITS = 17


@dataclass(slots=True)
class SyncPlan:
    """The files that changed since they were last synced, each with the number of changes it had at this moment."""

    disk: Disk
    files: list[tuple[IndexFile, int]]
    directory: Path | None
    """To be synced when names came or went."""
    is_done: bool = False

    def run(self) -> None:
        """Blocks; for a thread. StoreReadOnly when a sync failed, and then the index is not durable any further."""
        try:
            for file, _ in self.files:
                file.sync()
            if self.directory is not None:
                self.disk.sync_directory(self.directory)
        except OSError as error:
            raise StoreReadOnly(
                f"the index cannot be made durable: {error.strerror}; repair the disk and start again, then the index "
                "is rebuilt from the last good point"
            ) from error
        self.is_done = True


class IndexDirectory:
    def __init__(self, disk: Disk, path: Path, shape: Shape, now_local_name: Callable[[], str]) -> None:
        self.files: list[IndexFile] = []
        """Replaced and never changed in place, because threads read it."""
        self._disk = disk
        self._path = path
        self._shape = shape
        self._now_local_name = now_local_name
        self._name_changes, self._name_changes_synced = 0, -1
        self._leases = 0
        self._retired: list[IndexFile] = []

    @property
    def path(self) -> Path:
        return self._path

    def open_all(self) -> None:
        """Finds the files; those that were never finished go. StoreError when they cannot be opened or do not fit."""
        try:
            self._disk.make_directory(self._path)
            for name in self._disk.names(self._path):
                if _is_index_name(name) and (file := self._open(name)) is not None:
                    self.files.append(file)
        except OSError as error:
            self.close()
            raise StoreError(f"the index in {self._path} cannot be opened: {error.strerror}") from error
        except StoreError:
            self.close()
            raise
        # By offset and not by name: a name made in the hour when summer time ends may be smaller than an older one.
        self.files.sort(key=lambda file: (file.header.begin_physical, file.path.name))

    def _open(self, name: str) -> IndexFile | None:
        path = self._path / name
        file = IndexFile.open(self._disk, path, self._shape)
        if file is None:
            log.warning("index file was never finished, removed", extra={"path": str(path)})
            self._disk.remove(path)
        return file

    def create(self, header: Header, after: Iterable[IndexFile]) -> IndexFile:
        """A new file, not yet one of `files`; `after` are others of that kind. OSError when there is no space."""
        path = self._path / self._new_name(after)
        return IndexFile.create(self._disk, path, self._shape, header)

    def _new_name(self, after: Iterable[IndexFile]) -> str:
        """The local time, moved on when it is not behind every name in use: Apache reads files in order of names."""
        last = max((int(file.path.name) for file in (*self.files, *after)), default=0)
        return f"{max(int(self._now_local_name()), last + 1):0{_NAME_DIGITS}d}"

    def adopt(self, created: list[IndexFile]) -> None:
        self.files = [*self.files, *created]
        self._name_changes += 1

    def discard(self, created: Iterable[IndexFile]) -> None:
        """Removes files that were not adopted."""
        for file in created:
            file.close()
            with suppress(OSError):  # it has no entries, so the next start does not mind it
                self._disk.remove(file.path)

    def drop(self, file: IndexFile, *, durably: bool = False) -> None:
        """Unlinks a file, and closes it when no thread can be using it. StoreError when it cannot be unlinked."""
        at_once(self.dropping(file))
        if durably:
            with self._failing_for(file):
                self._disk.sync_directory(self._path)

    def dropping(self, file: IndexFile) -> Steps[None]:
        """The same step by step: to give back the blocks of a large file takes a while.

        It is closed before it is unlinked, if it can be: whoever of the two is last gives the blocks back.
        """
        with self._failing_for(file):
            self.files = [other for other in self.files if other is not file]
            self._retired.append(file)
            self._close_retired()
            yield partial(self._unlink, file.path)
            self._name_changes += 1

    def _unlink(self, path: Path) -> None:
        with suppress(FileNotFoundError):  # somebody was faster
            self._disk.remove(path)

    @contextmanager
    def _failing_for(self, file: IndexFile) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(f"{file.path} cannot be removed: {error.strerror}") from error

    @contextmanager
    def lease(self) -> Iterator[None]:
        """While it lasts, threads may use the files: those that are dropped meanwhile are closed only afterwards."""
        self._leases += 1
        try:
            yield
        finally:
            self._leases -= 1
            self._close_retired()

    @contextmanager
    def syncing(self) -> Iterator[SyncPlan]:
        with self.lease():
            name_changes = self._name_changes
            directory = self._path if name_changes != self._name_changes_synced else None
            changed = [(file, file.changes) for file in self.files if file.changes != file.changes_synced]
            plan = SyncPlan(self._disk, changed, directory)
            yield plan
            if plan.is_done:
                self._name_changes_synced = name_changes
                for file, changes in changed:
                    file.synced(changes)

    def close(self) -> None:
        self._retired.extend(self.files)
        self.files = []
        self._close_retired()

    def _close_retired(self) -> None:
        if self._leases:
            return
        for file in self._retired:
            file.close()
        self._retired.clear()


def _is_index_name(name: str) -> bool:
    return len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()
