"""The index: from a topic and a key to the physical offsets of messages, newest first.

It is derived from the commit log: what is lost here can be put again from there. A run of files, each with its own
hash table; only the newest takes entries, and a full one is followed by the next.

    dispatch --> put --------> newest file       (one writer: the event loop)
    a query  --> query ------> newest to oldest  (may run in a thread, under a lease)
    a timer  --> syncing ----> changed files     (the sync itself runs in a thread)

No key is stored. Whoever asks compares the key of each message that is found.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from ariane.errors import StoreCorrupt, StoreFull
from ariane.store.disk import Disk
from ariane.store.index_directory import IndexDirectory, SyncPlan
from ariane.store.index_entries import KeyedMessage, KeyRows
from ariane.store.index_file import IndexFile, Shape, Staged
from ariane.store.index_header import Header
from ariane.store.index_recovery import Cut, cut, cut_damage
from ariane.store.key_columns import KeyColumns
from ariane.store.key_hash import key_hash
from ariane.store.layout import Layout
from ariane.store.settings import StoreSettings
from ariane.store.steps import Errand, Steps, at_once

log = logging.getLogger(__name__)


class IndexHits(NamedTuple):
    offsets: list[int]
    """Physical offsets, newest first. Some may belong to another key with the same hash."""
    last_update_timestamp_ms: int
    """Store time of the last message of the index, 0 when there is none."""
    last_update_physical: int


class Index:
    def __init__(self, directory: IndexDirectory) -> None:
        self._directory = directory
        self._end_physical = _end_of(directory.files)
        self.damaged_from: int | None = None
        """From which message on damage has cost entries, of those that were believed to be safe."""

    @classmethod
    def open(cls, disk: Disk, layout: Layout, settings: StoreSettings, now_local_name: Callable[[], str]) -> "Index":
        """Opens every file. `now_local_name` is the local time as yyyyMMddHHmmssSSS, by which files are named.

        Call `after_clean_stop` or `after_crash` next: they say what of it counts.
        """
        shape = Shape(settings.index_slots, settings.index_entries)
        directory = IndexDirectory(disk, layout.index, shape, now_local_name)
        directory.open_all()
        return cls(directory)

    @property
    def end_physical(self) -> int:
        """The last message that is in the index, -1 for none.

        Dispatch may begin again there or anywhere before: what is known is skipped.
        """
        return self._end_physical

    def after_clean_stop(self) -> None:
        """Believes every file whose header fits its entries; see `end_physical` for what has to be put again."""
        self._apply(cut_damage(self._directory.files, IndexFile.is_sound))

    def after_crash(self, durable_physical: int) -> None:
        """Believes only what a sync covered: the messages before `durable_physical`. The others have to be put again.

        The caller's record of that number must not be behind the end of the log when new messages are put: or a second
        crash would believe old entries that stand where new ones had been.
        """
        self._apply(cut_damage(self._directory.files, IndexFile.begins_as_told))
        self._apply(cut(self._directory.files, durable_physical, crashed=True))
        self._apply(cut_damage(self._directory.files, IndexFile.is_sound))

    def truncate(self, physical: int) -> None:
        """Forgets all messages from `physical` on, because the log ends there."""
        self._apply(cut(self._directory.files, physical, crashed=False))

    def _apply(self, result: Cut) -> None:
        for file in result.dropped:
            self._directory.drop(file, durably=True)  # one by one: no crash may leave a gap
        if result.damaged_from is not None:
            known = self.damaged_from
            self.damaged_from = result.damaged_from if known is None else min(known, result.damaged_from)
        self._end_physical = _end_of(self._directory.files)

    def durable_at(self, timestamp_ms: int) -> int:
        """What `after_crash` may be told of a store that Apache wrote, from its checkpoint's indexMsgTimestamp.

        Apache syncs a file when it is full, and only then moves that timestamp.
        """
        files = self._directory.files
        return max(
            (file.end_physical for file in files if file.header.end_timestamp_ms <= timestamp_ms and not file.room),
            default=0,
        )

    def put(self, messages: Iterable[KeyedMessage]) -> None:
        """As `put_columns`."""
        self.put_columns(KeyColumns.of(messages))

    def put_columns(self, columns: KeyColumns) -> None:
        """Indexes messages in the order of the log, all or none: StoreFull when there is no space, then try again.

        The caller leaves out messages of rolled-back transactions, as Apache does.
        """
        rows = columns.rows(self._end_physical)
        if not len(rows.hashes):
            return
        created: list[IndexFile] = []
        try:
            staged = self._stage(rows, created)
        except OSError as error:
            self._directory.discard(created)
            raise StoreFull(f"the index in {self._directory.path} cannot be written: {error.strerror}") from error
        for file, part in staged:
            file.publish(part)
        if created:
            self._directory.adopt(created)
        self._end_physical = int(rows.physical[-1])

    def cold(self, columns: KeyColumns) -> Errand | None:
        """What a thread has to do so that `put_columns` does not wait for old bytes; None if nothing. See IndexFile.

        A file that is full is followed by a new one, of which there is nothing old.
        """
        newest = self._directory.files[-1:]
        if not newest or not newest[0].room:
            return None
        rows = columns.rows(self._end_physical)
        return newest[0].cold(rows.part(0, newest[0].room)) if len(rows.hashes) else None

    def _stage(self, rows: KeyRows, created: list[IndexFile]) -> list[tuple[IndexFile, Staged]]:
        """Each file that the rows go to, with its part of them."""
        staged = []
        newest = self._directory.files[-1:]
        file = newest[0] if newest and newest[0].room else None
        begin = 0
        while begin < len(rows.hashes):
            if file is None:
                file = self._directory.create(self._following(rows, begin), created)
                created.append(file)
            end = begin + file.room
            staged.append((file, file.stage(rows.part(begin, end))))
            begin, file = end, None
        return staged

    def _following(self, rows: KeyRows, begin: int) -> Header:
        """Of a file for the rows from `begin` on: it goes on from the file before, as these rows will have left it."""
        if begin:
            return Header.following(int(rows.timestamps_ms[begin - 1]), int(rows.physical[begin - 1]))
        if self._directory.files:
            header = self._directory.files[-1].header
            return Header.following(header.end_timestamp_ms, header.end_physical)
        return Header.following(0, 0)

    def query(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int) -> IndexHits:
        """At most `max_num` messages stored between two times, both included.

        As in Apache, a file that began before `begin_ms` is the last to be looked at. A broken chain ends the search
        in its file, with a warning: what the other files know is still an answer.
        """
        files = self._directory.files
        wanted = key_hash(topic, key)
        offsets: list[int] = []
        for file in reversed(files):
            if len(offsets) >= max_num:
                break
            if file.is_empty:
                continue
            if file.header.overlaps(begin_ms, end_ms):
                _collect(file, wanted, max_num, begin_ms, end_ms, offsets)
            if file.header.begin_timestamp_ms < begin_ms:
                break
        newest = files[-1].header if files else Header.following(0, 0)
        return IndexHits(offsets, newest.end_timestamp_ms, newest.end_physical)

    def drop_before(self, min_physical: int) -> None:
        """Removes the oldest files while they hold only messages that the log has lost; never the newest file."""
        at_once(self.dropping_before(min_physical))

    def dropping_before(self, min_physical: int) -> Steps[None]:
        """The same step by step."""
        for file in self._directory.files[:-1]:
            if file.end_physical >= min_physical:
                return
            yield from self._directory.dropping(file)

    def lease(self) -> AbstractContextManager[None]:
        """While it lasts, a thread may `query`: files that are dropped meanwhile are closed only afterwards.

        Entered and left on the event loop, around the call of the thread.
        """
        return self._directory.lease()

    def syncing(self) -> AbstractContextManager[SyncPlan]:
        """A plan whose `run` is for a thread. When it has run, all that was put before this call is durable.

        with index.syncing() as plan:
            await in_a_thread(plan.run)
        """
        return self._directory.syncing()

    def close(self) -> None:
        """Header and slots are always up to date in the file; to have them durable, sync first."""
        self._directory.close()


def _end_of(files: Sequence[IndexFile]) -> int:
    return max((file.end_physical for file in files), default=-1)


def _collect(file: IndexFile, wanted: int, max_num: int, begin_ms: int, end_ms: int, offsets: list[int]) -> None:
    """Adds what a file knows; a message once, even when two of its keys have the same hash."""
    try:
        for physical in file.find(wanted, begin_ms, end_ms):
            if len(offsets) >= max_num:
                return
            if not offsets or offsets[-1] != physical:
                offsets.append(physical)
    except StoreCorrupt as error:
        log.warning("index chain broken", extra={"reason": str(error)})
