"""The outcome of transactions: commit makes the real message, rollback makes nothing, and an op message says so.

The order is the promise. The real message is in the log before the op message is: a broker that dies between the two
asks the producer again and delivers twice. The other way round it would lose the message.

    outcomes of one turn ──► append of all real messages ──► append of the op messages of those that are in the log

Two appends and not one: an append takes what it can, and would take an op message whose real message did not fit.

An outcome is taken once. Producers tell theirs again when they did not hear the answer, and when a question crosses
their answer; Apache's broker delivers each time. Here the first outcome is final: what is over stays over.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ariane.broker.groups.offsets import ConsumerOffsets
from ariane.broker.transactions.half_messages import HalfMessage, HalfRecord, op_message, real, real_to_defer, reopened
from ariane.broker.transactions.pending import StoredQueue, half_queue, load_pending
from ariane.broker.writer import DEFERRING, InboundMessage, MessageWriter, draft_of, store_error_response
from ariane.clock import Clock
from ariane.errors import MessageRefused, RecordError, RequestFailed, StoreError
from ariane.model.message import Property
from ariane.model.system_topics import TRANS_CHECK_MAX, TRANS_HALF
from ariane.rpc.failures import failure
from ariane.rpc.handlers import DEFERRED, Call, Deferred, encode_result, handles
from ariane.store.append.appender import AppendResult
from ariane.store.append.draft import Appended, Draft
from ariane.store.blocking_io import IoSteps, run_in_executor
from ariane.store.message_store import MessageStore
from ariane.transport.connection import Connection
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Response
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.record.read import RecordView, verify
from ariane.wire.requests.send import Decision, EndTransaction, ResumeTransactionChecks

log = logging.getLogger(__name__)

_REMEMBERED_MAX = 10_000

_COMMIT = Decision.COMMIT
_DECISIONS = {int(decision): decision for decision in Decision}


class Outcome(NamedTuple):
    """An outcome that fits, and is not written yet."""

    half: HalfRecord
    newest: int
    """Where the half message waits: itself, or its newest copy."""
    decision: Decision


Written = tuple[Appended, ...] | StoreError
"""What was written for an outcome, one record at least; or why it was not taken."""


class Transactions:
    """For the event loop alone; nothing here suspends, so two outcomes of one message cannot meet."""

    def __init__(self, store: MessageStore, writer: MessageWriter, offsets: ConsumerOffsets, clock: Clock) -> None:
        """Reads both queues from the saved progress on: after recovery, before anybody is served."""
        self._store = store
        self._writer = writer
        self._clock = clock
        self.queue = half_queue(store)
        self._remembered: OrderedDict[int, Decision] = OrderedDict()
        self.open = load_pending(store, offsets)
        self.last_write: Appended | None = None
        """Progress may be saved when this is durable, and not before."""

        self._settle_staged: Callable[[], None] = _nothing_staged

    def before_others(self, settle_staged: Callable[[], None]) -> None:
        """What is called before anybody relies on what is open: who stages outcomes keeps that true so."""
        self._settle_staged = settle_staged

    def settle(self) -> None:
        """Takes the outcomes that were told and wait for the end of the turn."""
        self._settle_staged()

    # --- outcomes -----------------------------------------------------------------------------------------------------

    def judged(self, request: EndTransaction, record: memoryview | None) -> Outcome | None:
        """What a producer's outcome asks to be written: nothing for "unknown", and for one that was told before.

        `record` is what stands where the outcome says that its half message is. RequestFailed when it does not fit.
        """
        decision = _decision(request.commit_or_rollback)
        if decision is Decision.UNKNOWN:
            return None
        half = _asked_for(request, record)
        newest = self.open.newest(half.first_offset)
        if newest is not None:
            return Outcome(half, newest, decision)
        self._check_told_before(half.first_offset, decision)
        return None

    def write(self, endings: Sequence[Outcome]) -> list[Written]:
        """Takes outcomes, each of another transaction; what became of each."""
        reals = self._deliver(endings)
        written: list[Written] = [one if isinstance(one, StoreError) else () for one in reals]
        over = [number for number, one in enumerate(reals) if not isinstance(one, StoreError)]
        now_ms = self._clock.now_ms()
        ops = self._writer.append_each(
            [op_message(endings[number].newest, now_ms, endings[number].half.view.store_host) for number in over]
        )
        for number, op in zip(over, ops, strict=True):
            written[number] = self._finish(endings[number], reals[number], op)
        return written

    def _deliver(self, endings: Sequence[Outcome]) -> list[AppendResult | None]:
        """The real message of each commit; None for a rollback."""
        outcomes: list[AppendResult | None] = [None] * len(endings)
        drafts: dict[int, Draft] = {}
        for number, ending in enumerate(endings):
            if ending.decision is _COMMIT:
                try:
                    drafts[number] = self._real(ending.half)
                except StoreError as error:
                    outcomes[number] = error
        if drafts:
            for number, outcome in zip(drafts, self._writer.append_each(list(drafts.values())), strict=True):
                outcomes[number] = outcome
        return outcomes

    def _real(self, half: HalfRecord) -> Draft:
        """A delay that the producer asked for begins now."""
        try:
            return (
                real(half)
                if DEFERRING.isdisjoint(half.properties)
                else self._writer.draft_with_delay(real_to_defer(half))
            )
        except RecordError as error:
            raise MessageRefused(str(error)) from None

    def _finish(self, ending: Outcome, real: AppendResult | None, op: AppendResult) -> Written:
        """Nothing has changed when a rollback's op message is not taken. But a real message must not be made once more,
        so its transaction counts as over without one; only a crash before the next round of checks would forget that.
        """
        if isinstance(op, StoreError):
            if real is None:
                return op
            log.warning("committed without an op message", extra={"offset": ending.newest, "reason": str(op)})
        else:
            self.open.op_written(op.queue_offset, [ending.newest])
        first = ending.half.first_offset
        self.open.ended(first)
        self._remember(first, ending.decision)
        writes = tuple([one for one in (real, op) if isinstance(one, Appended)])
        self.last_write = writes[-1]
        return writes

    def _remember(self, first: int, decision: Decision) -> None:
        self._remembered[first] = decision
        if len(self._remembered) > _REMEMBERED_MAX:
            self._remembered.popitem(last=False)

    def _check_told_before(self, first: int, decision: Decision) -> None:
        """Success only for what is known to be so: the producer may be told that its commit came too late."""
        known = self._remembered.get(first)
        if known is decision:
            return
        how = f"it was ended with {known.name}" if known is not None else "it was ended, or given up, some time ago"
        raise _refused(
            f"half message {first} does not wait for an outcome: {how}. The first outcome is final; one that was given "
            f"up is in {TRANS_CHECK_MAX} and asked about again after RESUME_CHECK_HALF_MESSAGE"
        )

    # --- writing ------------------------------------------------------------------------------------------------------

    def keep(self, message: InboundMessage) -> Appended:
        """Stores a message of the broker's own topics, whatever delay it asks for once it is delivered."""
        self.last_write = self._writer.append(draft_of(message))
        return self.last_write

    # --- given up and taken back --------------------------------------------------------------------------------------

    def resume(self, message: HalfMessage) -> Appended | None:
        """Opens a given-up message again; None when it still waits and is asked about anyway."""
        self.settle()
        fresh = reopened(message)
        first = fresh.properties.get(Property.TRANSACTION_PREPARED_QUEUE_OFFSET)
        if first is not None and self.open.newest(int(first)) is not None:
            return None
        appended = self.keep(fresh)
        if first is not None:
            self.open.copied(int(first), appended.queue_offset)
            self._remembered.pop(int(first), None)
        return appended

    def given_up(self, msg_id: str) -> IoSteps[HalfMessage]:
        """The message, by its offset id. RequestFailed when it is none that can be opened again."""
        try:
            physical = decode_offset_message_id(msg_id).physical_offset
        except RecordError as error:
            raise _refused(f"{error}; the offset id of a message of {TRANS_CHECK_MAX} is expected") from None
        record = yield from self._store.lookup.record_at_steps(physical)
        view = None if record is None else verify(record)
        if isinstance(view, RecordView) and view.topic in (TRANS_HALF, TRANS_CHECK_MAX):
            own = yield from StoredQueue(self._store, view.topic).finding(view.queue_offset)
            if own is not None and (message := HalfMessage.of(own)).stored.physical_offset == physical:
                return message
        raise _refused(f"message {msg_id} is not in {TRANS_CHECK_MAX} or {TRANS_HALF} of this broker, or no longer")


def _nothing_staged() -> None:
    pass


def _decision(number: int) -> Decision:
    decision = _DECISIONS.get(number)
    if decision is None:
        raise _refused(f"commitOrRollback is {number}, expected 0 (unknown), 8 (commit) or 12 (rollback)")
    return decision


def _asked_for(request: EndTransaction, record: memoryview | None) -> HalfRecord:
    half = None if record is None else HalfRecord.of(record)
    if half is None or half.view.physical_offset != request.commit_log_offset:
        raise _refused(
            f"no half message at offset {request.tran_state_table_offset} of {TRANS_HALF} and "
            f"{request.commit_log_offset} of the commit log: take both from the response to its send, or from the "
            "broker's check request"
        )
    if half.producer_group != request.producer_group:
        raise _refused(
            f"the half message at {request.commit_log_offset} is of producer group {half.producer_group!r}, "
            f"not {request.producer_group[:255]!r}: only its own group may end it"
        )
    return half


def _refused(reason: str) -> RequestFailed:
    return RequestFailed(ResponseCode.SYSTEM_ERROR, reason)


# --- staged_endings ---
#
# Outcomes of one turn of the event loop, of all connections, written together and answered together.
#
# As for sends (staged_sends.py): an append costs as much as several messages, so all outcomes of a turn share theirs.

STAGED_BYTES_MAX = 1024 * 1024
"""Of half messages: with more of them the turn does not wait for its end, which also bounds what is kept here."""


class _Staged(NamedTuple):
    ending: Outcome
    request: EndTransaction
    call: Call


class OutcomeCoalescer:
    """For the event loop alone."""

    def __init__(self, transactions: Transactions, store: MessageStore, writer: MessageWriter) -> None:
        self._transactions = transactions
        self._store = store
        self._writer = writer
        self._staged: dict[int, _Staged] = {}  # by the first offset of the transaction
        self._bytes = 0
        transactions.before_others(self.settle)

    def add(self, request: EndTransaction, call: Call, record: memoryview | None) -> bool:
        """Whether it is staged; if not, it says nothing new. RequestFailed when it does not fit the half message."""
        ending = self._transactions.judged(request, record)
        if ending is not None and ending.half.first_offset in self._staged:
            self.settle()  # the first one of this turn is final, or was not taken
            ending = self._transactions.judged(request, record)
        if ending is None:
            return False
        if not self._staged:
            asyncio.get_running_loop().call_soon(self.settle)
        self._staged[ending.half.first_offset] = _Staged(ending, request, call)
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

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answer(self, connection: Connection, settled: list[tuple[_Staged, Any]]) -> None:
        responses: list[bytes | None] = []
        waiting: list[tuple[Call, Appended]] = []
        for (ending, request, call), written in settled:
            if isinstance(written, Exception):
                responses.append(self._refused(request, call, written))
                continue
            is_commit = ending.decision is Decision.COMMIT
            self._writer.counters.ended(ending.half.real_topic, is_commit=is_commit)
            if call.command.is_oneway:
                continue
            if self._writer.is_safe(written[-1]):
                responses.append(encode_result(call.command, Response()))
            else:
                waiting.append((call, written[-1]))
        if responses:
            connection.write(_joined(responses))
        if waiting:
            connection.start_handler(self._answer_when_durable(waiting))

    async def _answer_when_durable(self, waiting: list[tuple[Call, Appended]]) -> bytes:
        """With SYNC_FLUSH only when all of it is durable."""
        try:
            code = await self._writer.durable([last for _, last in waiting])
            response = Response(code=code, remark=None if code == ResponseCode.SUCCESS else code.name)
        except StoreError as error:
            refusal = store_error_response(error, self._store)
            response = Response(code=refusal.code, remark=refusal.remark)
        return _joined([encode_result(call.command, response) for call, _ in waiting])

    def _refused(self, request: EndTransaction, call: Call, error: Exception) -> bytes | None:
        if isinstance(error, StoreError):
            error = store_error_response(error, self._store)
            tell_refused(request, call, error.remark)
        return encode_result(call.command, failure(call.connection, call.command, error))


def tell_refused(request: EndTransaction, call: Call, reason: str) -> None:
    """Most producers do not look at the answer: the log is where somebody will."""
    log.warning(
        "outcome of a transaction not taken",
        extra={
            "group": request.producer_group,
            "decision": request.commit_or_rollback,
            "after_check": request.from_transaction_check,
            "id": request.msg_id,
            "peer": call.connection.peer,
            "reason": reason,
        },
    )


def _joined(responses: Sequence[bytes | None]) -> bytes:
    """Without those that nobody wants."""
    return b"".join(filter(None, responses))


# --- transactions ---
#
# Outcomes of transactions, and the administrator's wish to ask about one again.
#
# Apache's broker does not answer an outcome of "unknown". Java sends all outcomes one-way and does not care; C++
# clients send them as requests and would wait until they time out. Here each is answered; what is one-way gets no
# answer anyway.


@dataclass
class TransactionHandlers:
    transactions: Transactions
    store: MessageStore
    writer: MessageWriter
    _stage: OutcomeCoalescer = field(init=False)

    def __post_init__(self) -> None:
        self._stage = OutcomeCoalescer(self.transactions, self.store, self.writer)

    @handles(EndTransaction)
    def end(self, request: EndTransaction, call: Call) -> Response | Deferred | Awaitable[Response | Deferred]:
        record = self.transactions.queue.fresh_at(request.tran_state_table_offset)
        return self._end_old(request, call) if record is None else self._end(request, call, record)

    async def _end_old(self, request: EndTransaction, call: Call) -> Response | Deferred:
        """The producer took its time, or answers a question: a thread fetches the half message if need be."""
        record = await run_in_executor(self.transactions.queue.finding(request.tran_state_table_offset))
        return self._end(request, call, record)

    def _end(self, request: EndTransaction, call: Call, record: memoryview | None) -> Response | Deferred:
        try:
            return DEFERRED if self._stage.add(request, call, record) else Response()
        except RequestFailed as refused:
            tell_refused(request, call, refused.remark)
            raise

    @handles(ResumeTransactionChecks)
    async def resume(self, request: ResumeTransactionChecks, call: Call) -> Response:
        try:
            message = await run_in_executor(self.transactions.given_up(request.msg_id or ""))
            appended = self.transactions.resume(message)
            log.info("transaction opened again", extra={"id": request.msg_id, "peer": call.connection.peer})
            code = await self.writer.durable(() if appended is None else appended)
        except StoreError as error:
            raise store_error_response(error, self.store) from error
        return Response(code=code, remark=None if code == ResponseCode.SUCCESS else code.name)
