"""Rounds over the half messages that nobody ended: ask the producer, or give up.

    age below its immunity        leave it
    asked fewer than max times    copy it to the end of the half queue, ask one producer of its group about the copy
    otherwise                     move it to TRANS_CHECK_MAX_TIME_TOPIC

A round counts whether or not a producer was there to be asked, as in Apache's broker: with the defaults a message whose
producers stay away is given up after a quarter of an hour. The copy is what lets the half queue's progress move on past
a message that waits, and it carries the number of questions through a restart.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from ariane.broker.groups.members import Clients
from ariane.broker.groups.offsets import ConsumerOffsets
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.broker.transactions.half_messages import HALF_QUEUE, OP_QUEUE, HalfMessage, copy_of, given_up
from ariane.broker.transactions.outcomes import Transactions
from ariane.broker.transactions.pending import PROGRESS_GROUP
from ariane.broker.writer import InboundMessage
from ariane.clock import Clock
from ariane.errors import MessageRefused, RecordError, RequestFailed, StoreError, TransportError, WireError
from ariane.lifecycle import background, every
from ariane.model.system_topics import TRANS_CHECK_MAX, TRANS_HALF, TRANS_OP
from ariane.store.append.draft import Appended
from ariane.store.service import StoreService
from ariane.transport.connection import Connection
from ariane.wire.exchange import request_command
from ariane.wire.host import encode_host
from ariane.wire.message_id import offset_message_id
from ariane.wire.record.layout import encode
from ariane.wire.requests.send import CheckTransaction

# --- questions ---
#
# CheckRequests to producers: what became of this half message?
#
# One-way: the answer is an END_TRANSACTION, some time later or never. Any producer of the group is good enough, because
# it asks its own database; they take turns.

log = logging.getLogger(__name__)

_READ_TIMEOUT_S = 3.0


def question(message: HalfMessage) -> CheckTransaction:
    """The numbers lead back to the half message; the body is the message as it will be, in its real topic."""
    stored = message.stored
    return CheckTransaction(
        tran_state_table_offset=stored.queue_offset,
        commit_log_offset=stored.physical_offset,
        msg_id=message.unique_key,
        transaction_id=message.unique_key,
        offset_msg_id=offset_message_id(encode_host(stored.store_host), stored.physical_offset),
        body=encode(message.as_real()),
    )


class CheckRequests:
    """Those of one round."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._not_reading: set[Connection] = set()
        self._unanswerable: dict[str, int] = {}

    async def ask(self, message: HalfMessage) -> None:
        """Sends the question to one live producer. When there is none, the next round tries again."""
        member = self._clients.pick_producer(message.producer_group)
        if member is None or not await self._send(member.connection, message):
            self._unanswerable[message.producer_group] = self._unanswerable.get(message.producer_group, 0) + 1

    async def _send(self, connection: Connection, message: HalfMessage) -> bool:
        """Waits while the peer does not read, but not for long, and once in a round: it would hold up all others."""
        if connection in self._not_reading:
            return False
        try:
            command = request_command(question(message), opaque=0, oneway=True)
            async with asyncio.timeout(_READ_TIMEOUT_S):
                await connection.send(command)
        except WireError as error:  # larger than a frame may be: maxMessageSize was raised, the frame's limit was not
            log.warning("transaction cannot be asked about", extra={"key": message.unique_key, "reason": str(error)})
            return False
        except (TimeoutError, TransportError):
            self._not_reading.add(connection)
            return False
        return True

    def report(self) -> None:
        for group, count in self._unanswerable.items():
            log.warning(
                "no producer to ask about open transactions: start one of this group",
                extra={"group": group, "messages": count},
            )


# ---

_HOUR_MS = 3_600_000
_STEPS_IN_A_TURN = 16  # then others get their turn on the loop

WINDOW_MAX = 100_000
"""Half messages behind one that is too young to be asked about. Beyond it is copied without a question, or what is
over behind it would fill the memory: a producer may ask for days of immunity."""


class TransactionChecks:
    def __init__(
        self,
        transactions: Transactions,
        service: StoreService,
        settings: BrokerSettings,
        clients: Clients,
        topics: Topics,
        offsets: ConsumerOffsets,
        clock: Clock,
    ) -> None:
        self._transactions = transactions
        self._service = service
        self._settings = settings
        self._topics = topics
        self._offsets = offsets
        self._clock = clock
        self._clients = clients

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        transactions: Transactions,
        service: StoreService,
        settings: BrokerSettings,
        clients: Clients,
        topics: Topics,
        offsets: ConsumerOffsets,
        clock: Clock,
    ) -> AsyncIterator["TransactionChecks"]:
        """Runs a round every `transactionCheckInterval` while the body runs. On a master only."""
        checks = cls(transactions, service, settings, clients, topics, offsets, clock)
        interval_s = settings.transaction_check_interval_s
        async with background(partial(every, clock, interval_s, checks.round, interval_s)):
            yield checks

    async def round(self) -> None:
        """Looks at every half message that was there when the round began; then notes how far both queues are done."""
        queue, waiting = self._transactions.queue, self._transactions.open
        waiting.skip_to(queue.begin)
        end = queue.end
        questions = CheckRequests(self._clients)
        try:
            await self._walk(end, questions)
        except (StoreError, OSError) as error:  # no more is written or read now; what waits is found by the next round
            log.warning("transaction checks stopped for this round", extra={"reason": str(error)})
        questions.report()
        if end:
            self._ensure(TRANS_HALF)
            self._ensure(TRANS_OP)
            await self.save_progress()

    async def _walk(self, end: int, questions: CheckRequests) -> None:
        waiting = self._transactions.open
        offset, steps = waiting.next_open(0, end), 0
        while offset is not None:
            await self._service.run(self._transactions.queue.finding(offset))
            self._transactions.flush()  # no check request for an outcome that has arrived
            asked = self._look_at(offset, end) if waiting.is_open(offset) else None
            if asked is not None:
                await questions.ask(asked)
            steps += 1
            if steps % _STEPS_IN_A_TURN == 0:
                await asyncio.sleep(0)
            offset = waiting.next_open(offset + 1, end)

    # --- one message; nothing here suspends ---------------------------------------------------------------------------

    def _look_at(self, offset: int, end: int) -> HalfMessage | None:
        """The message, as its newest copy has it, when its producer is to be asked."""
        message = self._message(offset)
        if message is None:
            return None
        now_ms = self._clock.now_ms()
        if self._is_hopeless(message, now_ms):
            self._give_up(message)
            return None
        is_young = message.age_ms(now_ms) < message.immunity_ms(round(self._settings.transaction_timeout_s * 1000))
        if not is_young:
            return self._copy(message, message.times_asked + 1)
        if end - offset > WINDOW_MAX:
            self._copy(message, message.times_asked)
        return None

    def _message(self, offset: int) -> HalfMessage | None:
        record = self._transactions.queue.at(offset)
        try:
            if record is not None:
                return HalfMessage.of(record)
            reason = "its record is gone"
        except RecordError as error:
            reason = str(error)
        log.error(
            "half message passed over: it can be neither asked about nor ended",
            extra={"offset": offset, "reason": reason},
        )
        self._transactions.open.over(offset)
        return None

    def _is_hopeless(self, message: HalfMessage, now_ms: int) -> bool:
        """Asked often enough; or so old, after a long stop, that its file may be deleted at any moment."""
        stored_for_ms = now_ms - message.stored.store_timestamp_ms
        return (
            message.times_asked >= self._settings.transaction_check_max
            or stored_for_ms > self._settings.store.retention_hours * _HOUR_MS
        )

    def _give_up(self, message: HalfMessage) -> None:
        self._ensure(TRANS_CHECK_MAX)
        kept_in = TRANS_CHECK_MAX if self._keep(given_up(message)) is not None else TRANS_HALF
        self._transactions.open.ended(message.first_offset)
        log.warning(
            "transaction given up: nobody told its outcome",
            extra={
                "topic": message.real_topic,
                "group": message.producer_group,
                "key": message.unique_key,
                "asked": message.times_asked,
                "kept_in": kept_in,
            },
        )

    def _copy(self, message: HalfMessage, times_asked: int) -> HalfMessage:
        copy = copy_of(message, times_asked)
        appended = self._keep(copy)
        if appended is None:
            return message  # asked about where it is, though nobody counts how often
        self._transactions.open.copied(message.first_offset, appended.queue_offset)
        return message.moved(copy.properties, appended)

    def _keep(self, message: InboundMessage) -> Appended | None:
        """None for a message so close to maxMessageSize that the properties which a copy adds do not fit."""
        try:
            return self._transactions.keep(message)
        except MessageRefused as error:
            log.warning("half message cannot be copied", extra={"topic": message.topic, "reason": str(error)})
            return None

    def _ensure(self, topic: str) -> None:
        """So that tools can see and read it. The store needs no table, so a full one does not stop the checks."""
        try:
            self._topics.ensure(topic, 1)
        except RequestFailed as error:
            log.warning("system topic not made", extra={"topic": topic, "reason": error.remark})

    # --- progress -----------------------------------------------------------------------------------------------------

    async def save_progress(self) -> None:
        """Notes in the consumer offsets how far both queues are done with, once what says so is durable.

        Offsets that outran the log would, after a power cut, pass over a half message whose copy or whose outcome the
        disk never got: a transaction that nobody asks about any more.
        """
        waiting, last = self._transactions.open, self._transactions.last_write
        first_open, first_op = waiting.first_open, waiting.first_op
        try:
            if last is not None:
                await self._service.wait_durable([last])
        except (TimeoutError, StoreError) as error:
            log.warning("progress of transactions not noted", extra={"reason": str(error) or "no sync in time"})
            return
        self._offsets.commit(PROGRESS_GROUP, TRANS_HALF, HALF_QUEUE, first_open)
        self._offsets.commit(PROGRESS_GROUP, TRANS_OP, OP_QUEUE, first_op)
