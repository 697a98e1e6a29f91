"""The exactly-once sink: half messages, a ledger that decides, and then the end of each transaction.

    task     write()    half messages, tagged with query, batch, partition and attempt; invisible to consumers
    driver   commit()   1. ledger: these attempts have won       from here on the batch is written, whatever happens
                        2. brokers: commit these half messages
                        3. ledger: the brokers have committed

If the driver is killed before 1, the batch is written again, and the earlier half messages never become winners. If it
is killed after 1, write() finds the batch in the ledger and sends nothing, and commit() continues with 2. Brokers check
half messages whose transaction is not ended, and the answer comes from the ledger (outcomes.py).
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from time import monotonic, sleep, time
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ariane.errors import ArianeError, NoRoute, SendFailed, SettingsError
from ariane.lifecycle import Backoff
from ariane.model.message import Property
from ariane.model.route import MessageQueue
from ariane.model.topic import AUTO_CREATE_TEMPLATE
from ariane.spark.cluster import Cluster, cluster_for
from ariane.spark.options.write import WriteOptions
from ariane.spark.write.half_message import PROPERTY, HalfMessageOrigin
from ariane.spark.write.ledger import HalfEntry, Ledger, LedgerRecord, Winners, open_ledger, pack
from ariane.spark.write.outcomes import Outcomes, answer_checks
from ariane.spark.write.rows import OutboundMessage, TaskIdentity, TaskKeys, check_schema, messages_of
from ariane.spark.write.sender import QueueChoice, accepted
from ariane.wire.frame import Command
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.properties import encode_properties, property_pair
from ariane.wire.requests.send import SendMessageV2, SendResponse
from ariane.wire.sys_flag import SysFlag

# --- sending half messages ---
#
# Brokers take half messages one by one, so many requests are pending at a time. Their order does not matter: the
# messages become visible in the order in which the transactions are ended.

_WINDOW = 256
_WINDOW_BYTES = 4 * 1024 * 1024


class _HalfRequest(NamedTuple):
    number: int
    """Position of the message in its window."""
    serial: int
    broker: str
    request: SendMessageV2


class HalfSender:
    def __init__(self, cluster: Cluster, options: WriteOptions, origin: HalfMessageOrigin) -> None:
        self._cluster = cluster
        self._options = options
        self._origin = origin
        self._serial = 0
        self._choice = QueueChoice(cluster, options.patience_s, origin.partition)
        self._entries: dict[str, list[HalfEntry]] = {}
        properties = {
            Property.TRANSACTION_PREPARED: "true",
            Property.PRODUCER_GROUP: options.group,
            Property.CHECK_IMMUNITY_TIME_IN_SECONDS: str(options.transaction_timeout_s),
        }
        self._properties = encode_properties(properties).decode()

    def send(self, messages: Iterable[OutboundMessage]) -> None:
        """Returns when all messages are acknowledged."""
        source = iter(messages)
        while window := _take(source):
            self._deliver(window)

    def winners(self) -> list[Winners]:
        """The half messages that were acknowledged so far."""
        origin = self._origin
        return [
            winners
            for broker, entries in self._entries.items()
            for winners in pack(origin.attempt, origin.partition, broker, entries)
        ]

    def _deliver(self, window: list[OutboundMessage]) -> None:
        deadline = monotonic() + self._options.patience_s
        backoff = Backoff(first_s=0.05, longest_s=2.0)
        done: dict[int, tuple[str, HalfEntry]] = {}
        while len(done) < len(window):
            reasons = self._attempt(window, done)
            if reasons:
                pause_s = backoff.next_s()
                if monotonic() + pause_s > deadline:
                    raise _not_acknowledged(len(window) - len(done), window[0].topic, reasons, self._options.patience_s)
                sleep(pause_s)
                for topic in {message.topic for message in window}:
                    self._choice.refresh(topic)
        for _, (broker, entry) in sorted(done.items()):
            self._entries.setdefault(broker, []).append(entry)

    def _attempt(self, window: list[OutboundMessage], done: dict[int, tuple[str, HalfEntry]]) -> list[str]:
        """Sends what is not done to all brokers at the same time; returns why some of it has to be sent again."""
        requests: dict[str, list[_HalfRequest]] = {}
        for number, message in enumerate(window):
            if number not in done:
                half = self._half_request(number, message)
                requests.setdefault(half.broker, []).append(half)
        reasons = []
        for broker, responses in self._responses(requests).items():
            if isinstance(responses, ArianeError):
                reasons.append(f"{broker}: {responses}")
                continue
            for half, command in zip(requests[broker], responses, strict=True):
                result = accepted(half.request, command)
                if isinstance(result, str):
                    reasons.append(f"{broker}: {result}")
                else:
                    done[half.number] = broker, _entry(half.serial, result)
        return reasons

    def _responses(self, by_broker: dict[str, list["_HalfRequest"]]) -> dict[str, list[Command] | ArianeError]:
        responses: dict[str, list[Command] | ArianeError] = {}
        addresses: dict[str, str] = {}
        for broker, halfs in by_broker.items():
            try:
                addresses[self._cluster.address(halfs[0].request.topic, broker, master_only=True)] = broker
            except NoRoute as error:
                responses[broker] = error
        requests = {address: [half.request for half in by_broker[broker]] for address, broker in addresses.items()}
        received = self._cluster.calls.call_everywhere(requests, self._options.send_timeout_ms / 1000)
        return responses | {addresses[address]: response for address, response in received.items()}

    def _half_request(self, number: int, message: OutboundMessage) -> "_HalfRequest":
        queue = self._choice.fixed(message) or self._choice.next(message.topic)
        request = self._request(message, queue)
        self._serial += 1
        return _HalfRequest(number, self._serial - 1, queue.broker_name, request)

    def _request(self, message: OutboundMessage, queue: MessageQueue) -> SendMessageV2:
        origin = property_pair(PROPERTY, f"{self._origin.prefix}{self._serial}")
        return SendMessageV2(
            producer_group=self._options.group,
            topic=message.topic,
            default_topic=AUTO_CREATE_TEMPLATE,
            default_topic_queue_nums=4,
            queue_id=queue.queue_id,
            sys_flag=int(SysFlag.TRANSACTION_PREPARED),
            born_timestamp=int(time() * 1000),
            flag=0,
            properties=f"{message.properties.decode()}{self._properties}{origin}",
            reconsume_times=0,
            body=message.body,
        )


def _take(messages: Iterable[OutboundMessage]) -> list[OutboundMessage]:
    window: list[OutboundMessage] = []
    size = 0
    for message in islice(messages, _WINDOW):
        window.append(message)
        size += message.size
        if size > _WINDOW_BYTES:
            break
    return window


def _entry(serial: int, response: SendResponse) -> HalfEntry:
    return HalfEntry(serial, response.queue_offset, decode_offset_message_id(response.msg_id).physical_offset)


def _not_acknowledged(count: int, topic: str, reasons: list[str], patience_s: float) -> SendFailed:
    return SendFailed(
        f"{count} half messages for {topic} were not acknowledged within {patience_s:g} s "
        f"({'; '.join(dict.fromkeys(reasons))}). Check that the brokers run, or raise brokerWaitSeconds"
    )


# --- the writers ---

_DELAYS = ("delayLevel", "deliverTimestamp")


@dataclass
class Prepared(WriterCommitMessage):
    """The half messages that one attempt sent; none when the ledger had the batch already."""

    query: str
    batch: int
    winners: list[Winners] = field(default_factory=list)


class ExactlyOnce:
    """The steps of both writers. It is pickled for the tasks, so it holds no connection."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(schema, options.topic)
        for name in _DELAYS:
            if name in schema.names:
                raise SettingsError(
                    f"column {name} and delivery=exactly-once exclude each other, because a transaction cannot be "
                    "delayed: leave out one"
                )
        self.options = options

    def __getstate__(self) -> dict[str, object]:
        return {"options": self.options}

    @property
    def cluster(self) -> Cluster:
        return cluster_for(self.options.client_settings())

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.cluster, self.options.ledger_topic, self.options.patience_s)

    def check_topics(self) -> None:
        """On the driver, before anything is sent."""
        if self.options.topic is not None:
            QueueChoice(self.cluster, 0, 0).queues_of(self.options.topic)
        open_ledger(self.cluster, self.options)

    # --- tasks ------------------------------------------------------------------------------------------------------

    def prepare(self, batches: Iterator[pa.RecordBatch], query: str, batch: int) -> Prepared:
        if self.ledger.state(query).is_recorded(batch):
            for _ in batches:  # Spark requires that all rows are consumed
                pass
            return Prepared(query, batch)
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        keys = TaskKeys(TaskIdentity(query, str(batch), partition))
        # A random attempt id: the attempt numbers of Spark start again with each driver.
        origin = HalfMessageOrigin(self.options.ledger_topic, query, batch, partition, uuid.uuid4().hex[:16], 0)
        sender = HalfSender(self.cluster, self.options, origin)
        try:
            for rows in batches:
                sender.send(messages_of(rows, self.options.topic, keys))
        except Exception:
            self.roll_back(sender.winners())
            raise
        return Prepared(query, batch, sender.winners())

    # --- driver -----------------------------------------------------------------------------------------------------

    def commit(self, messages: Sequence[Prepared], batch: int) -> None:
        if not messages:
            return
        query = messages[0].query
        answer_checks(self.options)
        own = [winners for message in messages for winners in message.winners]
        state = self.ledger.state(query)
        if not state.is_recorded(batch) and own:
            self.decide(query, batch, own)
            state = self.ledger.state(query)
        decided = state.decided.get(batch)
        winners = [] if decided is None else self.ledger.winners_of(decided)
        if own and winners != own:
            self.roll_back([losers for losers in own if losers not in winners])
        if decided is not None and not state.is_ended(batch):
            self.end(decided, winners)
            self.note_ended(query, batch)

    def abort(self, messages: Sequence[Prepared | None]) -> None:
        """Rolls back only if a task failed: otherwise commit() was tried, and its record may still reach the ledger."""
        if any(message is None for message in messages):
            self.roll_back([winners for message in messages if message is not None for winners in message.winners])

    def decide(self, query: str, batch: int, winners: list[Winners]) -> LedgerRecord:
        return self.ledger.record(query, batch, self.options.group, winners)

    def end(self, decided: LedgerRecord, winners: list[Winners]) -> None:
        self._outcomes(decided.group).commit(winners)

    def note_ended(self, query: str, batch: int) -> None:
        self.ledger.note_ended(query, batch)

    def roll_back(self, winners: list[Winners]) -> None:
        """Best effort: brokers check later what could not be rolled back."""
        try:
            self._outcomes(self.options.group).roll_back(winners)
        except ArianeError:
            return

    def _outcomes(self, group: str) -> Outcomes:
        return Outcomes(self.cluster, self.options.topic or self.options.ledger_topic, group, self.options.patience_s)


class ExactlyOnceWriter(DataSourceArrowWriter):
    """One write is one batch, named by the option transactionId, else by a random id."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._steps = ExactlyOnce(options, schema)
        self._steps.check_topics()
        self._query = options.transaction_id or uuid.uuid4().hex  # drawn once: the tasks and commit() use the same

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Prepared:
        return self._steps.prepare(iterator, self._query, 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._steps.commit(_all_prepared(messages), 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._steps.abort([message if isinstance(message, Prepared) else None for message in messages])


class ExactlyOnceStreamWriter(DataSourceStreamArrowWriter):
    """Spark creates one for planning and another for each commit; the query's id comes with the tasks' messages."""

    def __init__(self, options: WriteOptions, schema: StructType, steps: ExactlyOnce | None = None) -> None:
        if options.transaction_id is not None:
            raise SettingsError("option transactionId is for batch writes: a stream is known by its checkpoint")
        self._steps = steps or ExactlyOnce(options, schema)
        self._steps.check_topics()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Prepared:
        context = TaskContext.get()
        # Both stay the same when the query starts again from its checkpoint.
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        if not query or not batch:
            raise SettingsError(
                "Spark does not report which query and micro-batch this is, so delivery=exactly-once could not "
                "recognise a repeated one: give the query a checkpointLocation"
            )
        return self._steps.prepare(iterator, query, int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._steps.commit(_all_prepared(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._steps.abort([message if isinstance(message, Prepared) else None for message in messages])


def _all_prepared(messages: list[WriterCommitMessage | None]) -> list[Prepared]:
    prepared = [message for message in messages if isinstance(message, Prepared)]
    if len(prepared) != len(messages):
        raise NoRoute("Spark commits a write although some of its tasks did not end: write the batch again")
    return prepared
