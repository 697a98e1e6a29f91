"""Each row becomes one message, whatever fails and is repeated: half messages, a ledger, and only then their ends.

    task     write()    half messages, tagged with query, batch, partition and attempt; seen by nobody
    driver   commit()   1. the ledger: these attempts have won       from here on the batch is written, come what may
                        2. the brokers: these half messages are real
                        3. the ledger: the brokers know

Killed before 1, the batch is written anew, and the half messages of before are never winners. Killed after 1, write()
finds the batch in the ledger and sends nothing, and commit() goes on with 2. What nobody ends the brokers ask about,
and the ledger has the answer: `check_answers.py`.
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
from ariane.spark.write.half_message import PROPERTY, HalfTag
from ariane.spark.write.ledger import HalfEntry, Ledger, LedgerRecord, Winners, open_ledger, pack
from ariane.spark.write.outcomes import Outcomes, answer_checks
from ariane.spark.write.rows import OutboundMessage, TaskIdentity, TaskKeys, check_schema, messages_of
from ariane.spark.write.sender import QueueChoice, accepted
from ariane.wire.frame import Command
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.properties import encode_properties
from ariane.wire.requests.send import SendMessageV2, SendResponse
from ariane.wire.sys_flag import SysFlag

# --- half_sending ---
#
# Half messages of one attempt: stored by brokers, and seen by nobody until their transaction is ended.
#
# Brokers take half messages one by one, so many are on their way at a time. Their order does not matter: that of the
# real messages is the order in which transactions are ended.

_WINDOW = 256
_WINDOW_BYTES = 4 * 1024 * 1024


class _Ask(NamedTuple):
    number: int
    """Of the message, in its window."""
    serial: int
    broker: str
    request: SendMessageV2


class HalfSender:
    def __init__(self, cluster: Cluster, options: WriteOptions, tag: HalfTag) -> None:
        self._cluster = cluster
        self._options = options
        self._tag = tag
        self._serial = 0
        self._choice = QueueChoice(cluster, options.patience_s, tag.partition)
        self._entries: dict[str, list[HalfEntry]] = {}
        more = {
            Property.TRANSACTION_PREPARED: "true",
            Property.PRODUCER_GROUP: options.group,
            Property.CHECK_IMMUNITY_TIME_IN_SECONDS: str(options.transaction_timeout_s),
        }
        self._more = encode_properties(more).decode()

    def send(self, messages: Iterable[OutboundMessage]) -> None:
        """Returns when every one is acknowledged."""
        source = iter(messages)
        while window := _take(source):
            self._deliver(window)

    def winners(self) -> list[Winners]:
        """All that was acknowledged so far."""
        tag = self._tag
        return [
            piece
            for broker, entries in self._entries.items()
            for piece in pack(tag.attempt, tag.partition, broker, entries)
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
                    raise _given_up(len(window) - len(done), window[0].topic, reasons, self._options.patience_s)
                sleep(pause_s)
                for topic in {message.topic for message in window}:
                    self._choice.refresh(topic)
        for _, (broker, entry) in sorted(done.items()):
            self._entries.setdefault(broker, []).append(entry)

    def _attempt(self, window: list[OutboundMessage], done: dict[int, tuple[str, HalfEntry]]) -> list[str]:
        """Sends what is not done, to all brokers at once; why some of it has to be sent again."""
        asks: dict[str, list[_Ask]] = {}
        for number, message in enumerate(window):
            if number not in done:
                one = self._ask(number, message)
                asks.setdefault(one.broker, []).append(one)
        reasons = []
        for broker, responses in self._answers(asks).items():
            if isinstance(responses, ArianeError):
                reasons.append(f"{broker}: {responses}")
                continue
            for one, command in zip(asks[broker], responses, strict=True):
                outcome = accepted(one.request, command)
                if isinstance(outcome, str):
                    reasons.append(f"{broker}: {outcome}")
                else:
                    done[one.number] = broker, _entry(one.serial, outcome)
        return reasons

    def _answers(self, asks: dict[str, list["_Ask"]]) -> dict[str, list[Command] | ArianeError]:
        outcomes: dict[str, list[Command] | ArianeError] = {}
        addresses: dict[str, str] = {}
        for broker, parts in asks.items():
            try:
                addresses[self._cluster.address(parts[0].request.topic, broker, master_only=True)] = broker
            except NoRoute as error:
                outcomes[broker] = error
        requests = {address: [one.request for one in asks[broker]] for address, broker in addresses.items()}
        found = self._cluster.calls.call_everywhere(requests, self._options.send_timeout_ms / 1000)
        return outcomes | {addresses[address]: outcome for address, outcome in found.items()}

    def _ask(self, number: int, message: OutboundMessage) -> "_Ask":
        queue = self._choice.fixed(message) or self._choice.next(message.topic)
        request = self._request(message, queue)
        self._serial += 1
        return _Ask(number, self._serial - 1, queue.broker_name, request)

    def _request(self, message: OutboundMessage, queue: MessageQueue) -> SendMessageV2:
        tag = f"{PROPERTY}\x01{self._tag.prefix}{self._serial}\x02"
        return SendMessageV2(
            producer_group=self._options.group,
            topic=message.topic,
            default_topic=AUTO_CREATE_TEMPLATE,
            default_topic_queue_nums=4,
            queue_id=queue.queue_id,
            sys_flag=int(SysFlag.TRANSACTION_PREPARED),
            born_timestamp=int(time() * 1000),
            flag=0,
            properties=f"{message.properties.decode()}{self._more}{tag}",
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


def _given_up(count: int, topic: str, reasons: list[str], patience_s: float) -> SendFailed:
    return SendFailed(
        f"{count} half messages for {topic} were not acknowledged within {patience_s:g} s "
        f"({'; '.join(dict.fromkeys(reasons))}). Check that the brokers run, or raise brokerWaitSeconds"
    )


# ---

_DELAYS = ("delayLevel", "deliverTimestamp")


@dataclass
class Prepared(WriterCommitMessage):
    """Half messages that one attempt has sent; none when the ledger had the batch already."""

    query: str
    batch: int
    winners: list[Winners] = field(default_factory=list)


class ExactlyOnce:
    """The steps of both writers. Travels to the tasks, so that it holds no connection."""

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
            for _ in batches:  # Spark wants its rows to be taken
                pass
            return Prepared(query, batch)
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        keys = TaskKeys(TaskIdentity(query, str(batch), partition))
        # Spark's own numbers of attempts begin anew with each driver.
        tag = HalfTag(self.options.ledger_topic, query, batch, partition, uuid.uuid4().hex[:16], 0)
        sender = HalfSender(self.cluster, self.options, tag)
        try:
            for one in batches:
                sender.send(messages_of(one, self.options.topic, keys))
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
        mine = [piece for message in messages for piece in message.winners]
        state = self.ledger.state(query)
        if not state.is_recorded(batch) and mine:
            self.decide(query, batch, mine)
            state = self.ledger.state(query)
        decided = state.decided.get(batch)
        winners = [] if decided is None else self.ledger.winners_of(decided)
        if mine and winners != mine:
            self.roll_back([piece for piece in mine if piece not in winners])
        if decided is not None and not state.is_ended(batch):
            self.end(decided, winners)
            self.note_ended(query, batch)

    def abort(self, messages: Sequence[Prepared | None]) -> None:
        """Only when a task has failed: otherwise commit() was tried, and the ledger may have its record yet."""
        if any(message is None for message in messages):
            self.roll_back([piece for message in messages if message is not None for piece in message.winners])

    def decide(self, query: str, batch: int, winners: list[Winners]) -> LedgerRecord:
        return self.ledger.record(query, batch, self.options.group, winners)

    def end(self, decided: LedgerRecord, winners: list[Winners]) -> None:
        self._endings(decided.group).commit(winners)

    def note_ended(self, query: str, batch: int) -> None:
        self.ledger.note_ended(query, batch)

    def roll_back(self, winners: list[Winners]) -> None:
        """If it fails the brokers will ask."""
        try:
            self._endings(self.options.group).roll_back(winners)
        except ArianeError:
            return

    def _endings(self, group: str) -> Outcomes:
        return Outcomes(self.cluster, self.options.topic or self.options.ledger_topic, group, self.options.patience_s)


class ExactlyOnceWriter(DataSourceArrowWriter):
    """One write is one batch, named by the option transactionId, or by chance."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._steps = ExactlyOnce(options, schema)
        self._steps.check_topics()
        self._query = options.transaction_id or uuid.uuid4().hex  # made once: the tasks and commit() have the same

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Prepared:
        return self._steps.prepare(iterator, self._query, 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._steps.commit(_all_prepared(messages), 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._steps.abort([one if isinstance(one, Prepared) else None for one in messages])


class ExactlyOnceStreamWriter(DataSourceStreamArrowWriter):
    """Spark makes one for planning and another one for each commit; the query's id comes with the tasks' messages."""

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
                "Spark does not tell which query and micro-batch this is, without which delivery=exactly-once cannot "
                "know a repeated one: give the query a checkpointLocation"
            )
        return self._steps.prepare(iterator, query, int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._steps.commit(_all_prepared(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._steps.abort([one if isinstance(one, Prepared) else None for one in messages])


def _all_prepared(messages: list[WriterCommitMessage | None]) -> list[Prepared]:
    prepared = [one for one in messages if isinstance(one, Prepared)]
    if len(prepared) != len(messages):
        raise NoRoute("Spark commits a write of which some tasks did not end: the batch is to be written again")
    return prepared
