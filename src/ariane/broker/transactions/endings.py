"""The outcome of transactions: commit makes the real message, rollback makes nothing, and an op message says so.

The order is the promise. The real message is in the log before the op message is: a broker that dies between the two
asks the producer again and delivers twice. The other way round it would lose the message.

An outcome is taken once. Producers tell theirs again when they did not hear the answer, and when a question crosses
their answer; Apache's broker delivers each time. Here the first outcome is final: what is over stays over.
"""

import logging
from collections import OrderedDict
from dataclasses import dataclass

from ariane.broker.intake import Incoming, Intake, draft_of
from ariane.broker.offsets import ConsumerOffsets
from ariane.broker.system_topics import TRANS_CHECK_MAX, TRANS_HALF
from ariane.broker.transactions.half_messages import HalfMessage, committed, reopened
from ariane.broker.transactions.half_queue import StoredQueue, half_queue, load_open_halves
from ariane.broker.transactions.op_messages import op_message
from ariane.clock import Clock
from ariane.errors import RecordError, RequestFailed, StoreError
from ariane.model.message import Property
from ariane.store.draft import Appended
from ariane.store.message_store import MessageStore
from ariane.wire.codes import ResponseCode
from ariane.wire.host import encode_host
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.record_view import RecordView, verify
from ariane.wire.requests.transactions import Decision, EndTransaction

log = logging.getLogger(__name__)

_REMEMBERED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Ended:
    """What was written for an outcome; nothing when the same outcome was told before."""

    writes: tuple[Appended, ...] = ()
    topic: str = ""
    """Where the real message goes, or would have gone."""


class Transactions:
    """For the event loop alone; nothing here suspends, so two outcomes of one message cannot meet."""

    def __init__(self, store: MessageStore, intake: Intake, offsets: ConsumerOffsets, clock: Clock) -> None:
        """Reads both queues from the saved progress on: after recovery, before anybody is served."""
        self._store = store
        self._intake = intake
        self._clock = clock
        self.queue = half_queue(store)
        self._remembered: OrderedDict[int, Decision] = OrderedDict()
        self.open = load_open_halves(store, offsets)
        self.last_write: Appended | None = None
        """Progress may be saved when this is durable, and not before."""

    # --- outcomes ---------------------------------------------------------------------------------------------------

    def end(self, ask: EndTransaction) -> Ended:
        """Takes a producer's outcome. RequestFailed when it does not fit; StoreError when it cannot be written."""
        decision = _decision(ask.commit_or_rollback)
        if decision is Decision.UNKNOWN:
            return Ended()
        message = self._asked_for(ask)
        first = message.first_offset
        waiting = self.open.newest(first)
        if waiting is None:
            return self._ended_before(first, decision)
        ended = Ended(self._write(message, waiting, decision), message.real_topic)
        self._remember(first, decision)
        return ended

    def _asked_for(self, ask: EndTransaction) -> HalfMessage:
        record = self.queue.at(ask.tran_state_table_offset)
        message = None if record is None else HalfMessage.of(record)
        if message is None or message.stored.physical_offset != ask.commit_log_offset:
            raise _refused(
                f"no half message at offset {ask.tran_state_table_offset} of {TRANS_HALF} and {ask.commit_log_offset} "
                "of the commit log: take both from the answer to its send, or from the broker's question"
            )
        if message.producer_group != ask.producer_group:
            raise _refused(
                f"the half message at {ask.commit_log_offset} is of producer group {message.producer_group!r}, "
                f"not {ask.producer_group[:255]!r}: only its own group may end it"
            )
        return message

    def _write(self, message: HalfMessage, waiting: int, decision: Decision) -> tuple[Appended, ...]:
        real = (self._deliver(message),) if decision is Decision.COMMIT else ()
        op = self._write_op(message, waiting, has_effect=bool(real))
        self.open.ended(message.first_offset)
        return (*real, op) if op is not None else real

    def _write_op(self, message: HalfMessage, waiting: int, *, has_effect: bool) -> Appended | None:
        """None when the disk does not take it, though the real message is there: the outcome stands all the same.

        It must not be made once more, so the transaction counts as over; only a crash before the next round of checks
        would forget that.
        """
        op = op_message(waiting, self._clock.now_ms(), encode_host(message.stored.store_host))
        try:
            appended = self.keep(op)
        except StoreError as error:
            if not has_effect:
                raise
            log.warning("committed without an op message", extra={"offset": waiting, "reason": str(error)})
            return None
        self.open.op_written(appended.queue_offset, [waiting])
        return appended

    def _remember(self, first: int, decision: Decision) -> None:
        self._remembered[first] = decision
        if len(self._remembered) > _REMEMBERED_MAX:
            self._remembered.popitem(last=False)

    def _ended_before(self, first: int, decision: Decision) -> Ended:
        """Success only for what is known to be so: the producer may be told that its commit came too late."""
        known = self._remembered.get(first)
        if known is decision:
            return Ended()
        how = f"it was ended with {known.name}" if known is not None else "it was ended, or given up, some time ago"
        raise _refused(
            f"half message {first} does not wait for an outcome: {how}. The first outcome is final; one that was given "
            f"up is in {TRANS_CHECK_MAX} and asked about again after RESUME_CHECK_HALF_MESSAGE"
        )

    # --- writing ----------------------------------------------------------------------------------------------------

    def _deliver(self, message: HalfMessage) -> Appended:
        """A delay that the producer asked for begins now."""
        self.last_write = self._intake.put(committed(message))
        return self.last_write

    def keep(self, message: Incoming) -> Appended:
        """Stores a message of the broker's own topics, whatever delay it asks for once it is delivered."""
        self.last_write = self._intake.take(draft_of(message))
        return self.last_write

    # --- given up and taken back ------------------------------------------------------------------------------------

    def resume(self, msg_id: str) -> Appended | None:
        """Opens a given-up message again, by its offset id; None when it still waits and is asked about anyway."""
        message = self._given_up(msg_id)
        fresh = reopened(message)
        first = fresh.properties.get(Property.TRANSACTION_PREPARED_QUEUE_OFFSET)
        if first is not None and self.open.newest(int(first)) is not None:
            return None
        appended = self.keep(fresh)
        if first is not None:
            self.open.copied(int(first), appended.queue_offset)
            self._remembered.pop(int(first), None)
        return appended

    def _given_up(self, msg_id: str) -> HalfMessage:
        try:
            physical = decode_offset_message_id(msg_id).physical_offset
        except RecordError as error:
            raise _refused(f"{error}; the offset id of a message of {TRANS_CHECK_MAX} is expected") from None
        record = self._store.reader.record_at(physical)
        view = None if record is None else verify(record)
        if isinstance(view, RecordView) and view.topic in (TRANS_HALF, TRANS_CHECK_MAX):
            own = StoredQueue(self._store, view.topic).at(view.queue_offset)
            if own is not None and (message := HalfMessage.of(own)).stored.physical_offset == physical:
                return message
        raise _refused(f"message {msg_id} is not in {TRANS_CHECK_MAX} or {TRANS_HALF} of this broker, or no longer")


def _decision(number: int) -> Decision:
    try:
        return Decision(number)
    except ValueError:
        raise _refused(f"commitOrRollback is {number}, expected 0 (unknown), 8 (commit) or 12 (rollback)") from None


def _refused(reason: str) -> RequestFailed:
    return RequestFailed(ResponseCode.SYSTEM_ERROR, reason)
