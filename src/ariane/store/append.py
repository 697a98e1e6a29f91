"""Drafts into the log: one pass over a chunk of messages, one write, then their queue entries.

A write that fails changes nothing: offsets are taken, entries made and keys noted only after the log has the bytes. The
straight line below is the broker's hot path; a message costs one packed record, one dict look-up and one entry.
"""

from collections.abc import Sequence

from ariane.clock import Clock
from ariane.errors import MessageRefused, RecordError, StoreError
from ariane.store.commit_log import CommitLog
from ariane.store.consume_queue import ConsumeQueue
from ariane.store.consume_queues import ConsumeQueues
from ariane.store.dispatch import Dispatcher, Keyed
from ariane.store.draft import Appended, Draft, record_bytes
from ariane.wire.record import pack_record
from ariane.wire.record_seal import seal, with_room

Outcome = Appended | StoreError

# The bit that both transaction types have that do not go to their queue: prepared (4) and rollback (12).
_NOT_QUEUED = 0x4
_ROLLBACK = 0xC  # not indexed either, as when the log is read again (dispatch.py)


class _Run:
    """Records that will be written to one file at once."""

    __slots__ = ("next_offsets", "offset", "records", "room", "staged")

    def __init__(self, commit_log: CommitLog) -> None:
        self.offset = commit_log.max_offset
        self.room = commit_log.room()
        self.records: list[bytes] = []
        self.staged: list[tuple[int, Draft, ConsumeQueue, int, int, int]] = []
        self.next_offsets: dict[ConsumeQueue, int] = {}


class Appender:
    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        dispatcher: Dispatcher,
        clock: Clock,
        store_host: bytes,
        max_message_bytes: int,
        sealed: bool = False,
    ) -> None:
        """`sealed`: each record ends with a checksum over all of it."""
        self._log = commit_log
        self._queues = queues
        self._dispatcher = dispatcher
        self._clock = clock
        self._store_host = store_host
        self._max_message_bytes = max_message_bytes
        self._sealed = sealed
        self.timestamp_ms = 0
        """Of the last append. Store times never go back, whatever the clock does: search by time relies on it."""

    def append(self, drafts: Sequence[Draft]) -> list[Outcome]:
        """What became of each draft. They may spread over two files when the active one ends between them."""
        outcomes: list[Outcome] = [_UNWRITTEN] * len(drafts)
        self._make_room(drafts)
        self.timestamp_ms = max(self.timestamp_ms, self._clock.now_ms())
        run = _Run(self._log)
        for number, draft in enumerate(drafts):
            topic = draft.topic.encode()
            size = record_bytes(draft, len(topic), len(self._store_host))
            if size > self._max_message_bytes:
                outcomes[number] = _too_large(size, self._max_message_bytes)
                continue
            try:
                if size > run.room:
                    self._write(run, outcomes)
                    run = _Run(self._log)  # from where the log is now, should it not roll
                    self._log.roll()
                    run = _Run(self._log)
                    if size > run.room:
                        raise _too_large(size, run.room)
                self._stage(run, number, draft, topic)
            except StoreError as error:
                outcomes[number] = error
            except RecordError as error:
                outcomes[number] = MessageRefused(str(error))
        self._write(run, outcomes)
        return outcomes

    def append_together(self, drafts: Sequence[Draft]) -> list[Outcome]:
        """A client's batch: in one file, and all or none, as Apache keeps it."""
        outcomes: list[Outcome] = [_UNWRITTEN] * len(drafts)
        self._make_room(drafts)
        topics = [draft.topic.encode() for draft in drafts]
        total = sum(
            record_bytes(draft, len(topic), len(self._store_host)) for draft, topic in zip(drafts, topics, strict=True)
        )
        self.timestamp_ms = max(self.timestamp_ms, self._clock.now_ms())
        try:
            if total > self._max_message_bytes:
                raise _too_large(total, self._max_message_bytes)
            if total > self._log.room():
                self._log.roll()
            run = _Run(self._log)
            if total > run.room:
                raise _too_large(total, run.room)
            for number, (draft, topic) in enumerate(zip(drafts, topics, strict=True)):
                self._stage(run, number, draft, topic)
        except StoreError as error:
            return [error] * len(drafts)
        except RecordError as error:
            return [MessageRefused(str(error))] * len(drafts)
        self._write(run, outcomes)
        return outcomes

    def _make_room(self, drafts: Sequence[Draft]) -> None:
        if self._sealed:
            for draft in drafts:
                draft.properties = with_room(draft.properties)

    def _stage(self, run: _Run, number: int, draft: Draft, topic: bytes) -> None:
        queue = self._queues.get_or_create(draft.topic, draft.queue_id)
        is_queued = not draft.sys_flag & _NOT_QUEUED
        queue_offset = run.next_offsets.get(queue, queue.max_offset) if is_queued else 0
        record = pack_record(
            topic=topic,
            body=draft.body,
            properties=draft.properties,
            queue_id=draft.queue_id,
            flag=draft.flag,
            queue_offset=queue_offset,
            physical_offset=run.offset,
            sys_flag=draft.sys_flag,
            born_timestamp_ms=draft.born_timestamp_ms,
            born_host=draft.born_host,
            store_timestamp_ms=self.timestamp_ms,
            store_host=self._store_host,
            reconsume_times=draft.reconsume_times,
            prepared_transaction_offset=draft.prepared_transaction_offset,
        )
        if self._sealed:
            record = seal(record)
        if is_queued:
            run.next_offsets[queue] = queue_offset + 1
        size = len(record)
        run.records.append(record)
        run.staged.append((number, draft, queue, queue_offset, run.offset, size))
        run.offset += size
        run.room -= size

    def _write(self, run: _Run, outcomes: list[Outcome]) -> None:
        if not run.records:
            return
        staged, run.staged = run.staged, []
        records, run.records = run.records, []
        try:
            self._log.append(b"".join(records))
        except StoreError as error:
            for number, *_ in staged:
                outcomes[number] = error
            return
        timestamp_ms = self.timestamp_ms
        for number, draft, queue, queue_offset, offset, size in staged:
            if not draft.sys_flag & _NOT_QUEUED:
                tags_code = draft.tags_code if not draft.delay_ms else timestamp_ms + draft.delay_ms
                queue.append(offset, size, tags_code)
                self._dispatcher.tell(draft.topic, draft.queue_id, queue_offset + 1, tags_code)
            if draft.keys and draft.sys_flag & _ROLLBACK != _ROLLBACK:
                self._dispatcher.index_later(Keyed(offset, timestamp_ms, draft.topic, draft.keys))
            outcomes[number] = Appended(offset, queue_offset, size, timestamp_ms)


_UNWRITTEN = StoreError("not written")


def _too_large(size: int, limit: int) -> MessageRefused:
    return MessageRefused(
        f"{size} bytes with topic, properties and fields, at most {limit} are taken: send less or raise maxMessageSize"
    )
