"""Records on their way into one file: packed and numbered first, known to queues and index only when they are written.

A record takes its queue's next number at once; `Run.take_back` returns the numbers of those that were not written. Here
a message is looked at in general. The straight line for the usual one is in append.py, and leaves the same bytes.
"""

from ariane.errors import StoreError
from ariane.store.commit_log import CommitLog
from ariane.store.consume_queue import ConsumeQueue
from ariane.store.dispatch import Arrivals, Dispatcher
from ariane.store.draft import Appended, Draft
from ariane.store.new_entries import pack_numbered
from ariane.wire.record import pack_record
from ariane.wire.record_seal import seal

Outcome = Appended | StoreError

NOT_QUEUED = 0x4
"""The bit that both transaction types have that do not go to their queue: prepared (4) and rollback (12)."""

_ROLLBACK = 0xC  # not indexed either, as when the log is read again (dispatch.py)

Staged = tuple[int, Draft, ConsumeQueue, int, int, int]
"""The number of a draft, the draft, its queue, queue offset, physical offset, and the size of its record."""


class Run:
    """What is written to one file at once."""

    __slots__ = ("end", "offset", "parts", "staged")

    def __init__(self, commit_log: CommitLog) -> None:
        self.offset = commit_log.max_offset
        self.end = self.offset + commit_log.room()
        self.parts: list[bytes] = []
        """Records in pieces, to be joined once."""
        self.staged: list[Staged] = []

    def all(self) -> tuple[int, int, list[bytes], list[Staged]]:
        """Offset, end, parts, staged: for the loop in append.py."""
        return self.offset, self.end, self.parts, self.staged

    def take(self) -> list[Staged]:
        """What is staged; it is written now."""
        staged, self.staged, self.parts = self.staged, [], []
        return staged

    def take_back(self) -> None:
        """What is staged is not going to be written: its numbers are the queues' next ones again."""
        for _, draft, queue, queue_offset, _, _ in reversed(self.take()):
            if not draft.sys_flag & NOT_QUEUED:
                queue.max_offset = queue_offset

    def stage(
        self, number: int, draft: Draft, queue: ConsumeQueue, timestamp_ms: int, store_host: bytes, sealed: bool
    ) -> None:
        """RecordError, and nothing has changed, when a field is out of its range."""
        is_queued = not draft.sys_flag & NOT_QUEUED
        queue_offset = queue.max_offset if is_queued else 0
        record = pack_record(
            topic=queue.topic_part[1:],
            body=draft.body,
            properties=draft.properties,
            queue_id=draft.queue_id,
            flag=draft.flag,
            queue_offset=queue_offset,
            physical_offset=self.offset,
            sys_flag=draft.sys_flag,
            born_timestamp_ms=draft.born_timestamp_ms,
            born_host=draft.born_host,
            store_timestamp_ms=timestamp_ms,
            store_host=store_host,
            reconsume_times=draft.reconsume_times,
            prepared_transaction_offset=draft.prepared_transaction_offset,
        )
        if is_queued:
            queue.max_offset = queue_offset + 1
        self.parts.append(seal(record) if sealed else record)
        self.staged.append((number, draft, queue, queue_offset, self.offset, len(record)))
        self.offset += len(record)


def dispatch(staged: list[Staged], dispatcher: Dispatcher, timestamp_ms: int, outcomes: list[Outcome]) -> None:
    """Tells queues, index and listeners of records that are written. Nothing here can fail half-way."""
    physical: list[int] = []
    texts: list[str] = []
    topics: list[str] = []
    counts: list[int] = []
    arrivals: Arrivals | None = {} if dispatcher.has_listeners else None
    entries = dispatcher.new_entries
    for number, draft, queue, queue_offset, offset, size in staged:
        sys_flag = draft.sys_flag
        if not sys_flag & NOT_QUEUED:
            tags_code = draft.tags_code if not draft.delay_ms else timestamp_ms + draft.delay_ms
            entries += pack_numbered(queue.number, offset, size, tags_code)
            if arrivals is not None:
                arrivals[queue, tags_code] = queue_offset + 1
        keys = draft.keys
        if keys and sys_flag & _ROLLBACK != _ROLLBACK:
            count = len(keys)
            physical += (offset,) * count
            texts += keys
            topics.append(draft.topic)
            counts.append(count)
        outcomes[number] = Appended(offset, queue_offset, size, timestamp_ms)
    if dispatcher.has_index:
        dispatcher.keys.add(physical, texts, timestamp_ms, topics, counts)
    if arrivals:
        dispatcher.tell_all(arrivals)
