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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ariane.errors import ArianeError, NoRoute, SettingsError
from ariane.spark.check_answers import answer_checks
from ariane.spark.cluster import Cluster, cluster_for
from ariane.spark.endings import Endings
from ariane.spark.half_sending import HalfSender
from ariane.spark.half_tags import HalfTag
from ariane.spark.ledger import Ledger
from ariane.spark.ledger_records import LedgerRecord, Winners
from ariane.spark.ledger_topic import open_ledger
from ariane.spark.outgoing import check_schema, messages_of
from ariane.spark.queue_choice import QueueChoice
from ariane.spark.unique_keys import TaskIdentity, TaskKeys
from ariane.spark.write_options import WriteOptions

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

    def _endings(self, group: str) -> Endings:
        return Endings(self.cluster, self.options.topic or self.options.ledger_topic, group, self.options.patience_s)


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
