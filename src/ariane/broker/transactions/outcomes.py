"""Outcomes of transactions (END_TRANSACTION): a commit delivers the message, a rollback does not; both write an op
message.

The order matters. The delivered message is in the log before the op message is: a broker that dies between the two
checks with the producer again and delivers twice. The other way round it would lose the message.

    outcomes of one iteration ──► append of all delivered messages ──► append of the op messages of those in the log

Two appends and not one: an append stores what it can, and could store an op message whose delivered message did not
fit.

An outcome is accepted once. Producers send theirs again when the response was lost, and when a check request crosses
their outcome; Apache's broker delivers each time. Here the first outcome is final.

An outcome that is written is SUCCESS, also if the disk or a slave was too slow, or there is no slave: as in Apache. Any
other code would be an outcome that was not accepted. The send of the half message says how safe it is.

Apache's broker does not respond to an outcome of "unknown". Java sends all outcomes one-way and does not care; C++
clients send them as requests and would wait until they time out. Here each request gets a response.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ariane.broker.acl.rights import EVERYTHING, Rights
from ariane.broker.coalescer import Coalescer, Sink
from ariane.broker.groups.offsets import ConsumerOffsets
from ariane.broker.transactions.half_messages import HalfMessage, HalfRecord, op_message, real_to_defer, reopened
from ariane.broker.transactions.pending import StoredQueue, half_queue, load_pending
from ariane.broker.transactions.recent import RecentHalfMessage, RecentHalfMessages
from ariane.broker.writer import InboundMessage, MessageWriter, draft_of, store_error_response
from ariane.clock import Clock
from ariane.errors import MessageRefused, RecordError, RequestFailed, StoreError
from ariane.logs import RepeatedWarnings
from ariane.model.ids import GROUP_LENGTH_MAX
from ariane.model.message import Property
from ariane.model.system_topics import TRANS_CHECK_MAX, TRANS_HALF
from ariane.rpc.failures import failure
from ariane.rpc.handlers import encode_result
from ariane.store.append.appender import AppendResult
from ariane.store.append.draft import Appended, Draft
from ariane.store.blocking_io import IoSteps
from ariane.store.message_store import MessageStore
from ariane.transport.connection import Connection
from ariane.wire.codes import HeaderFlag, RequestCode, ResponseCode
from ariane.wire.fast.fields import Opaque, command_of
from ariane.wire.fields import Response
from ariane.wire.frame import Command
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.record.read import RecordView, verify
from ariane.wire.requests.send import Decision, EndTransaction

log = logging.getLogger(__name__)

_REMEMBERED_MAX = 10_000

_END = int(RequestCode.END_TRANSACTION)
_COMMIT = Decision.COMMIT
_DECISIONS = {int(decision): decision for decision in Decision}


class Outcome(NamedTuple):
    """An outcome that fits its half message, and is not written yet."""

    half: HalfRecord | RecentHalfMessage
    newest: int
    """Where the half message waits: itself, or its newest copy."""
    decision: Decision


Written = tuple[Appended, ...] | StoreError
"""What was written for an outcome, one record at least; or why it was not accepted."""


class Transactions:
    """For the event loop alone; nothing here suspends, so two outcomes of one message cannot meet."""

    def __init__(self, store: MessageStore, writer: MessageWriter, offsets: ConsumerOffsets, clock: Clock) -> None:
        """Reads both queues from the saved progress on: after recovery, before the first request."""
        self._store = store
        self._writer = writer
        self._clock = clock
        self.queue = half_queue(store)
        self.recent = RecentHalfMessages()
        writer.on_half_stored(self.recent.add)
        self._remembered: OrderedDict[int, Decision] = OrderedDict()
        self.open = load_pending(store, offsets)
        self.last_write: Appended | None = None
        """Progress may be saved when this is durable, and not before."""

        self._flush_enqueued: Callable[[], None] = _nothing_enqueued

    def before_others(self, flush: Callable[[], None]) -> None:
        """`flush` is called before anything relies on which transactions are open."""
        self._flush_enqueued = flush

    def flush(self) -> None:
        """Writes the outcomes that are enqueued until the end of this event-loop iteration."""
        self._flush_enqueued()

    # --- outcomes -----------------------------------------------------------------------------------------------------

    def judged(
        self, request: EndTransaction, found: memoryview | RecentHalfMessage | None, rights: Rights = EVERYTHING
    ) -> Outcome | None:
        """What a producer's outcome asks to be written: nothing for "unknown", and for one that was sent before.

        `found` is what is at the offset that the outcome names: a record, or a half message in memory. RequestFailed
        when it does not fit, or when the account may not publish to the message's own topic.
        """
        decision = _decision(request.commit_or_rollback)
        if decision is Decision.UNKNOWN:
            return None
        half = _fitting(request, HalfRecord.of(found) if isinstance(found, memoryview) else found)
        if rights is not EVERYTHING:
            rights.require_end_of_transaction(half.real_topic)
        newest = self.open.newest(half.first_offset)
        if newest is not None:
            return Outcome(half, newest, decision)
        self._check_repeated(half.first_offset, decision)
        return None

    def write(self, outcomes: Sequence[Outcome]) -> list[Written]:
        """Writes outcomes, each of another transaction; the result of each."""
        reals = self._deliver(outcomes)
        written: list[Written] = [result if isinstance(result, StoreError) else () for result in reals]
        over = [number for number, result in enumerate(reals) if not isinstance(result, StoreError)]
        now_ms = self._clock.now_ms()
        ops = self._writer.append_each(
            [op_message(outcomes[number].newest, now_ms, self._store.store_host) for number in over]
        )
        for number, op in zip(over, ops, strict=True):
            written[number] = self._finish(outcomes[number], reals[number], op)
        return written

    def _deliver(self, outcomes: Sequence[Outcome]) -> list[AppendResult | None]:
        """Delivers the message of each commit; None for a rollback."""
        results: list[AppendResult | None] = [None] * len(outcomes)
        drafts: dict[int, Draft] = {}
        for number, outcome in enumerate(outcomes):
            if outcome.decision is _COMMIT:
                try:
                    drafts[number] = self._real(outcome.half)
                except StoreError as error:
                    results[number] = error
        if drafts:
            for number, result in zip(drafts, self._writer.append_each(list(drafts.values())), strict=True):
                results[number] = result
        return results

    def _real(self, half: HalfRecord | RecentHalfMessage) -> Draft:
        """A delay that the producer asked for begins with the commit."""
        try:
            if isinstance(half, HalfRecord) and half.is_deferred:
                return self._writer.draft_with_delay(real_to_defer(half))
            return half.real()
        except RecordError as error:
            raise MessageRefused(str(error)) from None

    def _finish(self, outcome: Outcome, real: AppendResult | None, op: AppendResult) -> Written:
        """Nothing has changed when a rollback's op message is not stored. But a message must not be delivered twice, so
        its transaction counts as ended without one; only a crash before the next pass of checks would forget that."""
        if isinstance(op, StoreError):
            if real is None:
                return op
            log.warning("committed without an op message", extra={"offset": outcome.newest, "reason": str(op)})
        else:
            self.open.op_written(op.queue_offset, [outcome.newest])
        first = outcome.half.first_offset
        self.open.ended(first)
        self._remember(first, outcome.decision)
        writes = tuple([record for record in (real, op) if isinstance(record, Appended)])
        self.last_write = writes[-1]
        return writes

    def _remember(self, first: int, decision: Decision) -> None:
        self._remembered[first] = decision
        if len(self._remembered) > _REMEMBERED_MAX:
            self._remembered.popitem(last=False)

    def _check_repeated(self, first: int, decision: Decision) -> None:
        """Success only for the same decision: otherwise the producer must learn that its commit came too late."""
        earlier = self._remembered.get(first)
        if earlier is decision:
            return
        how = f"it was ended with {earlier.name}" if earlier is not None else "it was ended, or given up, some time ago"
        raise _refused(
            f"half message {first} does not wait for an outcome: {how}. The first outcome is final; one that was given "
            f"up is in {TRANS_CHECK_MAX} and asked about again after RESUME_CHECK_HALF_MESSAGE"
        )

    # --- writing ------------------------------------------------------------------------------------------------------

    def keep(self, message: InboundMessage) -> Appended:
        """Stores a message of the broker's own topics, whatever delay it has once it is delivered."""
        self.last_write = self._writer.append(draft_of(message))
        return self.last_write

    # --- given up and reopened --------------------------------------------------------------------------------------

    def resume(self, message: HalfMessage) -> Appended | None:
        """Opens a given-up message again; None when it is still open, and checked anyway."""
        self.flush()
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
        """The message, by its offset id. RequestFailed when it cannot be opened again."""
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


def _nothing_enqueued() -> None:
    pass


def _decision(number: int) -> Decision:
    decision = _DECISIONS.get(number)
    if decision is None:
        raise _refused(f"commitOrRollback is {number}, expected 0 (unknown), 8 (commit) or 12 (rollback)")
    return decision


def _fitting(request: EndTransaction, half: HalfRecord | RecentHalfMessage | None) -> HalfRecord | RecentHalfMessage:
    if half is None or half.physical_offset != request.commit_log_offset:
        raise _refused(
            f"no half message at offset {request.tran_state_table_offset} of {TRANS_HALF} and "
            f"{request.commit_log_offset} of the commit log: take both from the response to its send, or from the "
            "broker's check request"
        )
    if not half.is_of_group(request.producer_group):
        raise _refused(
            f"the half message at {request.commit_log_offset} is of producer group {half.producer_group!r}, "
            f"not {request.producer_group[:255]!r}: only its own group may end it"
        )
    return half


def _refused(reason: str) -> RequestFailed:
    return RequestFailed(ResponseCode.SYSTEM_ERROR, reason)


# --- written together -------------------------------------------------------------------------------------------------

OUTCOME_BYTES_MAX = 1024 * 1024
"""Of half messages, which also bounds what is kept here."""


class PendingOutcome(NamedTuple):
    outcome: Outcome
    request: EndTransaction
    opaque: Opaque | None
    """None: it wants no response."""


class OutcomeSink(Sink[PendingOutcome, tuple[Appended, ...]]):
    """Outcomes of one event-loop iteration share their two appends, and are written after its sends."""

    bytes_max = OUTCOME_BYTES_MAX
    result_types = frozenset({tuple})

    def __init__(self, transactions: Transactions, writer: MessageWriter) -> None:
        super().__init__(writer)
        self._transactions = transactions
        self._coalescer = Coalescer(writer, before_others=False)
        self._enqueued: set[int] = set()  # first offsets of the transactions
        self._warnings = RepeatedWarnings(log)
        transactions.before_others(self._coalescer.flush)

    def enqueue(
        self,
        request: EndTransaction,
        connection: Connection,
        opaque: Opaque | None,
        record: memoryview | None,
        rights: Rights = EVERYTHING,
    ) -> bool:
        """Whether there is something to write; RequestFailed when the outcome does not fit the half message."""
        outcome = self._transactions.judged(request, record, rights)
        if outcome is not None and outcome.half.first_offset in self._enqueued:
            self._coalescer.flush()  # the first outcome of this iteration is final, or was not accepted
            outcome = self._transactions.judged(request, record, rights)
        if outcome is None:
            return False
        self._enqueued.add(outcome.half.first_offset)
        self.enqueue_all(connection, [PendingOutcome(outcome, request, opaque)])
        return True

    def first(self, request: EndTransaction, found: memoryview | RecentHalfMessage) -> Outcome | None:
        """An outcome for `enqueue_all`, if there is something to write, and nothing of this transaction is enqueued."""
        outcome = self._transactions.judged(request, found)
        if outcome is None or outcome.half.first_offset in self._enqueued:
            return None
        self._enqueued.add(outcome.half.first_offset)
        return outcome

    def enqueue_all(self, connection: Connection, pending: list[PendingOutcome]) -> None:
        if pending:
            self._coalescer.enqueue(self, None, connection, pending, sum([item.outcome.half.size for item in pending]))

    def write(self, key: Any, items: list[PendingOutcome]) -> Sequence[Written]:
        self._enqueued.clear()
        results = self._transactions.write([item.outcome for item in items])
        for item, result in zip(items, results, strict=True):
            if not isinstance(result, StoreError):
                is_commit = item.outcome.decision is _COMMIT
                self.writer.counters.ended(item.outcome.half.real_topic, is_commit=is_commit)
        return results

    def command_of(self, item: PendingOutcome) -> Command:
        if item.opaque is None:
            return Command(code=_END, flag=HeaderFlag.ONEWAY)
        return command_of(_END, item.opaque)

    def wants_durable(self, item: PendingOutcome) -> bool:
        return item.opaque is not None

    def appended(self, result: tuple[Appended, ...]) -> Sequence[Appended]:
        """The last record: a sync that covers it covers all."""
        return result[-1:]

    def stored(self, stored: Iterable[tuple[PendingOutcome, tuple[Appended, ...]]]) -> bytes:
        awaited = [self.command_of(item) for item, _ in stored if item.opaque is not None]
        return b"".join([encode_result(command, Response()) or b"" for command in awaited])

    def stored_with(self, code: ResponseCode, item: PendingOutcome, result: tuple[Appended, ...]) -> bytes | None:
        return encode_result(self.command_of(item), Response())

    def failed(self, connection: Connection, item: PendingOutcome, error: Exception) -> bytes | None:
        if isinstance(error, StoreError):
            error = store_error_response(error, self.writer.store)
            self.log_refused(item.request, connection, error.remark)
        command = self.command_of(item)
        return encode_result(command, failure(connection, command, error))

    def log_refused(self, request: EndTransaction, connection: Connection, reason: str) -> None:
        """Most producers do not look at the response, so the reason is logged: of each group once a minute."""
        group = request.producer_group[:GROUP_LENGTH_MAX]
        fields = {
            "group": group,
            "decision": request.commit_or_rollback,
            "after_check": request.from_transaction_check,
            "id": request.msg_id,
            "peer": connection.peer,
            "reason": reason,
        }
        self._warnings.warning(
            "outcome of a transaction not taken", (connection.peer.rpartition(":")[0], group), fields
        )
