"""Which micro-batches were written, and by which half messages: a topic with one queue, so that its order is the truth.

The first record of a batch counts and later ones change nothing. A driver that wrote a record reads back what stands
in the queue before it goes by it: the record of another run may have been on its way all the time.

A query's records have its id as their tag, so that a broker finds them among those of other queries, and
`query/batch` as their key, so that people do. They are kept as long as the broker keeps messages.
"""

import uuid
from dataclasses import dataclass, field
from time import monotonic, sleep, time

import msgspec

from ariane.client.selection import publish_queues
from ariane.errors import NoRoute, RecordError, SendFailed
from ariane.model.message import Property
from ariane.model.route import MessageQueue
from ariane.model.topic import AUTO_CREATE_TEMPLATE
from ariane.spark.cluster import Cluster
from ariane.spark.ledger_records import (
    Kind,
    LedgerRecord,
    Winners,
    decode_part,
    decode_record,
    encode_part,
    encode_record,
    split_parts,
)
from ariane.spark.pulls import PullSettings, RangePull
from ariane.spark.ranges import QueueRange
from ariane.wire.codes import ResponseCode
from ariane.wire.properties import encode_properties
from ariane.wire.record_read import decode_all
from ariane.wire.requests.send import SendAnswer, SendMessageV2

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
        ask = SendMessageV2(
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
        answer: SendAnswer = self._cluster.calls.call(
            self._cluster.address(self.topic, queue.broker_name, master_only=True), ask
        )
        if answer.code != ResponseCode.SUCCESS:
            raise SendFailed(f"ledger {self.topic}: {ResponseCode(answer.code).name}")
        return answer.queue_offset
