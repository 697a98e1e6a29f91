"""Which micro-batches were written, and by which half messages: a topic with one queue, so that its order is the truth.

The first record of a batch counts and later ones change nothing. A driver that wrote a record reads back what stands
in the queue before it goes by it: the record of another run may have been on its way all the time.

A query's records have its id as their tag, so that a broker finds them among those of other queries, and
`query/batch` as their key, so that people do. They are kept as long as the broker keeps messages.
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
from ariane.spark.write.sender import make_topic, route_to_write
from ariane.wire.codes import ResponseCode
from ariane.wire.properties import encode_properties
from ariane.wire.record.read import decode_all
from ariane.wire.requests.send import SendMessageV2, SendResponse
from ariane.wire.requests.topics import GetCluster

# --- ledger_records ---
#
# What the ledger holds, as values and as bytes. Pure.
#
# A batch is decided by one record of kind `winners`: it names the half messages that are to become visible. All others
# of the batch, of attempts that failed or that a killed driver left behind, are to be rolled back. A record of kind
# `ended` says that the brokers have heard of all winners.
#
#     winners  {query, batch, id, group, winners: [{attempt, partition, broker, count, packed}], parts: [offsets]}
#     ended    {query, batch, id}
#
# A half message is named by the attempt that sent it and a serial number, which no other send of this attempt has: a
# send that is repeated, because its answer did not come, is another half message. `packed` has three numbers for each:
#
#     serial        counted by the attempt
#     half offset   in the queue of half messages, as the broker's answer tells
#     log offset    in the broker's commit log, likewise
#
# as differences from row to row, 64 bits each, little-endian, column by column, and then zlib. Half messages of one
# attempt lie close together, so that about three bytes are left of 24. What does not fit one message goes into parts:
# messages of the same queue which stand before the record, and which only the record makes count.

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


class Kind(StrEnum):
    WINNERS = "winners"
    ENDED = "ended"


class LedgerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    query: str
    batch: int
    kind: Kind
    id: str
    """Made by its writer, so that it knows its own."""
    group: str = ""
    """Of the producer, which must be told with every outcome."""
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
    columns = np.array([(one.serial, one.half_offset, one.log_offset) for one in entries], "<i8").T
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
    """Pieces that fit one message each."""
    piece: list[Winners] = []
    size = 0
    for one in winners:
        length = len(one.packed) * 4 // 3 + 200  # as base64, with the names around it
        if piece and size + length > RECORD_BYTES_MAX:
            yield piece
            piece, size = [], 0
        piece.append(one)
        size += length
    if piece:
        yield piece


def encode_part(winners: list[Winners]) -> bytes:
    return msgspec.json.encode(winners)


def decode_part(data: bytes) -> list[Winners]:
    try:
        return msgspec.json.decode(data, type=list[Winners])
    except msgspec.DecodeError as error:
        raise RecordError(f"a part of a ledger record cannot be read: {error}") from None


# ---

_GROUP = "ariane-spark-ledger"
_POLL_S = 0.005


@dataclass
class QueryState:
    """What the ledger says of one query, as far as it was read."""

    decided: dict[int, LedgerRecord] = field(default_factory=dict)
    """The first record of each of the last batches."""
    ended_to: int = -1
    newest: int = -1
    next_offset: int = 0

    def is_recorded(self, batch: int) -> bool:
        """A later one counts as well: Spark begins it when the commit of all before it has returned."""
        return batch <= self.newest

    def is_ended(self, batch: int) -> bool:
        return batch < self.newest or batch <= self.ended_to

    def take(self, record: LedgerRecord) -> None:
        if record.kind is Kind.ENDED:
            self.ended_to = max(self.ended_to, record.batch)
        elif record.batch not in self.decided and record.batch >= self.newest:
            self.newest = record.batch
            self.decided = {number: one for number, one in self.decided.items() if number == record.batch - 1}
            self.decided[record.batch] = record


class Ledger:
    """For one thread. Remembers how far it has read."""

    def __init__(self, cluster: Cluster, topic: str, patience_s: float) -> None:
        self.topic = topic
        self._cluster = cluster
        self._patience_s = patience_s
        self._states: dict[str, QueryState] = {}

    def state(self, query: str) -> QueryState:
        """Up to date when it returns."""
        return self._cluster.patiently(lambda: self._read(query), self._patience_s, self.topic)

    def record(self, query: str, batch: int, group: str, winners: list[Winners]) -> LedgerRecord:
        """Writes the decision on a batch, unless there is one; returns the one that counts."""
        pieces = list(split_parts(winners))
        record = LedgerRecord(query=query, batch=batch, kind=Kind.WINNERS, id=uuid.uuid4().hex, group=group)
        if len(pieces) == 1:
            whole = msgspec.structs.replace(record, winners=pieces[0])
        else:
            offsets = [self._append(query, batch, ".part", encode_part(piece)) for piece in pieces]
            whole = msgspec.structs.replace(record, parts=offsets)
        offset = self._append(query, batch, "", encode_record(whole))
        return self._read_past(query, offset).decided[batch]

    def note_ended(self, query: str, batch: int) -> None:
        record = LedgerRecord(query=query, batch=batch, kind=Kind.ENDED, id=uuid.uuid4().hex)
        self._append(query, batch, "", encode_record(record))

    def winners_of(self, record: LedgerRecord) -> list[Winners]:
        found = list(record.winners)
        for offset in record.parts:
            found += self._part(record, offset)
        return found

    # --- reading ----------------------------------------------------------------------------------------------------

    def _read(self, query: str) -> QueryState:
        queue = self.queue()
        ends = self._cluster.ends(self.topic, queue.broker_name)[queue]
        state = self._states.setdefault(query, QueryState())
        start = max(state.next_offset, ends.first)
        for body in self._bodies(queue, start, ends.next, query):
            record = decode_record(body)
            if record.query == query:  # brokers compare hashes of tags
                state.take(record)
        state.next_offset = ends.next
        return state

    def _read_past(self, query: str, offset: int) -> QueryState:
        """A broker's index follows its log at some distance."""
        deadline = monotonic() + self._patience_s
        while (state := self.state(query)).next_offset <= offset:
            if monotonic() > deadline:
                raise SendFailed(f"the record {offset} of ledger {self.topic} was stored but cannot be read back")
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
                "is the truth. Create it anew with one queue, or name another with the option ledgerTopic"
            )
        return queues[0]

    def _append(self, query: str, batch: int, suffix: str, body: bytes) -> int:
        """Returns when the broker has it as safely as it is set up to. A repeated record is harmless."""
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


# --- ledger_topic ---
#
# The ledger's topic, made when it is missing: one queue, on the first broker of the topic that is written to.


def open_ledger(cluster: Cluster, options: WriteOptions) -> Ledger:
    """Made if it does not exist; SettingsError when we may not make it. Refuses one that has several queues."""
    topic = options.ledger_topic
    cluster.patiently(lambda: _ensure(cluster, options), options.patience_s, topic)
    ledger = Ledger(cluster, topic, options.patience_s)
    ledger.queue()
    return ledger


def _ensure(cluster: Cluster, options: WriteOptions) -> None:
    """NoRoute, which is retried, until the nameserver knows what was just made."""
    try:
        cluster.route(options.ledger_topic)
    except NoRoute:
        _make(cluster, options)
        cluster.route(options.ledger_topic)


def _make(cluster: Cluster, options: WriteOptions) -> None:
    address = _home(cluster, options.topic)
    try:
        make_topic(cluster, address, options.ledger_topic, queues=1)
    except RequestFailed as error:
        raise SettingsError(
            f"the ledger topic {options.ledger_topic} cannot be made at {address} ({error}): let an administrator "
            "create it, with one queue on one broker"
        ) from error


def _home(cluster: Cluster, topic: str | None) -> str:
    if topic is not None:
        brokers = route_to_write(cluster, topic).broker_datas
    else:
        brokers = list(cluster.ask_nameserver(GetCluster()).body.broker_addr_table.values())
    for broker in sorted(brokers, key=lambda one: one.broker_name):
        if MASTER_ID in broker.broker_addrs:
            return broker.broker_addrs[MASTER_ID]
    raise NoRoute("no master is there for the ledger topic: start one")
