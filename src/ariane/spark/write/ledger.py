"""The ledger of the exactly-once sink: which half messages of which micro-batches are committed.

The ledger is a topic with one queue, and the order of that queue decides: the first record of a batch counts, later
ones change nothing. A driver that wrote a record reads the queue back before it acts on the record, because a record of
another run may have arrived first.

A query's records have its id as their tag, so that a broker can filter them, and `query/batch` as their key, for people
who search. They are kept as long as the broker keeps messages.

A record of kind `winners` decides a batch: it names the half messages that become visible. All other half messages of
the batch, of attempts that failed or that a killed driver left behind, are rolled back. A record of kind `ended` says
that the brokers have committed all winners.

    winners  {query, batch, id, group, winners: [{attempt, partition, broker, count, packed}], parts: [offsets]}
    ended    {query, batch, id}

A half message is identified by the attempt that sent it and a serial number, unique within the attempt: a send that is
repeated, because its response did not come, is another half message. `packed` has three numbers for each:

    serial        counted by the attempt
    half offset   in the queue of half messages, from the broker's response
    log offset    in the broker's commit log, likewise

as differences from row to row, 64 bits each, little-endian, column by column, and then zlib. Half messages of one
attempt are close together, so about three bytes are left of 24. What does not fit into one message goes into parts:
messages of the same queue before the record, which count only through the record.
"""

import uuid
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from time import monotonic, sleep, time

import msgspec
import numpy as np

from ariane.client.producer.queue_selection import publish_queues
from ariane.errors import NoRoute, RecordError, RequestFailed, SendFailed, SettingsError
from ariane.model.message import Property
from ariane.model.route import MASTER_ID, MessageQueue
from ariane.model.topic import AUTO_CREATE_TEMPLATE
from ariane.spark.cluster import Cluster
from ariane.spark.offsets import QueueRange
from ariane.spark.options.write import WriteOptions
from ariane.spark.read.range_pull import PullSettings, RangePull
from ariane.spark.write.sender import create_topic, route_to_write
from ariane.wire.codes import ResponseCode
from ariane.wire.properties import encode_properties
from ariane.wire.record.read import decode_all
from ariane.wire.requests.send import SendMessageV2, SendResponse
from ariane.wire.requests.topics import GetCluster

# --- records as values and as bytes ---

ENTRIES_MAX = 50_000
"""In one `Winners`."""
RECORD_BYTES_MAX = 1024 * 1024


class HalfEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    serial: int
    half_offset: int
    log_offset: int


class Winners(msgspec.Struct, frozen=True, kw_only=True):
    """Half messages of one attempt on one broker, in the order of its rows."""

    attempt: str
    partition: int
    broker: str
    count: int
    packed: bytes

    def entries(self) -> list[HalfEntry]:
        """RecordError when the bytes are not what was packed."""
        size = self.count * 24
        reader = zlib.decompressobj()
        try:
            data = reader.decompress(self.packed, size + 1) if 0 < self.count <= ENTRIES_MAX else b""
        except zlib.error as error:
            raise RecordError(f"a ledger record is damaged: {error}") from None
        if len(data) != size or not size:
            raise RecordError(f"a ledger record is damaged: {len(data)} bytes for {self.count} half messages")
        columns = np.cumsum(np.frombuffer(data, "<i8").reshape(3, self.count), axis=1)
        return [HalfEntry(*row) for row in columns.T.tolist()]


class RecordKind(StrEnum):
    WINNERS = "winners"
    ENDED = "ended"


class LedgerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    query: str
    batch: int
    kind: RecordKind
    id: str
    """Drawn by its writer, to recognise its own record."""
    group: str = ""
    """The producer group, which is part of every EndTransaction request."""
    winners: list[Winners] = []
    parts: list[int] = []
    """Offsets in the ledger's queue."""


def pack(attempt: str, partition: int, broker: str, entries: list[HalfEntry]) -> list[Winners]:
    return [
        Winners(attempt=attempt, partition=partition, broker=broker, count=len(some), packed=_packed(some))
        for start in range(0, len(entries), ENTRIES_MAX)
        if (some := entries[start : start + ENTRIES_MAX])
    ]


def _packed(entries: list[HalfEntry]) -> bytes:
    columns = np.array([(entry.serial, entry.half_offset, entry.log_offset) for entry in entries], "<i8").T
    differences = np.diff(columns, axis=1, prepend=0)
    return zlib.compress(np.ascontiguousarray(differences).astype("<i8").tobytes(), 1)


def encode_record(record: LedgerRecord) -> bytes:
    return msgspec.json.encode(record)


def decode_record(data: bytes) -> LedgerRecord:
    try:
        return msgspec.json.decode(data, type=LedgerRecord)
    except msgspec.DecodeError as error:
        raise RecordError(f"a ledger record cannot be read: {error}") from None


def split_parts(winners: Iterable[Winners]) -> Iterator[list[Winners]]:
    """Parts that fit into one message each."""
    part: list[Winners] = []
    size = 0
    for some in winners:
        length = len(some.packed) * 4 // 3 + 200  # as base64, with the names around it
        if part and size + length > RECORD_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append(some)
        size += length
    if part:
        yield part


def encode_part(winners: list[Winners]) -> bytes:
    return msgspec.json.encode(winners)


def decode_part(data: bytes) -> list[Winners]:
    try:
        return msgspec.json.decode(data, type=list[Winners])
    except msgspec.DecodeError as error:
        raise RecordError(f"a part of a ledger record cannot be read: {error}") from None


# --- the ledger ---

_GROUP = "ariane-spark-ledger"
_POLL_S = 0.005


@dataclass
class QueryState:
    """What the ledger says about one query, up to `next_offset`."""

    decided: dict[int, LedgerRecord] = field(default_factory=dict)
    """By batch, the first record of the newest batch and of the one before."""
    ended_to: int = -1
    newest: int = -1
    next_offset: int = 0

    def is_recorded(self, batch: int) -> bool:
        """A record of a later batch counts as well: Spark begins that one after all commits before it returned."""
        return batch <= self.newest

    def is_ended(self, batch: int) -> bool:
        return batch < self.newest or batch <= self.ended_to

    def take(self, record: LedgerRecord) -> None:
        if record.kind is RecordKind.ENDED:
            self.ended_to = max(self.ended_to, record.batch)
        elif record.batch not in self.decided and record.batch >= self.newest:
            self.newest = record.batch
            self.decided = {number: decision for number, decision in self.decided.items() if number == record.batch - 1}
            self.decided[record.batch] = record


class Ledger:
    """Not thread-safe. Remembers up to which offset it has read."""

    def __init__(self, cluster: Cluster, topic: str, patience_s: float) -> None:
        self.topic = topic
        self._cluster = cluster
        self._patience_s = patience_s
        self._states: dict[str, QueryState] = {}

    def state(self, query: str) -> QueryState:
        """Up to date when it returns."""
        return self._cluster.patiently(lambda: self._read(query), self._patience_s, self.topic)

    def record(self, query: str, batch: int, group: str, winners: list[Winners]) -> LedgerRecord:
        """Writes the decision on a batch; returns the record that counts, which is an earlier one if there is any."""
        parts = list(split_parts(winners))
        record = LedgerRecord(query=query, batch=batch, kind=RecordKind.WINNERS, id=uuid.uuid4().hex, group=group)
        if len(parts) == 1:
            whole = msgspec.structs.replace(record, winners=parts[0])
        else:
            offsets = [self._append(query, batch, ".part", encode_part(part)) for part in parts]
            whole = msgspec.structs.replace(record, parts=offsets)
        offset = self._append(query, batch, "", encode_record(whole))
        return self._read_past(query, offset).decided[batch]

    def note_ended(self, query: str, batch: int) -> None:
        record = LedgerRecord(query=query, batch=batch, kind=RecordKind.ENDED, id=uuid.uuid4().hex)
        self._append(query, batch, "", encode_record(record))

    def winners_of(self, record: LedgerRecord) -> list[Winners]:
        winners = list(record.winners)
        for offset in record.parts:
            winners += self._part(record, offset)
        return winners

    # --- reading ----------------------------------------------------------------------------------------------------

    def _read(self, query: str) -> QueryState:
        queue = self.queue()
        ends = self._cluster.ends(self.topic, queue.broker_name)[queue]
        state = self._states.setdefault(query, QueryState())
        start = max(state.next_offset, ends.first)
        for body in self._bodies(queue, start, ends.next, query):
            record = decode_record(body)
            if record.query == query:  # brokers compare only hashes of tags
                state.take(record)
        state.next_offset = ends.next
        return state

    def _read_past(self, query: str, offset: int) -> QueryState:
        """Polls, because a broker's queue follows its log with some delay."""
        deadline = monotonic() + self._patience_s
        while (state := self.state(query)).next_offset <= offset:
            if monotonic() > deadline:
                raise SendFailed(f"record {offset} of the ledger {self.topic} was stored but cannot be read back")
            sleep(_POLL_S)
        return state

    def _part(self, record: LedgerRecord, offset: int) -> list[Winners]:
        for body in self._bodies(self.queue(), offset, offset + 1, f"{record.query}.part"):
            return decode_part(body)
        raise RecordError(
            f"ledger {self.topic} has lost record {offset}, a part of batch {record.batch} of query {record.query}: "
            "the broker keeps messages for too short a time (fileReservedTime)"
        )

    def _bodies(self, queue: MessageQueue, start: int, end: int, tag: str) -> list[bytes]:
        settings = PullSettings(group=_GROUP, expression=tag, patience_s=self._patience_s, fail_on_data_loss=False)
        pull = RangePull(self._cluster, QueueRange(queue, start, end), settings)
        return [
            message.body
            for data in pull
            for message in decode_all(data)
            if start <= message.queue_offset < end and message.tags == tag
        ]

    # --- writing ----------------------------------------------------------------------------------------------------

    def queue(self) -> MessageQueue:
        queues = publish_queues(self.topic, self._cluster.route(self.topic))
        if len(queues) != 1:
            raise NoRoute(
                f"ledger topic {self.topic} has {len(queues)} queues that take messages, and must have one: its order "
                "decides. Create it again with one queue, or name another with the option ledgerTopic"
            )
        return queues[0]

    def _append(self, query: str, batch: int, suffix: str, body: bytes) -> int:
        """Returns when the broker has acknowledged it. A repeated record is harmless."""
        properties = {
            Property.TAGS: query + suffix,
            Property.KEYS: f"{query}/{batch}",
            Property.WAIT: "true",
        }
        text = encode_properties(properties).decode()
        return self._cluster.patiently(lambda: self._send(body, text), self._patience_s, self.topic)

    def _send(self, body: bytes, properties: str) -> int:
        queue = self.queue()
        request = SendMessageV2(
            producer_group=_GROUP,
            topic=self.topic,
            default_topic=AUTO_CREATE_TEMPLATE,
            default_topic_queue_nums=1,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=int(time() * 1000),
            flag=0,
            properties=properties,
            reconsume_times=0,
            body=body,
        )
        response: SendResponse = self._cluster.calls.call(
            self._cluster.address(self.topic, queue.broker_name, master_only=True), request
        )
        if response.code != ResponseCode.SUCCESS:
            raise SendFailed(f"ledger {self.topic}: {ResponseCode(response.code).name}")
        return response.queue_offset


# --- the topic: one queue, on the first broker of the topic that is written to ---


def open_ledger(cluster: Cluster, options: WriteOptions) -> Ledger:
    """Creates the topic if it is missing; SettingsError if that is not permitted, NoRoute if it has several queues."""
    topic = options.ledger_topic
    cluster.patiently(lambda: _ensure(cluster, options), options.patience_s, topic)
    ledger = Ledger(cluster, topic, options.patience_s)
    ledger.queue()
    return ledger


def _ensure(cluster: Cluster, options: WriteOptions) -> None:
    """NoRoute, which is retried, until the nameserver knows the new topic."""
    try:
        cluster.route(options.ledger_topic)
    except NoRoute:
        _create(cluster, options)
        cluster.route(options.ledger_topic)


def _create(cluster: Cluster, options: WriteOptions) -> None:
    address = _master_for_ledger(cluster, options.topic)
    try:
        create_topic(cluster, address, options.ledger_topic, queues=1)
    except RequestFailed as error:
        raise SettingsError(
            f"the ledger topic {options.ledger_topic} cannot be created at {address} ({error}): let an administrator "
            "create it, with one queue on one broker"
        ) from error


def _master_for_ledger(cluster: Cluster, topic: str | None) -> str:
    if topic is not None:
        brokers = route_to_write(cluster, topic).broker_datas
    else:
        brokers = list(cluster.call_nameserver(GetCluster()).body.broker_addr_table.values())
    for broker in sorted(brokers, key=lambda broker: broker.broker_name):
        if MASTER_ID in broker.broker_addrs:
            return broker.broker_addrs[MASTER_ID]
    raise NoRoute("there is no master for the ledger topic: start one")
