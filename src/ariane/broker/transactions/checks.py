"""Transaction checks: periodic passes over half messages without an outcome, which ask the producer or give up.

    age below its immunity         leave it
    checked fewer than max times   copy it to the end of the half queue, send a check request about the copy
    otherwise                      move it to TRANS_CHECK_MAX_TIME_TOPIC

A pass counts whether or not a producer was connected, as in Apache's broker: with the defaults a message whose
producers stay away is given up after a quarter of an hour. The copy lets the half queue's progress move past a message
that waits, and keeps the number of check requests through a restart.

Check requests are one-way: the outcome comes as an END_TRANSACTION, some time later or never. Any producer of the group
will do, because it looks into its own database; they take turns.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
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

# --- check requests ---------------------------------------------------------------------------------------------------

log = logging.getLogger(__name__)

_READ_TIMEOUT_S = 3.0


def check_request(message: HalfMessage) -> CheckTransaction:
    """The offsets identify the half message; the body is the message as it will be, in its real topic."""
    stored = message.stored
    return CheckTransaction(
        tran_state_table_offset=stored.queue_offset,
        commit_log_offset=stored.physical_offset,
        msg_id=message.unique_key,
        transaction_id=message.unique_key,
        offset_msg_id=offset_message_id(encode_host(stored.store_host), stored.physical_offset),
        body=encode(message.as_real()),
    )


MayBeAsked = Callable[[Connection, str], bool]
"""Whether the client of a connection may see half messages of a topic."""


class CheckRequests:
    """Those of one pass."""

    def __init__(self, clients: Clients, may_be_asked: MayBeAsked) -> None:
        self._clients = clients
        self._may_be_asked = may_be_asked
        self._not_reading: set[Connection] = set()
        self._undelivered: dict[str, int] = {}

    async def send(self, message: HalfMessage) -> None:
        """To one connected producer that may publish to the message's topic. When there is none, the next pass tries
        again. Anybody can send a heartbeat as a producer of any group, so the group alone proves nothing."""
        topic = message.real_topic
        member = self._clients.pick_producer(
            message.producer_group, lambda connection: self._may_be_asked(connection, topic)
        )
        if member is None or not await self._send(member.connection, message):
            self._undelivered[message.producer_group] = self._undelivered.get(message.producer_group, 0) + 1

    async def _send(self, connection: Connection, message: HalfMessage) -> bool:
        """Waits while the peer does not read, but not for long, and once in a pass: it would delay all others."""
        if connection in self._not_reading:
            return False
        try:
            command = request_command(check_request(message), opaque=0, oneway=True)
            async with asyncio.timeout(_READ_TIMEOUT_S):
                await connection.send(command)
        except WireError as error:  # larger than a frame may be: maxMessageSize was raised, the frame's limit was not
            log.warning("check request cannot be sent", extra={"key": message.unique_key, "reason": str(error)})
            return False
        except (TimeoutError, TransportError):
            self._not_reading.add(connection)
            return False
        return True

    def report(self) -> None:
        for group, count in self._undelivered.items():
            log.warning(
                "no producer for check requests of open transactions: start one of this group",
                extra={"group": group, "messages": count},
            )


# --- passes -----------------------------------------------------------------------------------------------------------

_HOUR_MS = 3_600_000
_STEPS_PER_ITERATION = 16  # then the event loop runs other tasks

WINDOW_MAX = 100_000
"""Half messages behind one that is too young to be checked. Beyond, it is copied without a check request, or the ended
ones behind it would fill the memory: a producer may set days of immunity."""


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
        may_be_asked: MayBeAsked = lambda connection, topic: True,
    ) -> None:
        self._transactions = transactions
        self._service = service
        self._settings = settings
        self._topics = topics
        self._offsets = offsets
        self._clock = clock
        self._clients = clients
        self._may_be_asked = may_be_asked

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
        may_be_asked: MayBeAsked = lambda connection, topic: True,
    ) -> AsyncIterator["TransactionChecks"]:
        """Runs a pass every `transactionCheckInterval` while the body runs; at a slave none, its master does."""
        checks = cls(transactions, service, settings, clients, topics, offsets, clock, may_be_asked)
        if service.store.is_following:
            yield checks
            return
        interval_s = settings.transaction_check_interval_s
        async with background(partial(every, clock, interval_s, checks.run_pass, interval_s)):
            yield checks

    async def run_pass(self) -> None:
        """Checks every half message that was there when the pass began; then saves the progress in both queues."""
        queue, waiting = self._transactions.queue, self._transactions.open
        waiting.skip_to(queue.begin)
        end = queue.visible_end
        requests = CheckRequests(self._clients, self._may_be_asked)
        try:
            await self._walk(end, requests)
        except (StoreError, OSError) as error:  # the next pass finds what waits
            log.warning("transaction checks stopped for this pass", extra={"reason": str(error)})
        requests.report()
        if end:
            self._ensure(TRANS_HALF)
            self._ensure(TRANS_OP)
            await self.save_progress()

    async def _walk(self, end: int, requests: CheckRequests) -> None:
        waiting = self._transactions.open
        offset, steps = waiting.next_open(0, end), 0
        while offset is not None:
            await self._service.run(self._transactions.queue.finding(offset))
            self._transactions.flush()  # no check request for an outcome that has arrived
            message = self._look_at(offset, end) if waiting.is_open(offset) else None
            if message is not None:
                await requests.send(message)
            steps += 1
            if steps % _STEPS_PER_ITERATION == 0:
                await asyncio.sleep(0)
            offset = waiting.next_open(offset + 1, end)

    # --- one message; nothing here suspends ---------------------------------------------------------------------------

    def _look_at(self, offset: int, end: int) -> HalfMessage | None:
        """The message, as its newest copy has it, when it needs a check request."""
        message = self._message(offset)
        if message is None:
            return None
        now_ms = self._clock.now_ms()
        if self._is_hopeless(message, now_ms):
            self._give_up(message)
            return None
        is_young = message.age_ms(now_ms) < message.immunity_ms(round(self._settings.transaction_timeout_s * 1000))
        if not is_young:
            return self._copy(message, message.check_times + 1)
        if end - offset > WINDOW_MAX:
            self._copy(message, message.check_times)
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
            "half message skipped: it can be neither checked nor ended",
            extra={"offset": offset, "reason": reason},
        )
        self._transactions.open.over(offset)
        return None

    def _is_hopeless(self, message: HalfMessage, now_ms: int) -> bool:
        """Checked often enough; or so old, after a long stop, that its file may be deleted at any moment."""
        stored_for_ms = now_ms - message.stored.store_timestamp_ms
        return (
            message.check_times >= self._settings.transaction_check_max
            or stored_for_ms > self._settings.store.retention_hours * _HOUR_MS
        )

    def _give_up(self, message: HalfMessage) -> None:
        self._ensure(TRANS_CHECK_MAX)
        kept_in = TRANS_CHECK_MAX if self._keep(given_up(message)) is not None else TRANS_HALF
        self._transactions.open.ended(message.first_offset)
        log.warning(
            "transaction given up: no outcome came",
            extra={
                "topic": message.real_topic,
                "group": message.producer_group,
                "key": message.unique_key,
                "asked": message.check_times,
                "kept_in": kept_in,
            },
        )

    def _copy(self, message: HalfMessage, check_times: int) -> HalfMessage:
        copy = copy_of(message, check_times)
        appended = self._keep(copy)
        if appended is None:
            return message  # checked at its old offset, and not counted
        self._transactions.open.copied(message.first_offset, appended.queue_offset)
        return message.moved(copy.properties, appended)

    def _keep(self, message: InboundMessage) -> Appended | None:
        """None for a message so close to maxMessageSize that the properties of a copy do not fit."""
        try:
            return self._transactions.keep(message)
        except MessageRefused as error:
            log.warning("half message cannot be copied", extra={"topic": message.topic, "reason": str(error)})
            return None

    def _ensure(self, topic: str) -> None:
        """So that tools can see and read it. The store does not need the topic, so a full table does not stop the
        checks."""
        try:
            self._topics.ensure(topic, 1)
        except RequestFailed as error:
            log.warning("system topic not made", extra={"topic": topic, "reason": error.remark})

    # --- progress -----------------------------------------------------------------------------------------------------

    async def save_progress(self) -> None:
        """Saves the progress in both queues as consumer offsets, once what it depends on is durable.

        Offsets ahead of the log would, after a power cut, skip a half message whose copy or outcome never reached the
        disk: a transaction that is never checked again.
        """
        waiting, last = self._transactions.open, self._transactions.last_write
        first_open, first_op = waiting.first_open, waiting.first_op
        try:
            if last is not None:
                await self._service.wait_safe([last])
        except (TimeoutError, StoreError) as error:
            log.warning("progress of transactions not noted", extra={"reason": str(error) or "no sync in time"})
            return
        self._offsets.record(PROGRESS_GROUP, TRANS_HALF, HALF_QUEUE, first_open)
        self._offsets.record(PROGRESS_GROUP, TRANS_OP, OP_QUEUE, first_op)
