"""Sends of one turn of the event loop, of all connections, stored by one append and answered together.

    chunk of connection 1 ─┐                                        ┌─► one write to connection 1
    chunk of connection 2 ─┼─► staged ──(the turn ends)──► append ──┼─► one write to connection 2
    chunk of connection 3 ─┘                                        └─► one write to connection 3

What an append costs besides its messages is as much as several of them, and so is a write to a socket. Clients that
have many messages in flight send dozens at once, so both are shared: 16 connections with 16 messages each pay for one
append and 16 writes, and a message takes two thirds of what it takes with an append for each connection. With
SYNC_FLUSH all messages of a connection wait for one sync in one task.
"""

from collections.abc import Iterable, Sequence
from itertools import compress, repeat
from typing import Any, NamedTuple

import msgspec

from ariane.broker.send.batch import Contents, ContentsReader
from ariane.broker.send.responses import Asked, SendResponses, Stored, command_of
from ariane.broker.writer import MessageWriter, means_durable, store_error_response
from ariane.errors import MessageRefused, StoreError
from ariane.rpc.failures import failure
from ariane.rpc.handlers import encode_result
from ariane.store.append.batch import AppendedBatch, BatchPlan, DraftBatchGroup, UniformSizes
from ariane.store.append.draft import Appended, Draft
from ariane.store.message_store import MessageStore
from ariane.transport.connection import Connection
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.fast_frames import SendFields
from ariane.wire.frame import Command

SEND_BYTES_MAX = 1024 * 1024
"""Of chunks: with more of them the turn does not wait for its end. Larger appends would not be cheaper."""


class SendCoalescer:
    """For the event loop alone."""

    def __init__(self, writer: MessageWriter, store: MessageStore, responses: SendResponses) -> None:
        self._writer = writer
        self._store = store
        self._answers = responses
        self._drafts: list[Draft] = []
        self._chunks: list[tuple[Connection, list[Asked]]] = []
        self._ordered: list[int] = []
        self._bytes = 0

    def add(
        self, connection: Connection, drafts: list[Draft], asked: list[Asked], ordered: Sequence[int], size: int
    ) -> None:
        """Drafts from one connection, in its order. `ordered` are the numbers of those that have a sharding key."""
        chunks = self._chunks
        if not chunks:
            self._writer.stage(self.settle)
        if ordered:
            self._ordered += [len(self._drafts) + number for number in ordered]
        self._drafts += drafts
        if chunks and chunks[-1][0] is connection:
            chunks[-1][1].extend(asked)
        else:
            chunks.append((connection, asked))
        self._bytes += size
        if self._bytes >= SEND_BYTES_MAX:
            self.settle()

    def settle(self) -> None:
        """Stores all that is staged, and answers what need not wait for a sync."""
        drafts, chunks, ordered = self._drafts, self._chunks, self._ordered
        if not chunks:
            return
        self._drafts, self._chunks, self._ordered, self._bytes = [], [], [], 0
        outcomes = self._append(drafts)
        taken = list(map(type, outcomes)).count(Appended)
        self._count(drafts, outcomes, taken, ordered)
        # One look at all of them: a check for each message and whether it must wait would take 0.2 us a message.
        response = self._answer_now if taken == len(drafts) and not self._writer.is_sync else self._answer_each
        first = 0
        for connection, asked in chunks:
            last = first + len(asked)
            response(connection, zip(asked, drafts[first:last], outcomes[first:last], strict=True))
            first = last

    def _append(self, drafts: list[Draft]) -> Sequence[Any]:
        """An Outcome for each draft, or the mistake of ours that kept it from having one."""
        try:
            return self._store.append(drafts)
        except Exception as error:  # those who wait are told, as by the dispatcher
            return [error] * len(drafts)

    def _count(self, drafts: list[Draft], outcomes: Sequence[Any], taken: int, ordered: list[int]) -> None:
        counters = self._writer.counters
        if taken:
            is_taken = [type(outcome) is Appended for outcome in outcomes] if taken < len(drafts) else repeat(True)
            topics = [draft.topic for draft in compress(drafts, is_taken)]
            sizes = [appended.size for appended in compress(outcomes, is_taken)]
            counters.put_all(topics, sizes, self._store.append_s)
        for number in ordered:
            if type(outcomes[number]) is Appended:
                counters.put_ordered(drafts[number].topic, outcomes[number].size)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answer_now(self, connection: Connection, stored: Iterable[Stored]) -> None:
        connection.write(self._answers.stored(stored))

    def _answer_each(self, connection: Connection, settled: Iterable[tuple[Asked, Draft, Any]]) -> None:
        writer = self._writer
        refusals: list[bytes | None] = []
        stored: list[Stored] = []
        waiting: list[Stored] = []
        for one in settled:
            asked, _, outcome = one
            if not isinstance(outcome, Appended):
                refusals.append(self._refused(connection, asked, outcome))
            elif writer.is_safe(outcome) or not means_durable(asked[2]):
                stored.append(one)
            else:
                waiting.append(one)
        connection.write(_joined(refusals) + self._answers.stored(stored))
        if waiting:
            connection.start_handler(self._answer_when_durable(connection, waiting))

    async def _answer_when_durable(self, connection: Connection, waiting: list[Stored]) -> bytes:
        try:
            code = await self._writer.durable([appended for _, _, appended in waiting])
        except StoreError as error:
            return _joined(self._refused(connection, asked, error) for asked, _, _ in waiting)
        if code is ResponseCode.SUCCESS:
            return self._answers.stored(waiting)
        return _joined(self._answers.told(code, one) for one in waiting)

    def _refused(self, connection: Connection, asked: Asked, error: Exception) -> bytes | None:
        command = command_of(asked)
        if isinstance(error, StoreError):
            error = store_error_response(error, self._store)
            self._writer.counters.rejected(error)
        return encode_result(command, failure(connection, command, error))


def _joined(responses: Iterable[bytes | None]) -> bytes:
    """Without those that nobody wants."""
    return b"".join(filter(None, responses))


# --- batch_answers ---
#
# What became of batches that were stored together, told to those who sent them.

_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)


class BatchRequest(NamedTuple):
    opaque: int
    queue_id: int
    unique_key: str | None
    """Of the batch, not of its messages; it can stand in JSON as it is."""
    wait: bool
    """Whether the producer waits for durability."""


Waiting = list[tuple[BatchRequest, AppendedBatch]]


class BatchResponses:
    def __init__(self, writer: MessageWriter, store: MessageStore, responses: SendResponses) -> None:
        self._writer = writer
        self._store = store
        self._answers = responses

    def tell(self, connection: Connection, outcomes: Iterable[tuple[BatchRequest, AppendedBatch | Exception]]) -> None:
        """All answers that need not wait for a sync in one write, the others in one task."""
        parts: list[bytes | None] = []
        waiting: Waiting = []
        for request, outcome in outcomes:
            if not isinstance(outcome, AppendedBatch):
                parts.append(self._refused(connection, request, outcome))
            elif request.wait and self._writer.is_sync and not self._writer.is_safe(outcome[-1]):
                waiting.append((request, outcome))
            else:
                parts.append(self._stored(request, outcome))
        connection.write(_joined(parts))
        if waiting:
            connection.start_handler(self._tell_when_durable(connection, waiting))

    async def _tell_when_durable(self, connection: Connection, waiting: Waiting) -> bytes:
        try:
            code = await self._writer.durable([one for _, batch in waiting for one in batch])
        except StoreError as error:
            return _joined(self._refused(connection, request, error) for request, _ in waiting)
        if code is ResponseCode.SUCCESS:
            return _joined(self._stored(request, batch) for request, batch in waiting)
        return _joined(self._told(code, request, batch) for request, batch in waiting)

    def _stored(self, request: BatchRequest, batch: AppendedBatch) -> bytes:
        return self._answers.batch_stored(request.opaque, request.unique_key, request.queue_id, batch)

    def _told(self, code: ResponseCode, request: BatchRequest, batch: AppendedBatch) -> bytes | None:
        response = self._answers.answer(code, batch, request.queue_id, request.unique_key)
        return encode_result(_command(request), response)

    def _refused(self, connection: Connection, request: BatchRequest, error: Exception) -> bytes | None:
        if isinstance(error, StoreError):
            error = store_error_response(error, self._store)
            self._writer.counters.rejected(error)
        return encode_result(_command(request), failure(connection, _command(request), error))


def _command(request: BatchRequest) -> Command:
    """What was asked, as far as an answer depends on it."""
    return Command(code=_BATCH, opaque=request.opaque)


# --- staged_batches ---
#
# Batches of one turn of the event loop, of all connections: stored together, and each told to whoever sent it.
#
#     chunk of connection 1 ─┐                                                                     ┌─► one write to 1
#     chunk of connection 2 ─┼─► runs of one topic and shape ──(the turn ends)──► an append each ──┼─► one write to 2
#     chunk of connection 3 ─┘                                                                     └─► one write to 3
#
# What numpy costs however long its arrays are is as much as hundreds of messages cost (docs/decisions/send-path.md). So
# it is paid once a run, and a run is as long as the turn allows: with many connections that have few batches each, a
# read brings too little to share it.
#
# Only here it shows whether a batch can be read. One that cannot is refused as by the general way, and does not take
# with it those that share its run: the run is halved until it stands alone.

BATCH_BYTES_MAX = 512 * 1024
"""With more of them the turn does not wait for its end: larger runs would not be cheaper."""

Outcomes = Sequence[AppendedBatch | Exception]


class BatchKind(NamedTuple):
    """What the batches of a run share."""

    topic: str
    shape: UniformSizes | None
    """Of the first items, if all may have it."""
    host_bytes: int


class PendingBatch(msgspec.Struct, gc=False):
    connection: Connection
    asked: BatchRequest
    fields: SendFields
    sys_flag: int
    born_host: bytes
    body: memoryview

    def plan(self, messages: int) -> BatchPlan:
        """How many there are shows when the body is read."""
        fields = self.fields
        times = fields.reconsume_times or 0
        return BatchPlan(messages, fields.queue_id, self.sys_flag, fields.born_timestamp, self.born_host, times)


class BatchCoalescer:
    """For the event loop alone."""

    def __init__(self, writer: MessageWriter, responses: BatchResponses) -> None:
        self._writer = writer
        self._answers = responses
        self._contents = ContentsReader()
        self._runs: list[tuple[BatchKind, list[PendingBatch]]] = []
        self._bytes = 0

    def add(self, kind: BatchKind, batch: PendingBatch) -> None:
        if not self._runs:
            self._writer.stage(self.settle)
        if self._runs and self._runs[-1][0] == kind:
            self._runs[-1][1].append(batch)
        else:
            self._runs.append((kind, [batch]))
        self._bytes += len(batch.body)
        if self._bytes >= BATCH_BYTES_MAX:
            self.settle()

    def settle(self) -> None:
        """Stores all that is staged, and answers what need not wait for a sync."""
        if not self._runs:
            return
        runs, self._runs, self._bytes = self._runs, [], 0
        told: dict[Connection, list[tuple[BatchRequest, AppendedBatch | Exception]]] = {}
        for kind, batches in runs:
            for batch, outcome in zip(batches, self._store(kind, batches), strict=True):
                told.setdefault(batch.connection, []).append((batch.asked, outcome))
        for connection, outcomes in told.items():
            self._answers.tell(connection, outcomes)

    def _store(self, kind: BatchKind, batches: list[PendingBatch]) -> Outcomes:
        """What became of each batch, or the mistake of ours that kept it from having an outcome."""
        try:
            contents = self._contents.read([batch.body for batch in batches], kind.shape)
            return self._writer.append_batches(_drafts(kind, batches, contents))
        except MessageRefused as error:
            half = len(batches) // 2
            return [*self._store(kind, batches[:half]), *self._store(kind, batches[half:])] if half else [error]
        except Exception as error:  # those who wait are told, as by the dispatcher
            return [error] * len(batches)


def _drafts(kind: BatchKind, batches: list[PendingBatch], contents: Contents) -> DraftBatchGroup:
    return DraftBatchGroup(
        topic=kind.topic,
        plans=list(map(PendingBatch.plan, batches, contents.counts)),
        items=contents.items,
        properties_end=contents.properties_end,
        tags_codes=contents.tags_codes,
        keys=contents.keys,
    )
