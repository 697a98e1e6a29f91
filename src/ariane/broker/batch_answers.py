"""What became of batches that were stored together, told to those who sent them."""

from collections.abc import Iterable
from typing import NamedTuple

from ariane.broker.intake import Intake
from ariane.broker.put_failures import put_failure
from ariane.broker.send_answers import SendAnswers
from ariane.errors import StoreError
from ariane.rpc.failures import failure
from ariane.rpc.handlers import encode_outcome
from ariane.store.draft_batch import AppendedBatch
from ariane.store.message_store import MessageStore
from ariane.transport.connection import Connection
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.command import Command

_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)


class AskedBatch(NamedTuple):
    opaque: int
    queue_id: int
    unique_key: str | None
    """Of the batch, not of its messages; it can stand in JSON as it is."""
    wait: bool
    """Whether the producer waits for durability."""


Waiting = list[tuple[AskedBatch, AppendedBatch]]


class BatchAnswers:
    def __init__(self, intake: Intake, store: MessageStore, answers: SendAnswers) -> None:
        self._intake = intake
        self._store = store
        self._answers = answers

    def tell(self, connection: Connection, outcomes: Iterable[tuple[AskedBatch, AppendedBatch | Exception]]) -> None:
        """All answers that need not wait for a sync in one write, the others in one task."""
        parts: list[bytes | None] = []
        waiting: Waiting = []
        for ask, outcome in outcomes:
            if not isinstance(outcome, AppendedBatch):
                parts.append(self._refused(connection, ask, outcome))
            elif ask.wait and self._intake.is_sync and not self._intake.is_safe(outcome[-1]):
                waiting.append((ask, outcome))
            else:
                parts.append(self._stored(ask, outcome))
        connection.write(_joined(parts))
        if waiting:
            connection.start(self._tell_when_durable(connection, waiting))

    async def _tell_when_durable(self, connection: Connection, waiting: Waiting) -> bytes:
        try:
            code = await self._intake.durable([one for _, batch in waiting for one in batch])
        except StoreError as error:
            return _joined(self._refused(connection, ask, error) for ask, _ in waiting)
        if code is ResponseCode.SUCCESS:
            return _joined(self._stored(ask, batch) for ask, batch in waiting)
        return _joined(self._told(code, ask, batch) for ask, batch in waiting)

    def _stored(self, ask: AskedBatch, batch: AppendedBatch) -> bytes:
        return self._answers.batch_stored(ask.opaque, ask.unique_key, ask.queue_id, batch)

    def _told(self, code: ResponseCode, ask: AskedBatch, batch: AppendedBatch) -> bytes | None:
        answer = self._answers.answer(code, batch, ask.queue_id, ask.unique_key)
        return encode_outcome(_command(ask), answer)

    def _refused(self, connection: Connection, ask: AskedBatch, error: Exception) -> bytes | None:
        if isinstance(error, StoreError):
            error = put_failure(error, self._store)
            self._intake.counters.rejected(error)
        return encode_outcome(_command(ask), failure(connection, _command(ask), error))


def _command(ask: AskedBatch) -> Command:
    """What was asked, as far as an answer depends on it."""
    return Command(code=_BATCH, opaque=ask.opaque)


def _joined(answers: Iterable[bytes | None]) -> bytes:
    """Without those that nobody wants."""
    return b"".join(filter(None, answers))
