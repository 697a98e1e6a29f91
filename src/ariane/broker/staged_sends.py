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
from typing import Any

from ariane.broker.intake import Intake, means_durable
from ariane.broker.put_failures import put_failure
from ariane.broker.send_answers import Asked, SendAnswers, Stored, command_of
from ariane.errors import StoreError
from ariane.rpc.failures import failure
from ariane.rpc.handlers import encode_outcome
from ariane.store.draft import Appended, Draft
from ariane.store.message_store import MessageStore
from ariane.transport.connection import Connection
from ariane.wire.codes import ResponseCode

STAGED_BYTES_MAX = 1024 * 1024
"""Of chunks: with more of them the turn does not wait for its end. Larger appends would not be cheaper."""


class SendStage:
    """For the event loop alone."""

    def __init__(self, intake: Intake, store: MessageStore, answers: SendAnswers) -> None:
        self._intake = intake
        self._store = store
        self._answers = answers
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
            self._intake.stage(self.settle)
        if ordered:
            self._ordered += [len(self._drafts) + number for number in ordered]
        self._drafts += drafts
        if chunks and chunks[-1][0] is connection:
            chunks[-1][1].extend(asked)
        else:
            chunks.append((connection, asked))
        self._bytes += size
        if self._bytes >= STAGED_BYTES_MAX:
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
        answer = self._answer_now if taken == len(drafts) and not self._intake.is_sync else self._answer_each
        first = 0
        for connection, asked in chunks:
            last = first + len(asked)
            answer(connection, zip(asked, drafts[first:last], outcomes[first:last], strict=True))
            first = last

    def _append(self, drafts: list[Draft]) -> Sequence[Any]:
        """An Outcome for each draft, or the mistake of ours that kept it from having one."""
        try:
            return self._store.append(drafts)
        except Exception as error:  # those who wait are told, as by the dispatcher
            return [error] * len(drafts)

    def _count(self, drafts: list[Draft], outcomes: Sequence[Any], taken: int, ordered: list[int]) -> None:
        counters = self._intake.counters
        if taken:
            is_taken = [type(outcome) is Appended for outcome in outcomes] if taken < len(drafts) else repeat(True)
            topics = [draft.topic for draft in compress(drafts, is_taken)]
            sizes = [appended.size for appended in compress(outcomes, is_taken)]
            counters.put_all(topics, sizes, self._store.append_s)
        for number in ordered:
            if type(outcomes[number]) is Appended:
                counters.put_ordered(drafts[number].topic, outcomes[number].size)

    # --- answers ----------------------------------------------------------------------------------------------------

    def _answer_now(self, connection: Connection, stored: Iterable[Stored]) -> None:
        connection.write(self._answers.stored(stored))

    def _answer_each(self, connection: Connection, settled: Iterable[tuple[Asked, Draft, Any]]) -> None:
        intake = self._intake
        refusals: list[bytes | None] = []
        stored: list[Stored] = []
        waiting: list[Stored] = []
        for one in settled:
            asked, _, outcome = one
            if not isinstance(outcome, Appended):
                refusals.append(self._refused(connection, asked, outcome))
            elif intake.is_safe(outcome) or not means_durable(asked[2]):
                stored.append(one)
            else:
                waiting.append(one)
        connection.write(_joined(refusals) + self._answers.stored(stored))
        if waiting:
            connection.start(self._answer_when_durable(connection, waiting))

    async def _answer_when_durable(self, connection: Connection, waiting: list[Stored]) -> bytes:
        try:
            code = await self._intake.durable([appended for _, _, appended in waiting])
        except StoreError as error:
            return _joined(self._refused(connection, asked, error) for asked, _, _ in waiting)
        if code is ResponseCode.SUCCESS:
            return self._answers.stored(waiting)
        return _joined(self._answers.told(code, one) for one in waiting)

    def _refused(self, connection: Connection, asked: Asked, error: Exception) -> bytes | None:
        command = command_of(asked)
        if isinstance(error, StoreError):
            error = put_failure(error, self._store)
            self._intake.counters.rejected(error)
        return encode_outcome(command, failure(connection, command, error))


def _joined(answers: Iterable[bytes | None]) -> bytes:
    """Without those that nobody wants."""
    return b"".join(filter(None, answers))
