"""Outcomes of one turn of the event loop, of all connections, written together and answered together.

As for sends (staged_sends.py): an append costs as much as several messages, so all outcomes of a turn share theirs.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from ariane.broker.intake import Intake
from ariane.broker.put_failures import put_failure
from ariane.broker.transactions.endings import Ending, Transactions
from ariane.errors import StoreError
from ariane.rpc.failures import failure
from ariane.rpc.handlers import Call, encode_outcome
from ariane.store.draft import Appended
from ariane.store.message_store import MessageStore
from ariane.transport.connection import Connection
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Answer
from ariane.wire.requests.transactions import Decision, EndTransaction

log = logging.getLogger(__name__)

STAGED_BYTES_MAX = 1024 * 1024
"""Of half messages: with more of them the turn does not wait for its end, which also bounds what is kept here."""


class _Staged(NamedTuple):
    ending: Ending
    ask: EndTransaction
    call: Call


class EndingStage:
    """For the event loop alone."""

    def __init__(self, transactions: Transactions, store: MessageStore, intake: Intake) -> None:
        self._transactions = transactions
        self._store = store
        self._intake = intake
        self._staged: dict[int, _Staged] = {}  # by the first offset of the transaction
        self._bytes = 0
        transactions.before_others(self.settle)

    def add(self, ask: EndTransaction, call: Call, record: memoryview | None) -> bool:
        """Whether it is staged; if not, it says nothing new. RequestFailed when it does not fit the half message."""
        ending = self._transactions.judged(ask, record)
        if ending is not None and ending.half.first_offset in self._staged:
            self.settle()  # the first one of this turn is final, or was not taken
            ending = self._transactions.judged(ask, record)
        if ending is None:
            return False
        if not self._staged:
            asyncio.get_running_loop().call_soon(self.settle)
        self._staged[ending.half.first_offset] = _Staged(ending, ask, call)
        self._bytes += ending.half.view.size
        if self._bytes >= STAGED_BYTES_MAX:
            self.settle()
        return True

    def settle(self) -> None:
        """Writes all that is staged, and answers what need not wait for a sync."""
        if not self._staged:
            return
        staged, self._staged, self._bytes = list(self._staged.values()), {}, 0
        by_connection: dict[Connection, list[tuple[_Staged, Any]]] = {}
        for one, written in zip(staged, self._write(staged), strict=True):
            by_connection.setdefault(one.call.connection, []).append((one, written))
        for connection, settled in by_connection.items():
            self._answer(connection, settled)

    def _write(self, staged: list[_Staged]) -> Sequence[Any]:
        """What was written for each, or the mistake of ours that kept it from being so."""
        try:
            return self._transactions.write([one.ending for one in staged])
        except Exception as error:  # those who wait are told, as by the dispatcher
            return [error] * len(staged)

    # --- answers ----------------------------------------------------------------------------------------------------

    def _answer(self, connection: Connection, settled: list[tuple[_Staged, Any]]) -> None:
        answers: list[bytes | None] = []
        waiting: list[tuple[Call, Appended]] = []
        for (ending, ask, call), written in settled:
            if isinstance(written, Exception):
                answers.append(self._refused(ask, call, written))
                continue
            is_commit = ending.decision is Decision.COMMIT
            self._intake.counters.ended(ending.half.real_topic, is_commit=is_commit)
            if call.command.is_oneway:
                continue
            if self._intake.is_safe(written[-1]):
                answers.append(encode_outcome(call.command, Answer()))
            else:
                waiting.append((call, written[-1]))
        if answers:
            connection.write(_joined(answers))
        if waiting:
            connection.start(self._answer_when_durable(waiting))

    async def _answer_when_durable(self, waiting: list[tuple[Call, Appended]]) -> bytes:
        """With SYNC_FLUSH only when all of it is durable."""
        try:
            code = await self._intake.durable([last for _, last in waiting])
            answer = Answer(code=code, remark=None if code == ResponseCode.SUCCESS else code.name)
        except StoreError as error:
            refusal = put_failure(error, self._store)
            answer = Answer(code=refusal.code, remark=refusal.remark)
        return _joined([encode_outcome(call.command, answer) for call, _ in waiting])

    def _refused(self, ask: EndTransaction, call: Call, error: Exception) -> bytes | None:
        if isinstance(error, StoreError):
            error = put_failure(error, self._store)
            tell_refused(ask, call, error.remark)
        return encode_outcome(call.command, failure(call.connection, call.command, error))


def tell_refused(ask: EndTransaction, call: Call, reason: str) -> None:
    """Most producers do not look at the answer: the log is where somebody will."""
    log.warning(
        "outcome of a transaction not taken",
        extra={
            "group": ask.producer_group,
            "decision": ask.commit_or_rollback,
            "after_check": ask.from_transaction_check,
            "id": ask.msg_id,
            "peer": call.connection.peer,
            "reason": reason,
        },
    )


def _joined(answers: Sequence[bytes | None]) -> bytes:
    """Without those that nobody wants."""
    return b"".join(filter(None, answers))
