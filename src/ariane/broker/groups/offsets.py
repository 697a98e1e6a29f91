"""Committed consumer offsets, stored in `consumerOffset.json` in Apache's format, with a journal of recent commits.

    {"offsetTable":{"orders@billing":{0:125,1:126},"%RETRY%billing@billing":{0:0}}}

An offset is the next one to consume. The table is saved every few seconds, as in Apache. Without the journal
(store/config/journal.py), commits since the last save would be lost when the process is killed. So each commit is also
appended to a journal file. A commit that cannot be written there is refused. A crash of the machine loses what was
committed since the last save: messages are consumed again, none is skipped.

    orders@billing 0 126   topic@group, queue, offset
    orders@billing -       the pair was deleted
"""

import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from ariane.broker.json_table import Autosave, JsonTable
from ariane.clock import Clock
from ariane.errors import StoreCorrupt, StoreFull, WireError
from ariane.store.checkpoint import boot_id
from ariane.store.config.journal import Journal
from ariane.store.disk import Disk
from ariane.wire.json.coerce import coerce
from ariane.wire.requests.offsets import ConsumerOffsetTable

# --- journal ---

log = logging.getLogger(__name__)

JOURNAL_NAME = "consumerOffset.journal"
_DELETED = "-"


class OffsetJournal:
    """Journal of commits and deletions. Use on the event loop only; each write is one system call."""

    def __init__(self, disk: Disk, directory: Path, boot: str | None = None, *, was_killed: bool = False) -> None:
        """`was_killed`: the last process of this boot left a journal, which must be there."""
        self._was_killed = was_killed
        self._journal = Journal(disk, directory, JOURNAL_NAME, boot_id() if boot is None else boot)
        self.begin = self._journal.begin
        self.rotate = self._journal.rotate
        self.delete_up_to = self._journal.delete_up_to

    def replay(self) -> Iterator[tuple[str, int | None, int]]:
        """Key, queue and offset of each commit, oldest first; queue None when the pair was deleted."""
        for line in self._journal.replay(was_killed=self._was_killed):
            key, *numbers = line.split(" ")
            if numbers == [_DELETED]:
                yield key, None, 0
            elif len(numbers) == 2 and all(number.isascii() and number.isdigit() for number in numbers):
                yield key, int(numbers[0]), int(numbers[1])
            else:
                log.error("offset journal has an invalid line, left out", extra={"line": line[:200]})

    def append_commit(self, key: str, queue_id: int, offset: int) -> None:
        """StoreFull if it cannot be written, and then a kill would lose the commit."""
        self._journal.append(f"{key} {queue_id} {offset}")

    def append_deletion(self, key: str) -> None:
        """Without space it is not written: after a kill the pair is there again, at most at the end of its queue."""
        with suppress(StoreFull):  # the journal logs it
            self._journal.append(f"{key} {_DELETED}")


# --- table ---

NO_OFFSET = -1
RESET_S = 60.0
"""How long after a reset members may commit lower offsets. Apache's client waits 10 s for its handlers, and repeats its
old offset meanwhile."""
_NO_OFFSETS: Mapping[int, int] = {}


def can_be_committed(offset: int, queue_end: int) -> bool:
    """Whether a client may commit this offset; otherwise the stored one is unchanged.

    Apache's 4.x broker accepts any number. An offset beyond the end comes from a client that consumed messages which
    the log then lost in a crash of the machine. If it were stored, the group would skip the new messages that get these
    offsets.
    """
    return 0 <= offset <= queue_end


OffsetsByPair = Mapping[str, Mapping[int, int]]
"""By "topic@group", then by queue id."""


class ConsumerOffsets:
    """Committed offsets by group, topic and queue. Use on the event loop only."""

    def __init__(
        self,
        file: JsonTable | None,
        journal: OffsetJournal | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._autosave = Autosave(file, self._snapshot, self._saved)
        self._journal = journal
        self._snapshot_journal_number = 0
        self._topics: dict[str, dict[str, dict[int, int]]] = {}  # by group, topic and queue
        self._groups: dict[str, set[str]] = {}  # by topic
        self._monotonic = monotonic
        self._resets: dict[tuple[str, str, int], tuple[int, float]] = {}  # lowest offset admitted, and until when
        for key, queues in _load(file).items():
            topic, _, group = key.partition("@")  # topic names contain no "@"
            for queue_id, offset in queues.items():
                self._set(group, topic, queue_id, offset)
        if journal is not None:
            journal.begin(has_unsaved=self._replay(journal))

    # --- looking up -------------------------------------------------------------------------------------------------

    def get(self, group: str, topic: str, queue_id: int) -> int:
        """NO_OFFSET (-1) if the group has none."""
        return self.of(group, topic).get(queue_id, NO_OFFSET)

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        """By queue id."""
        return self._topics.get(group, {}).get(topic, _NO_OFFSETS)

    def topics_of(self, group: str) -> set[str]:
        return set(self._topics.get(group, ()))

    def groups_of(self, topic: str) -> set[str]:
        return set(self._groups.get(topic, ()))

    def table(self) -> dict[str, dict[int, int]]:
        """Everything, as the file has it: by "topic@group", then by queue id. A copy.

        Also for a thread, while the event loop commits: each dict is copied in one step, and what is committed during
        the copy is in it or not.
        """
        return {
            f"{topic}@{group}": queues.copy()
            for group, topics in self._topics.copy().items()
            for topic, queues in topics.copy().items()
        }

    # --- changing ---------------------------------------------------------------------------------------------------

    def advance(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Stores what a consumer has consumed up to. False if that is less than the group has: nothing changes.

        A lower offset comes from a member that lost its queue to another, perhaps while the broker was down. Messages
        below the stored one are consumed, so the statement is true and tells nothing new; Apache's broker would store
        it, and the group would consume them again. After a reset, members move back.
        """
        if offset < self.get(group, topic, queue_id) and not self._is_admitted_by_reset(group, topic, queue_id, offset):
            fields = {"group": group, "topic": topic, "queue": queue_id, "offset": offset}
            log.debug("a commit that goes back is ignored", extra=fields)
            return False
        self.commit(group, topic, queue_id, offset)
        return True

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Stores the offset, and lets members commit it and what follows, although they are further."""
        self.commit(group, topic, queue_id, offset)
        now = self._monotonic()
        self._resets = {key: reset for key, reset in self._resets.items() if reset[1] > now}
        self._resets[group, topic, queue_id] = (offset, now + RESET_S)

    def _is_admitted_by_reset(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        lowest, until = self._resets.get((group, topic, queue_id), (0, 0.0))
        return offset >= lowest and self._monotonic() < until

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Stores any offset, also a lower one: for tools and seeks. StoreFull, with nothing changed, if the journal
        cannot be written."""
        before = self.get(group, topic, queue_id)
        if offset == before:
            return
        if offset < before:
            fields = {"group": group, "topic": topic, "queue": queue_id, "before": before, "now": offset}
            log.info("a group moved back", extra=fields)
        if self._journal is not None:
            self._journal.append_commit(f"{topic}@{group}", queue_id, offset)
        self._set(group, topic, queue_id, offset)
        self._autosave.mark_changed()

    def record(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """As `commit`, for progress of the broker itself: without space for the journal it is saved with the table."""
        try:
            self.commit(group, topic, queue_id, offset)
        except StoreFull:  # the journal logs it
            self._set(group, topic, queue_id, offset)
            self._autosave.mark_changed()

    def copy(self, table: OffsetsByPair, before: OffsetsByPair, *, only_forward: bool) -> None:
        """Takes over the master's offsets, at a slave. `before` is what it took over the last time.

        `only_forward`: an offset that consumers committed here is not moved back. One that is as the master had it
        follows the master in both directions: an administrator may have reset it.
        """
        for key, queues in table.items():
            topic, _, group = key.partition("@")
            copied = before.get(key, _NO_OFFSETS)
            for queue_id, offset in queues.items():
                known = self.get(group, topic, queue_id)
                is_kept = offset < known and only_forward and known != copied.get(queue_id)
                if 0 <= offset != known and not is_kept:
                    self.record(group, topic, queue_id, offset)

    def delete_pair(self, key: str) -> None:
        """Of a topic and a group, if there are offsets."""
        topic, _, group = key.partition("@")
        if topic in self._topics.get(group, ()):
            self._delete(group, topic)

    def clone(self, source: str, target: str, topic: str) -> None:
        """Copies the offsets of the source group to the target group."""
        for queue_id, offset in tuple(self.of(source, topic).items()):
            self.commit(target, topic, queue_id, offset)

    def delete_group(self, group: str) -> None:
        for topic in tuple(self._topics.get(group, ())):
            self._delete(group, topic)

    def delete_topic(self, topic: str) -> None:
        """Deletes the offsets of a deleted topic: a new topic of that name starts at 0."""
        for group in self.groups_of(topic):
            self._delete(group, topic)

    def _delete(self, group: str, topic: str) -> None:
        self._forget_pair(group, topic)
        if self._journal is not None:
            self._journal.append_deletion(f"{topic}@{group}")
        self._autosave.mark_changed()

    def clamp_to_queue_ends(self, end_of: Callable[[str, int], int]) -> int:
        """Lowers offsets that are beyond the end of their queue; returns how many.

        For the start of a broker that is the only writer of its log. After a crash of the machine that truncated the
        log, saved offsets may point into the lost part. New messages get these offsets, and a group would skip them.
        """
        beyond = [
            (group, topic, queue_id, offset, end)
            for group, topics in self._topics.items()
            for topic, queues in topics.items()
            for queue_id, offset in queues.items()
            if offset > (end := end_of(topic, queue_id))
        ]
        for group, topic, queue_id, offset, end in beyond:
            fields = {"group": group, "topic": topic, "queue": queue_id, "offset": offset, "end": end}
            log.warning("offset was beyond the end of its queue, lowered", extra=fields)
            self.record(group, topic, queue_id, end)
        return len(beyond)

    def _set(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self._topics.setdefault(group, {}).setdefault(topic, {})[queue_id] = offset
        self._groups.setdefault(topic, set()).add(group)

    def _forget_pair(self, group: str, topic: str) -> None:
        del self._topics[group][topic]
        if not self._topics[group]:
            del self._topics[group]
        self._groups[topic].discard(group)
        if not self._groups[topic]:
            del self._groups[topic]

    # --- the file ---------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Blocks until the file is durable."""
        self._autosave.save()

    async def save_if_changed(self) -> None:
        await self._autosave.save_if_changed()

    @asynccontextmanager
    async def autosave(self, clock: Clock, interval_s: float) -> AsyncIterator[None]:
        """Saves changes every `interval_s` while the body runs, and when it ends."""
        async with self._autosave.run(clock, interval_s):
            yield

    def _replay(self, journal: OffsetJournal) -> bool:
        """Whether it has anything that the table lacks."""
        has_unsaved = False
        for key, queue_id, offset in journal.replay():
            has_unsaved = True
            topic, _, group = key.partition("@")
            if queue_id is not None:
                self._set(group, topic, queue_id, offset)
            elif topic in self._topics.get(group, ()):
                self._forget_pair(group, topic)
            self._autosave.mark_changed()
        return has_unsaved

    def _saved(self) -> None:
        if self._journal is not None:
            self._journal.delete_up_to(self._snapshot_journal_number)

    def _snapshot(self) -> "_Snapshot":
        """The journal begins a new file first: what is committed while the table is copied is in both."""
        if self._journal is not None:
            self._snapshot_journal_number = self._journal.rotate()
        return _Snapshot(self)


class _Snapshot:
    """The table, copied and encoded by the thread that saves it: for 100,000 groups that takes half a second."""

    def __init__(self, offsets: ConsumerOffsets) -> None:
        self._offsets = offsets

    def to_bytes(self) -> bytes:
        return ConsumerOffsetTable(offset_table=self._offsets.table()).to_bytes()


def _load(file: JsonTable | None) -> Mapping[str, Mapping[int, int]]:
    content = None if file is None else file.load()
    if file is None or content is None:
        return {}
    try:
        return coerce(ConsumerOffsetTable, content).offset_table
    except WireError as error:
        raise StoreCorrupt(f"{file.path} is not a valid offset table: {error}; restore it from a copy") from None


# --- GET_CORRECTION_OFFSETS ---

NO_LIMIT = 2**63 - 1
"""All other groups are ahead of the compared one (Apache's Long.MAX_VALUE)."""


def correction_offsets(
    groups: Iterable[Mapping[int, int]], compared: Mapping[int, int], min_offsets: Mapping[int, int]
) -> dict[int, int]:
    """By queue id: the smallest offset of `groups` that is still in the queue, NO_LIMIT where it is beyond `compared`.

    A tool that moves consumption of a topic from one group to others uses this as the start offset: the slowest of the
    groups misses nothing.
    """
    smallest: dict[int, int] = {}
    for offsets in groups:
        for queue_id, offset in offsets.items():
            if offset >= min_offsets.get(queue_id, 0):
                smallest[queue_id] = min(offset, smallest.get(queue_id, NO_LIMIT))
    for queue_id, offset in compared.items():
        if smallest.get(queue_id, NO_LIMIT) > offset:
            smallest[queue_id] = NO_LIMIT
    return smallest
