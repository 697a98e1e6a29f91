"""Drafts into the log: one pass over a chunk of messages, one write, then their queue entries.

A write that fails changes nothing: offsets are taken, entries made and keys noted only after the log has the bytes. The
straight line in `append` is the broker's hot path; a message costs one packed head, one dict look-up and one entry.
"""

import struct
from collections.abc import Sequence
from contextlib import suppress

from ariane.clock import Clock
from ariane.errors import MessageRefused, RecordError, StoreError
from ariane.store.append.batch import AppendedBatch, DraftBatch, DraftBatchGroup
from ariane.store.append.batch_appender import append_batches
from ariane.store.append.draft import Appended, Draft, record_bytes
from ariane.store.commit_log.log import CommitLog
from ariane.store.consume_queue.entry import ENTRY
from ariane.store.consume_queue.new_entries import pack_numbered
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.consume_queue.queues import ConsumeQueues
from ariane.store.dispatch import Arrivals, Dispatcher
from ariane.wire.hashes import crc32
from ariane.wire.record.batch import RecordBatch, RecordColumns, SharedFields
from ariane.wire.record.layout import (
    HEAD_V4,
    HOST_BITS,
    MAGIC_V1,
    RECORD_BYTES_MIN,
    SHORT,
    add_checksum,
    pack_record,
    with_checksum_room,
)

# --- append_run ---
#
# Records on their way into one file: packed and numbered first, known to queues and index only when they are written.
#
# A record takes its queue's next number at once; `PendingWrite.take_back` returns those that were not written.
# Here a message is looked at in general. The straight line for the usual one is in append.py, and leaves the same
# bytes.

AppendResult = Appended | StoreError

NOT_QUEUED = 0x4
"""The bit that both transaction types have that do not go to their queue: prepared (4) and rollback (12)."""

_ROLLBACK = 0xC  # not indexed either, as when the log is read again (dispatch.py)

Staged = tuple[int, Draft, ConsumeQueue, int, int, int]
"""The number of a draft, the draft, its queue, queue offset, physical offset, and the size of its record."""


class PendingWrite:
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
        self.parts.append(add_checksum(record) if sealed else record)
        self.staged.append((number, draft, queue, queue_offset, self.offset, len(record)))
        self.offset += len(record)


def dispatch(staged: list[Staged], dispatcher: Dispatcher, timestamp_ms: int, outcomes: list[AppendResult]) -> None:
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
        dispatcher.notify(arrivals)


# ---

_pack_head = HEAD_V4.pack
_pack_short = SHORT.pack
_pack_entry = ENTRY.pack
_BARE_BYTES = RECORD_BYTES_MIN - 1  # without the topic and its length
_RARE = HOST_BITS | NOT_QUEUED
_NONE: dict[int, ConsumeQueue] = {}


class _Rare(Exception):
    """Not the usual message."""


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
        self._run = PendingWrite(commit_log)

    def _begin(self, drafts: Sequence[Draft]) -> None:
        self.timestamp_ms = max(self.timestamp_ms, self._clock.now_ms())
        if self._sealed:
            for draft in drafts:
                draft.properties = with_checksum_room(draft.properties)

    def _new_run(self) -> PendingWrite:
        self._run = PendingWrite(self._log)
        return self._run

    # --- one by one -------------------------------------------------------------------------------------------------

    def append(self, drafts: Sequence[Draft]) -> list[AppendResult]:
        """What became of each draft. They may spread over two files when the active one ends between them."""
        try:
            return self._append(drafts)
        except BaseException:
            self._run.take_back()
            raise

    def _append(self, drafts: Sequence[Draft]) -> list[AppendResult]:
        self._begin(drafts)
        outcomes: list[AppendResult] = [_UNWRITTEN] * len(drafts)
        # Names of this function rather than attributes, and no call of ours for the usual message: half the time.
        by_topic, timestamp_ms, store_host = self._queues.by_topic, self.timestamp_ms, self._store_host
        size_max = 0 if self._sealed or len(store_host) != 8 else self._max_message_bytes
        run = self._new_run()
        offset, end, parts, staged = run.all()
        for number, draft in enumerate(drafts):
            queue = by_topic.get(draft.topic, _NONE).get(draft.queue_id)
            body, properties, born_host = draft.body, draft.properties, draft.born_host
            try:
                if queue is None or draft.sys_flag & _RARE or len(born_host) != 8:
                    raise _Rare
                size = _BARE_BYTES + len(queue.topic_part) + len(body) + len(properties)
                if size > size_max or offset + size > end:
                    raise _Rare
                queue_offset = queue.max_offset
                head = _pack_head(
                    size,
                    MAGIC_V1,
                    crc32(body),
                    draft.queue_id,
                    draft.flag,
                    queue_offset,
                    offset,
                    draft.sys_flag,
                    draft.born_timestamp_ms,
                    born_host,
                    timestamp_ms,
                    store_host,
                    draft.reconsume_times,
                    draft.prepared_transaction_offset,
                    len(body),
                )
                parts += (head, body, queue.topic_part, _pack_short(len(properties)), properties)
            except (_Rare, struct.error):
                run.offset = offset
                run = self._append_rare(run, number, draft, outcomes)
                offset, end, parts, staged = run.all()
                continue
            queue.max_offset = queue_offset + 1
            staged.append((number, draft, queue, queue_offset, offset, size))
            offset += size
        self._write(run, outcomes)
        return outcomes

    def _append_rare(self, run: PendingWrite, number: int, draft: Draft, outcomes: list[AppendResult]) -> PendingWrite:
        """For all but the usual message: a new queue, a file that is full, a field out of its range; the run to use."""
        size = record_bytes(draft, len(draft.topic), len(self._store_host))
        try:
            self._check_size(size)
            if run.offset + size > run.end:
                self._write(run, outcomes)
                run = self._new_run()  # from where the log is now, should it not roll
                self._log.roll()
                run = self._new_run()
            self._stage(run, number, draft)
        except StoreError as error:
            outcomes[number] = error
        except RecordError as error:
            outcomes[number] = MessageRefused(str(error))
        return run

    def _check_size(self, size: int) -> None:
        limit = min(self._max_message_bytes, self._log.room_max)
        if size > limit:
            raise MessageRefused(
                f"{size} bytes with topic, properties and fields, at most {limit} are taken: send less or raise "
                "maxMessageSize, which must stay below mappedFileSizeCommitLog"
            )

    def _stage(self, run: PendingWrite, number: int, draft: Draft) -> None:
        queue = self._queues.get_or_create(draft.topic, draft.queue_id)
        run.stage(number, draft, queue, self.timestamp_ms, self._store_host, self._sealed)

    def _write(self, run: PendingWrite, outcomes: list[AppendResult]) -> None:
        if not run.parts:
            return
        try:
            self._log.append(b"".join(run.parts))
        except StoreError as error:
            for number, *_ in run.staged:
                outcomes[number] = error
            run.take_back()
            return
        dispatch(run.take(), self._dispatcher, self.timestamp_ms, outcomes)

    # --- all or none ------------------------------------------------------------------------------------------------

    def append_together(self, drafts: Sequence[Draft]) -> list[AppendResult]:
        """Drafts in one file, and all or none, as Apache keeps a client's batch."""
        self._begin(drafts)
        outcomes: list[AppendResult] = [_UNWRITTEN] * len(drafts)
        total = sum(record_bytes(draft, len(draft.topic.encode()), len(self._store_host)) for draft in drafts)
        try:
            run = self._run_of(total)
            for number, draft in enumerate(drafts):
                self._stage(run, number, draft)
            self._write(run, outcomes)
        except StoreError as error:
            outcomes = [error] * len(drafts)
        except RecordError as error:
            outcomes = [MessageRefused(str(error))] * len(drafts)
        finally:
            self._run.take_back()  # what was not written
        return outcomes

    def _run_of(self, size: int) -> PendingWrite:
        """A run that has room for so many bytes: where the log ends, or in a new file."""
        self._check_size(size)
        if size > self._log.room():
            self._log.roll()
        return self._new_run()

    def append_batch(self, batch: DraftBatch) -> AppendedBatch | StoreError:
        """A client's batch, at least one message: in one file, and all or none."""
        try:
            if not self._sealed:
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
        offset, queue_offset, timestamp_ms = self._run_of(records.size).offset, queue.max_offset, self.timestamp_ms
        data, offsets = records.pack(offset, queue_offset, timestamp_ms)
        entries = b"".join(map(_pack_entry, offsets, records.sizes, batch.tags_codes))
        self._log.append(data)
        queue.append_packed(entries, len(offsets))
        if self._dispatcher.has_index:
            places = batch.keys.of_each(offsets)
            self._dispatcher.keys.add(places, batch.keys.texts, timestamp_ms, (batch.topic,), (len(places),))
        self._dispatcher.notify({(queue, code): queue.max_offset for code in set(batch.tags_codes)})
        return AppendedBatch(offsets, records.sizes, queue_offset, timestamp_ms)

    def append_batches(self, drafts: DraftBatchGroup) -> list[AppendedBatch | StoreError]:
        """Several batches, each all or none: with one write if they can be, else one by one."""
        together: list[AppendedBatch] | None = None
        if not self._sealed and not drafts.are_few:
            self._begin(())
            parts = self._log, self._queues, self._dispatcher
            limit = min(self._max_message_bytes, self._log.room_max)
            with suppress(StoreError, RecordError):  # nothing has changed; appended one by one, each tells its own
                together = append_batches(drafts, *parts, self._store_host, self.timestamp_ms, limit)
        return [self.append_batch(batch) for batch in drafts.each()] if together is None else [*together]


_UNWRITTEN = StoreError("not written")
