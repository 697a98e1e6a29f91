"""The appender: drafts into the commit log with one write, then their queue entries.

A write that fails changes nothing: offsets are taken, entries made and keys indexed only after the log has the bytes.
The loop in `append` is the broker's hot path for the common message; a message costs one packed head, one dict look-up
and one entry. An uncommon one - a new queue, a full file, an IPv6 host, a prepared transaction - leaves the same bytes
by `PendingWrite.add`.
"""

import struct
from collections.abc import Sequence
from contextlib import suppress
from operator import add

from ariane.clock import Clock
from ariane.errors import MessageRefused, RecordError, StoreError
from ariane.store.append.batch import AppendedBatch, DraftBatch, DraftBatchGroup
from ariane.store.append.batch_appender import append_batches
from ariane.store.append.draft import Appended, Draft, record_bytes
from ariane.store.commit_log.log import CommitLog
from ariane.store.consume_queue.entry import ENTRY
from ariane.store.consume_queue.new_entries import ends_of_numbered, pack_numbered
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.consume_queue.queues import ConsumeQueues
from ariane.store.dispatch import Dispatcher
from ariane.wire.host import HOST_BYTES_V4
from ariane.wire.record.batch import RecordBatch, RecordColumns, SharedFields
from ariane.wire.record.layout import (
    HOST_BITS,
    PLAIN_BYTES,
    add_checksum,
    pack_plain_record,
    pack_record,
    pack_stored,
    with_checksum_room,
)

AppendResult = Appended | StoreError

NOT_QUEUED = 0x4
"""The bit that both transaction types have that do not go to their queue: prepared (4) and rollback (12)."""

_ROLLBACK = 0xC  # not indexed either, as when the log is recovered (dispatch.py)


class PendingWrite:
    """Records that are written to one file at once, and what queues and index get when the log has them.

    A record takes its queue's next offset when it is added; `take_back` returns those that were not written.
    """

    __slots__ = (
        "counts",
        "end",
        "entries",
        "first",
        "offset",
        "parts",
        "physical",
        "queues",
        "tags_codes",
        "texts",
        "topics",
    )

    def __init__(self, commit_log: CommitLog, first: int) -> None:
        """`first` is the number of drafts before these."""
        self.first = first
        self.offset = commit_log.max_offset
        self.end = self.offset + commit_log.room()
        self.parts: list[bytes] = []
        """Records in pieces, to be joined once."""
        self.queues: list[ConsumeQueue] = []
        """Of each record that took an offset there: its queue, and the tags code of its entry."""
        self.tags_codes: list[int] = []
        self.entries = bytearray()
        """Output of `pack_numbered`."""
        # Of each message with keys: its offset, the hash of its topic, how many keys it has; and the keys of all.
        self.physical: list[int] = []
        self.topics: list[int] = []
        self.counts: list[int] = []
        self.texts: list[str] = []

    def all(self) -> "_Columns":
        """As local variables, for the loop in `append`."""
        return (
            self.offset,
            self.end,
            self.parts,
            self.queues,
            self.tags_codes,
            self.entries,
            self.physical,
            self.topics,
            self.counts,
            self.texts,
        )

    def take_back(self) -> None:
        """What is not written is not going to be: its queue offsets are free again."""
        for queue in self.queues:
            queue.max_offset -= 1
        self.queues = []

    def add(
        self, draft: Draft, queue: ConsumeQueue, timestamp_ms: int, store_host: bytes, with_checksum: bool
    ) -> Appended:
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
            tags_code = timestamp_ms + draft.delay_ms if draft.delay_ms else draft.tags_code
            self.entries += pack_numbered(queue.number, self.offset, len(record), tags_code)
            queue.max_offset = queue_offset + 1
            self.queues.append(queue)
            self.tags_codes.append(tags_code)
        if draft.keys and draft.sys_flag & _ROLLBACK != _ROLLBACK:
            self.physical.append(self.offset)
            self.topics.append(queue.topic_hash)
            self.counts.append(len(draft.keys))
            self.texts += draft.keys
        self.parts.append(add_checksum(record) if with_checksum else record)
        appended = Appended(self.offset, queue_offset, len(record), timestamp_ms)
        self.offset += len(record)
        return appended

    def dispatch(self, dispatcher: Dispatcher, timestamp_ms: int) -> None:
        """The log has the records: adds them to queues and index, and notifies listeners."""
        queues, self.queues = self.queues, []
        dispatcher.new_entries += self.entries
        if self.texts and dispatcher.has_index:
            dispatcher.keys.add(self.physical, self.texts, timestamp_ms, self.topics, self.counts)
        if dispatcher.gate is not None:
            dispatcher.gate.hold(queues, self.tags_codes, ends_of_numbered(self.entries))
        elif dispatcher.has_listeners:
            dispatcher.notify(queues, self.tags_codes)


_Columns = tuple[
    int, int, list[bytes], list[ConsumeQueue], list[int], bytearray, list[int], list[int], list[int], list[str]
]


# --- the appender -----------------------------------------------------------------------------------------------------

_pack_entry = ENTRY.pack
_UNCOMMON = HOST_BITS | NOT_QUEUED
_NONE: dict[int, ConsumeQueue] = {}


class _NotPlain(Exception):
    """Not the common message."""


class Appender:
    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        dispatcher: Dispatcher,
        clock: Clock,
        store_host: bytes,
        max_message_bytes: int,
        with_checksum: bool = False,
    ) -> None:
        """`with_checksum`: each record ends with a checksum over all of it."""
        self._log = commit_log
        self._queues = queues
        self._dispatcher = dispatcher
        self._clock = clock
        self._store_host = store_host
        self._max_message_bytes = max_message_bytes
        self._with_checksum = with_checksum
        self._plain_bytes_max = 0 if with_checksum or len(store_host) != HOST_BYTES_V4 else max_message_bytes
        self.timestamp_ms = 0
        """Of the last append. Store times never go back, whatever the clock does: search by time relies on it."""
        self._pending = PendingWrite(commit_log, 0)

    def _begin(self, drafts: Sequence[Draft]) -> None:
        now_ms = self._clock.now_ms()
        if now_ms > self.timestamp_ms:
            self.timestamp_ms = now_ms
        if self._with_checksum:
            for draft in drafts:
                draft.properties = with_checksum_room(draft.properties)

    def _new_pending(self, first: int = 0) -> PendingWrite:
        self._pending = PendingWrite(self._log, first)
        return self._pending

    # --- one by one -------------------------------------------------------------------------------------------------

    def append(self, drafts: Sequence[Draft]) -> list[AppendResult]:
        """The result of each draft. They may spread over two files when the active one ends between them."""
        try:
            return self._append(drafts)
        except BaseException:
            self._pending.take_back()
            raise

    def _append(self, drafts: Sequence[Draft]) -> list[AppendResult]:
        self._begin(drafts)
        outcomes: list[AppendResult] = []
        # Local variables rather than attributes, and one call for the common message: half the time.
        by_topic, timestamp_ms = self._queues.by_topic, self.timestamp_ms
        stored, size_max = pack_stored(timestamp_ms, self._store_host, 0, 0), self._plain_bytes_max
        pending = self._new_pending()
        offset, end, parts, queues, tags_codes, entries, physical, topics, counts, texts = pending.all()
        for draft in drafts:
            queue = by_topic.get(draft.topic, _NONE).get(draft.queue_id)
            try:
                if queue is None or draft.sys_flag & _UNCOMMON or len(draft.born_host) != HOST_BYTES_V4:
                    raise _NotPlain
                topic_part, body, properties = queue.topic_part, draft.body, draft.properties
                size = PLAIN_BYTES + len(topic_part) + len(body) + len(properties)
                if size > size_max or offset + size > end:
                    raise _NotPlain
                queue_offset = queue.max_offset
                tags_code = timestamp_ms + draft.delay_ms if draft.delay_ms else draft.tags_code
                entry = pack_numbered(queue.number, offset, size, tags_code)
                parts += pack_plain_record(draft, size, body, topic_part, properties, queue_offset, offset, stored)
            except (_NotPlain, struct.error):
                pending.offset = offset
                pending = self._append_uncommon(pending, draft, outcomes)
                offset, end, parts, queues, tags_codes, entries, physical, topics, counts, texts = pending.all()
                continue
            queue.max_offset = queue_offset + 1
            queues.append(queue)
            tags_codes.append(tags_code)
            entries += entry
            if keys := draft.keys:
                physical.append(offset)
                topics.append(queue.topic_hash)
                counts.append(len(keys))
                texts += keys
            outcomes.append(Appended(offset, queue_offset, size, timestamp_ms))
            offset += size
        self._write(pending, outcomes)
        return outcomes

    def _append_uncommon(self, pending: PendingWrite, draft: Draft, outcomes: list[AppendResult]) -> PendingWrite:
        """A new queue, a full file, a field out of its range. Returns the write to go on with."""
        size = record_bytes(draft, len(draft.topic), len(self._store_host))
        try:
            self._check_body(draft.body)
            self._check_size(size)
            if pending.offset + size > pending.end:
                self._write(pending, outcomes)
                pending = self._new_pending(len(outcomes))  # from where the log is now, should it not roll
                self._log.roll()
                pending = self._new_pending(len(outcomes))
            outcomes.append(self._add(pending, draft))
        except StoreError as error:
            outcomes.append(error)
        except RecordError as error:
            outcomes.append(MessageRefused(str(error)))
        return pending

    def _check_body(self, body: bytes) -> None:
        if len(body) > self._max_message_bytes:
            raise MessageRefused(
                f"a body of {len(body)} bytes, at most {self._max_message_bytes} are taken: send less or raise "
                "maxMessageSize"
            )

    def _check_size(self, size: int) -> None:
        """A record must fit one file. What it has beside its body has limits of its own, below Apache's 64 KiB."""
        limit = self._log.room_max
        if size > limit:
            raise MessageRefused(
                f"{size} bytes with topic, properties and fields, at most {limit} fit a file of the log: send less or "
                "raise mappedFileSizeCommitLog"
            )

    def _add(self, pending: PendingWrite, draft: Draft) -> Appended:
        queue = self._queues.get_or_create(draft.topic, draft.queue_id)
        return pending.add(draft, queue, self.timestamp_ms, self._store_host, self._with_checksum)

    def _write(self, pending: PendingWrite, outcomes: list[AppendResult]) -> None:
        if not pending.parts:
            return
        try:
            self._log.append(b"".join(pending.parts))
        except StoreError as error:
            for number in range(pending.first, len(outcomes)):
                if isinstance(outcomes[number], Appended):
                    outcomes[number] = error
            pending.take_back()
            return
        pending.dispatch(self._dispatcher, self.timestamp_ms)

    # --- all or none ------------------------------------------------------------------------------------------------

    def append_together(self, drafts: Sequence[Draft]) -> list[AppendResult]:
        """Drafts in one file, and all or none, as Apache keeps a client's batch."""
        self._begin(drafts)
        outcomes: list[AppendResult] = []
        total = sum(record_bytes(draft, len(draft.topic.encode()), len(self._store_host)) for draft in drafts)
        try:
            pending = self._pending_for(total)
            for draft in drafts:
                self._check_body(draft.body)
                outcomes.append(self._add(pending, draft))
            self._write(pending, outcomes)
        except StoreError as error:
            outcomes = [error] * len(drafts)
        except RecordError as error:
            outcomes = [MessageRefused(str(error))] * len(drafts)
        finally:
            self._pending.take_back()  # what was not written
        return outcomes

    def _pending_for(self, size: int) -> PendingWrite:
        """A write with room for so many bytes: where the log ends, or in a new file."""
        self._check_size(size)
        if size > self._log.room():
            self._log.roll()
        return self._new_pending()

    def append_batch(self, batch: DraftBatch) -> AppendedBatch | StoreError:
        """A client's batch, at least one message: in one file, and all or none. The caller has checked its size."""
        try:
            if not self._with_checksum:
                return self._append_batch(batch)
        except StoreError as error:
            return error
        except RecordError as error:
            return MessageRefused(str(error))
        outcomes = self.append_together(batch.drafts())
        failed = next((outcome for outcome in outcomes if isinstance(outcome, StoreError)), None)
        return failed or AppendedBatch.of(outcome for outcome in outcomes if isinstance(outcome, Appended))

    def _append_batch(self, batch: DraftBatch) -> AppendedBatch:
        self._begin(())
        queue = self._queues.get_or_create(batch.topic, batch.queue_id)
        records = RecordBatch(
            RecordColumns(batch.bodies, batch.properties, batch.flags),
            SharedFields(
                queue.topic_part[1:],
                batch.queue_id,
                batch.sys_flag,
                batch.born_timestamp_ms,
                batch.born_host,
                self._store_host,
                batch.reconsume_times,
                batch.properties_end,
            ),
        )
        offset, queue_offset, timestamp_ms = self._pending_for(records.size).offset, queue.max_offset, self.timestamp_ms
        data, offsets = records.pack(offset, queue_offset, timestamp_ms)
        entries = b"".join(map(_pack_entry, offsets, records.sizes, batch.tags_codes))
        self._log.append(data)
        queue.append_packed(entries, len(offsets))
        if self._dispatcher.has_index:
            counts = batch.keys.of_each(len(offsets))
            self._dispatcher.keys.add(
                offsets, batch.keys.texts, timestamp_ms, [queue.topic_hash] * len(offsets), counts
            )
        self._dispatcher.publish_batch(queue, batch.tags_codes, map(add, offsets, records.sizes))
        return AppendedBatch(offsets, records.sizes, queue_offset, timestamp_ms)

    def append_batches(self, drafts: DraftBatchGroup) -> list[AppendedBatch | StoreError]:
        """Several batches, each all or none: with one write if they can be, else one by one."""
        together: list[AppendedBatch] | None = None
        if not self._with_checksum and not drafts.are_few:
            self._begin(())
            parts = self._log, self._queues, self._dispatcher
            with suppress(StoreError, RecordError):  # nothing has changed; one by one each gets its own error
                together = append_batches(drafts, *parts, self._store_host, self.timestamp_ms)
        return [self.append_batch(batch) for batch in drafts.each()] if together is None else [*together]
