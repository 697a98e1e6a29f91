"""The key index: maps a topic and a key to the physical offsets of messages, newest first.

It is derived from the commit log: what is lost here can be added again from there. It is a sequence of files, each with
its own hash table; only the newest file takes entries, and a full one is followed by the next.

    dispatch --> put --------> newest file       (one writer: the event loop)
    a query  --> query ------> newest to oldest  (may run in a thread, under a lease)
    a timer  --> syncing ----> changed files     (the sync itself runs in a thread)

No key is stored. The caller compares the key of each message that is found.

On recovery, entries that cannot be relied on are dropped in every file, so that the index covers the log exactly up to
some message. Adding the messages after it then leaves neither a gap nor a duplicate.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ariane.errors import StoreCorrupt, StoreError, StoreFull, StoreMismatch, StoreReadOnly
from ariane.store.blocking_io import BlockingCall, IoSteps, run_sync
from ariane.store.disk import Disk
from ariane.store.index.entries import HEADER, Header, KeyedMessage, KeyRows, key_hash
from ariane.store.index.file import IndexCapacity, IndexFile, PendingEntries
from ariane.store.index.pending_keys import PendingKeys
from ariane.store.layout import Layout
from ariane.store.settings import StoreSettings

# --- files of the index ---

log = logging.getLogger(__name__)

_NAME_DIGITS = 17


@dataclass(slots=True)
class SyncPlan:
    """The files that changed since they were last synced, each with its number of changes at this moment."""

    disk: Disk
    files: list[tuple[IndexFile, int]]
    directory: Path | None
    """To be synced if files were created or removed; else None."""
    is_done: bool = False

    def run(self) -> None:
        """Blocks; for a thread. StoreReadOnly when a sync fails, and then the index is not durable any further."""
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
    """The files of the index, oldest first: opens, creates, drops, syncs and closes them."""

    def __init__(self, disk: Disk, path: Path, capacity: IndexCapacity, now_local_name: Callable[[], str]) -> None:
        self.files: list[IndexFile] = []
        """Replaced, never changed in place, because threads read it."""
        self._disk = disk
        self._path = path
        self._capacity = capacity
        self._now_local_name = now_local_name
        self._name_changes, self._name_changes_synced = 0, -1
        self._leases = 0
        self._retired: list[IndexFile] = []

    @property
    def path(self) -> Path:
        return self._path

    @property
    def capacity(self) -> IndexCapacity:
        return self._capacity

    def open_all(self, *, is_capacity_known: bool = False) -> None:
        """Opens the files and removes unfinished ones. StoreError if they cannot be opened or have another capacity.

        With `is_capacity_known`, a file of another size is damaged, and removed.
        """
        try:
            self._disk.make_directory(self._path)
            for name in self._disk.names(self._path):
                if _is_index_name(name) and (file := self._open(name, is_capacity_known)) is not None:
                    self.files.append(file)
        except OSError as error:
            self.close()
            raise StoreError(f"the index in {self._path} cannot be opened: {error.strerror}") from error
        except StoreError:
            self.close()
            raise
        # By offset and not by name: when summer time ends, a new name may be smaller than an older one.
        self.files.sort(key=lambda file: (file.header.begin_physical, file.path.name))

    def _open(self, name: str, is_capacity_known: bool) -> IndexFile | None:
        path = self._path / name
        try:
            file = IndexFile.open(self._disk, path, self._capacity)
            reason = "it was never finished"
        except StoreMismatch as error:
            if not is_capacity_known:
                raise
            file, reason = None, str(error)
        if file is None:
            log.warning("index file removed", extra={"path": str(path), "reason": reason})
            self._disk.remove(path)
        return file

    def create(self, header: Header, after: Iterable[IndexFile]) -> IndexFile:
        """A new file, not yet in `files`; `after` are other such files. OSError when there is no space."""
        path = self._path / self._new_name(after)
        return IndexFile.create(self._disk, path, self._capacity, header)

    def _new_name(self, after: Iterable[IndexFile]) -> str:
        """The local time, increased if needed to follow every name in use: Apache reads files in order of names."""
        last = max((int(file.path.name) for file in (*self.files, *after)), default=0)
        return f"{max(int(self._now_local_name()), last + 1):0{_NAME_DIGITS}d}"

    def adopt(self, created: list[IndexFile]) -> None:
        self.files = [*self.files, *created]
        self._name_changes += 1

    def discard(self, created: Iterable[IndexFile]) -> None:
        """Removes files that were not adopted."""
        for file in created:
            file.close()
            with suppress(OSError):  # it has no entries, so the next start ignores it
                self._disk.remove(file.path)

    def drop(self, file: IndexFile, *, durably: bool = False) -> None:
        """Unlinks a file, and closes it when no thread can be using it. StoreError when it cannot be unlinked."""
        run_sync(self.drop_steps(file))
        if durably:
            with self._removal_errors(file):
                self._disk.sync_directory(self._path)

    def drop_steps(self, file: IndexFile) -> IoSteps[None]:
        """As `drop`, without blocking: freeing the blocks of a large file takes a while.

        The file is closed before it is unlinked, if possible, because the later of the two frees the blocks.
        """
        with self._removal_errors(file):
            self.files = [other for other in self.files if other is not file]
            self._retired.append(file)
            self._close_retired()
            yield partial(self._unlink, file.path)
            self._name_changes += 1

    def _unlink(self, path: Path) -> None:
        with suppress(FileNotFoundError):  # already removed
            self._disk.remove(path)

    @contextmanager
    def _removal_errors(self, file: IndexFile) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(f"{file.path} cannot be removed: {error.strerror}") from error

    @contextmanager
    def lease(self) -> Iterator[None]:
        """During the context threads may use the files: files dropped meanwhile are closed only afterwards."""
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


# --- recovery ---


class TruncateResult(NamedTuple):
    kept: list[IndexFile]
    dropped: list[IndexFile]
    """Newest first. Remove them in this order, so that a crash meanwhile leaves no gap between files."""
    damaged_from: int | None = None
    """The first message whose index entries are lost through damage; None when there is none."""


def truncate_files(files: Sequence[IndexFile], limit: int, *, crashed: bool) -> TruncateResult:
    """Drops all messages from `limit` on.

    After a crash the slots of the newest remaining file are rebuilt from its entries, unless it was full: only the
    slots of a full file cannot have changed on disk after the sync that `limit` stands for.
    """
    kept = [file for file in files if not file.is_empty]
    dropped = [file for file in files if file.is_empty]
    damaged_from = None
    while kept:
        last = kept[-1]
        if last.is_empty or last.header.begin_physical >= limit:
            dropped.append(kept.pop())
        elif last.end_physical < limit and not (crashed and last.room):
            break
        else:
            kept_to = _truncate_file(last, limit)
            if kept_to < limit:
                damaged_from = limit = kept_to
            if not last.is_empty:
                break
    return TruncateResult(kept, dropped, damaged_from)


def drop_damaged(files: Sequence[IndexFile], is_sound: Callable[[IndexFile], bool]) -> TruncateResult:
    """Drops the first damaged file and all files created after it, since messages can only be added at the end.

    "After" is by name, because the offsets in a damaged header mean nothing. The last message before it is dropped too:
    some of its keys may be in the dropped files.
    """
    damaged = [file for file in files if not is_sound(file)]
    if not damaged:
        return TruncateResult(list(files), [])
    first = min(file.path.name for file in damaged)
    older = [file for file in files if file.path.name < first]
    newer = sorted((file for file in files if file.path.name >= first), key=lambda file: file.path.name, reverse=True)
    limit = max((file.end_physical for file in older if not file.is_empty), default=0)
    for file in damaged:
        _warn(file, limit)
    result = truncate_files(older, limit, crashed=False)
    return TruncateResult(
        result.kept, [*newer, *result.dropped], limit if result.damaged_from is None else result.damaged_from
    )


def _truncate_file(file: IndexFile, limit: int) -> int:
    kept_to = file.keep_before(limit)
    if kept_to < limit:
        _warn(file, kept_to)
    return kept_to


def _warn(file: IndexFile, limit: int) -> None:
    log.warning("index file damaged, dropped from here on", extra={"path": str(file.path), "begin": limit})


class IndexHits(NamedTuple):
    offsets: list[int]
    """Physical offsets, newest first. Some may belong to another key with the same hash."""
    last_update_timestamp_ms: int
    """Store time of the last message of the index, 0 when there is none."""
    last_update_physical: int


class SavedIndexFile(NamedTuple):
    """What a file held at a checkpoint."""

    name: str
    header: bytes
    entries_crc: int


CHECKED_AT_START_BYTES = 64 * 1024 * 1024
"""So much of the newest files is read by a start: in a fraction of a second if it is cached."""
_PHYSICAL_MAX = 2**63 - 1


class Index:
    def __init__(self, directory: IndexDirectory) -> None:
        self._directory = directory
        self._unchecked: list[IndexFile] = []
        self._end_physical = _end_of(directory.files)
        self.damaged_from: int | None = None
        """The first message whose entries were lost through damage, of those that were thought durable."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        layout: Layout,
        settings: StoreSettings,
        now_local_name: Callable[[], str],
        *,
        is_capacity_known: bool = False,
    ) -> "Index":
        """Opens every file. `now_local_name` returns the local time as yyyyMMddHHmmssSSS, the name of a new file.

        Call `restore`, `after_clean_stop` or `after_crash` next: they drop what cannot be relied on.
        """
        capacity = IndexCapacity(settings.index_slots, settings.index_entries)
        directory = IndexDirectory(disk, layout.index, capacity, now_local_name)
        directory.open_all(is_capacity_known=is_capacity_known)
        return cls(directory)

    @property
    def end_physical(self) -> int:
        """Physical offset of the last message in the index, -1 for none.

        Dispatch may restart there or anywhere before: messages already in the index are skipped.
        """
        return self._end_physical

    @property
    def capacity(self) -> IndexCapacity:
        """Slots and entries of a file."""
        return self._directory.capacity

    def saved_files(self) -> list[SavedIndexFile]:
        """Each file that has entries, for the next start: it builds again what is not listed."""
        return [
            SavedIndexFile(file.path.name, HEADER.pack(*file.header), file.entries_crc)
            for file in self._directory.files
            if not file.is_empty and not file.is_damaged and file.entries_crc is not None
        ]

    def restore(self, expected: Sequence[SavedIndexFile], log_end: int, *, crashed: bool) -> int | None:
        """Opens the files as a checkpoint left them, when the log was indexed up to `log_end`.

        A missing or damaged file is dropped with all later ones. Returns the physical offset from which messages have
        to be added again; None when none is missing. Of large files only the headers are checked here, the rest by
        `check_next`.
        """
        if crashed:
            self.after_crash(log_end)
        else:
            self.after_clean_stop()
        self.truncate(log_end)
        files = {file.path.name: file for file in self._directory.files}
        unchecked = _beyond(CHECKED_AT_START_BYTES, self._directory.files)
        missing_from = self.damaged_from
        for number, saved in enumerate(expected):
            file, header = files.get(saved.name), Header.parse(saved.header)
            is_cut = crashed and number == len(expected) - 1
            if file is None or not _is_as_saved(file, header, saved.entries_crc, is_cut, file not in unchecked):
                self.truncate(header.begin_physical)
                missing_from = min(
                    header.begin_physical, header.begin_physical if missing_from is None else missing_from
                )
                fields = {"file": saved.name, "from": header.begin_physical}
                log.error("the index is damaged: it is built again from the log", extra=fields)
                break
        self._unchecked = [file for file in unchecked if file in self._directory.files]
        for file in self._directory.files:
            if file not in unchecked and not file.has_valid_slots(file.header.entry_count):
                log.error("the slots of an index file are damaged: built again", extra={"file": str(file.path)})
                file.keep_before(_PHYSICAL_MAX)
        return missing_from

    def checksum_all(self) -> None:
        """Computes checksums of files without any: those of Apache, or of a store without a saved state. Blocks."""
        for file in self._directory.files:
            if file.entries_crc is None:
                file.entries_crc = file.checksum_entries(file.header.entry_count)

    def next_check(self) -> Callable[[], None] | None:
        """What a thread has to call, under a lease, to check one more large file; None when all are checked."""
        while self._unchecked:
            file = self._unchecked.pop()
            if file in self._directory.files and file.entries_crc is not None:
                return partial(_check_file, file, file.header.entry_count, file.entries_crc)
        return None

    def after_clean_stop(self) -> None:
        """Keeps every file whose header agrees with its entries; messages after `end_physical` must be added again."""
        self._apply(drop_damaged(self._directory.files, IndexFile.is_sound))

    def after_crash(self, durable_physical: int) -> None:
        """Keeps only what a sync covered: the messages before `durable_physical`. The others must be added again.

        The stored `durable_physical` must not be beyond the end of the log when new messages are added: otherwise,
        after a second crash, old entries would be taken for those of new messages.
        """
        self._apply(drop_damaged(self._directory.files, IndexFile.has_valid_first_entry))
        self._apply(truncate_files(self._directory.files, durable_physical, crashed=True))
        self._apply(drop_damaged(self._directory.files, IndexFile.is_sound))

    def truncate(self, physical: int) -> None:
        """Drops all messages from `physical` on, because the log ends there."""
        self._apply(truncate_files(self._directory.files, physical, crashed=False))

    def _apply(self, result: TruncateResult) -> None:
        for file in result.dropped:
            self._directory.drop(file, durably=True)  # one by one, so that no crash leaves a gap
        if result.damaged_from is not None:
            known = self.damaged_from
            self.damaged_from = result.damaged_from if known is None else min(known, result.damaged_from)
        self._end_physical = _end_of(self._directory.files)

    def durable_at(self, timestamp_ms: int) -> int:
        """The argument of `after_crash` for a store of Apache, from its checkpoint's indexMsgTimestamp.

        Apache syncs a file when it is full, and only then advances that timestamp.
        """
        files = self._directory.files
        return max(
            (file.end_physical for file in files if file.header.end_timestamp_ms <= timestamp_ms and not file.room),
            default=0,
        )

    def put(self, messages: Iterable[KeyedMessage]) -> None:
        """As `put_columns`."""
        self.put_columns(PendingKeys.of(messages))

    def put_columns(self, columns: PendingKeys) -> None:
        """Indexes messages in the order of the log, all or none: StoreFull when there is no space, then try again.

        The caller leaves out messages of rolled-back transactions, as Apache does.
        """
        rows = columns.rows(self._end_physical)
        if not len(rows.hashes):
            return
        created: list[IndexFile] = []
        try:
            pending = self._write_entries(rows, created)
        except OSError as error:
            self._directory.discard(created)
            raise StoreFull(f"the index in {self._directory.path} cannot be written: {error.strerror}") from error
        for file, part in pending:
            file.publish(part)
        if created:
            self._directory.adopt(created)
        self._end_physical = int(rows.physical[-1])

    def cold_fetch(self, columns: PendingKeys) -> BlockingCall | None:
        """The blocking call to execute so that `put_columns` does not block; None if none. See IndexFile.

        A full file is followed by a new one, which has no cold pages.
        """
        newest = self._directory.files[-1:]
        if not newest or not newest[0].room:
            return None
        rows = columns.rows(self._end_physical)
        return newest[0].cold_fetch(rows.part(0, newest[0].room)) if len(rows.hashes) else None

    def _write_entries(self, rows: KeyRows, created: list[IndexFile]) -> list[tuple[IndexFile, PendingEntries]]:
        """Writes the rows; returns each file that got some, with its pending entries."""
        pending = []
        newest = self._directory.files[-1:]
        file = newest[0] if newest and newest[0].room else None
        begin = 0
        while begin < len(rows.hashes):
            if file is None:
                file = self._directory.create(self._following(rows, begin), created)
                created.append(file)
            end = begin + file.room
            pending.append((file, file.write_entries(rows.part(begin, end))))
            begin, file = end, None
        return pending

    def _following(self, rows: KeyRows, begin: int) -> Header:
        """The header of a new file for the rows from `begin` on: it continues the previous file with its new rows."""
        if begin:
            return Header.following(int(rows.timestamps_ms[begin - 1]), int(rows.physical[begin - 1]))
        if self._directory.files:
            header = self._directory.files[-1].header
            return Header.following(header.end_timestamp_ms, header.end_physical)
        return Header.following(0, 0)

    def query(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int) -> IndexHits:
        """At most `max_num` messages stored between two times, both included.

        As in Apache, a file that began before `begin_ms` is the last one searched. A broken chain ends the search in
        its file, with a warning: the matches of the other files are still returned.
        """
        files = self._directory.files
        target_hash = key_hash(topic, key)
        offsets: list[int] = []
        for file in reversed(files):
            if len(offsets) >= max_num:
                break
            if file.is_empty:
                continue
            if file.header.overlaps(begin_ms, end_ms):
                _collect(file, target_hash, max_num, begin_ms, end_ms, offsets)
            if file.header.begin_timestamp_ms < begin_ms:
                break
        newest = files[-1].header if files else Header.following(0, 0)
        return IndexHits(offsets, newest.end_timestamp_ms, newest.end_physical)

    def drop_before(self, min_physical: int) -> None:
        """Removes the oldest files if all their messages are before `min_physical`; never the newest file."""
        run_sync(self.drop_before_steps(min_physical))

    def drop_before_steps(self, min_physical: int) -> IoSteps[None]:
        """As `drop_before`, without blocking."""
        for file in self._directory.files[:-1]:
            if file.end_physical >= min_physical:
                return
            yield from self._directory.drop_steps(file)

    def lease(self) -> AbstractContextManager[None]:
        """During the context a thread may `query`: files dropped meanwhile are closed only afterwards.

        Enter and leave it on the event loop, around the call in the thread.
        """
        return self._directory.lease()

    def syncing(self) -> AbstractContextManager[SyncPlan]:
        """A plan whose `run` is for a thread. When it has run, everything added before this call is durable.

        with index.syncing() as plan:
            await in_a_thread(plan.run)
        """
        return self._directory.syncing()

    def close(self) -> None:
        """Closes the files, which are up to date; to make them durable, sync first."""
        self._directory.close()


def _beyond(bytes_max: int, files: Sequence[IndexFile]) -> list[IndexFile]:
    """The files, from the newest on, that are beyond so many bytes together."""
    total, found = 0, []
    for file in reversed(files):
        total += file.used_bytes
        if total > bytes_max:
            found.append(file)
    return found


def _is_as_saved(file: IndexFile, saved: Header, entries_crc: int, is_cut: bool, is_read: bool) -> bool:
    """Whether a file has what it had when it was saved. Its checksum then counts for what is added to it."""
    header = file.header
    if is_cut:  # its end was computed from its entries, which have whole seconds only
        header, saved = header._replace(end_timestamp_ms=0), saved._replace(end_timestamp_ms=0)
    if header != saved:
        return False
    if file.entries_crc is None:
        file.entries_crc = file.checksum_entries(header.entry_count) if is_read else entries_crc
    return file.entries_crc == entries_crc


def _check_file(file: IndexFile, entry_count: int, entries_crc: int) -> None:
    if file.checksum_entries(entry_count) != entries_crc or not file.has_valid_slots(entry_count):
        file.is_damaged = True
        log.error(
            "an index file is damaged: messages may not be found by key. The next start builds it again",
            extra={"file": str(file.path)},
        )


def _end_of(files: Sequence[IndexFile]) -> int:
    return max((file.end_physical for file in files), default=-1)


def _collect(file: IndexFile, target_hash: int, max_num: int, begin_ms: int, end_ms: int, offsets: list[int]) -> None:
    """Adds the matches of one file; a message only once, even if two of its keys have the same hash."""
    try:
        for physical in file.find(target_hash, begin_ms, end_ms):
            if len(offsets) >= max_num:
                return
            if not offsets or offsets[-1] != physical:
                offsets.append(physical)
    except StoreCorrupt as error:
        log.warning("index chain broken", extra={"reason": str(error)})
