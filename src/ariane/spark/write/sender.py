"""Messages of one task, sent in batches by queue, each acknowledged before the next of its queue leaves.

A round holds at most one request for each queue, all on their way at once. While the brokers store a round the next one
is made; it leaves when the last answer has come. So messages of one queue stay in order even when a request has to be
sent again, all brokers work at a time, and the task works with them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from time import monotonic, sleep, time

from ariane.client.producer.queue_selection import by_sharding_key, publish_queues
from ariane.errors import ArianeError, MessageRejected, NoRoute, RequestFailed, SendFailed, TransportError
from ariane.lifecycle import Backoff
from ariane.model.route import MASTER_ID, MessageQueue, TopicRoute
from ariane.model.topic import AUTO_CREATE_TEMPLATE, Permission, TopicFilterType
from ariane.spark.cluster import Cluster
from ariane.spark.options.write import WriteOptions
from ariane.spark.write.rows import EncodedRows, OutboundMessage
from ariane.transport.blocking import BlockingConnection
from ariane.wire.codes import ResponseCode
from ariane.wire.exchange import read_response
from ariane.wire.frame import Command
from ariane.wire.record.batch import BatchItem, encode_batch
from ariane.wire.requests.send import Send, SendBatch, SendMessageV2, SendResponse, SendV2
from ariane.wire.requests.topics import UpdateTopic

# --- new_topic ---
#
# A topic that is written to before it exists: made where brokers let sending make topics, refused elsewhere.
#
# It is made at all of those brokers at once. A producer's first send makes it at one of them, and from then on
# everything goes there.

_QUEUES = 4


def route_to_write(cluster: Cluster, topic: str, *, fresh: bool = False) -> TopicRoute:
    """NoRoute, which may be tried again, until the nameserver knows what was just made."""
    try:
        return cluster.route(topic, fresh=fresh)
    except NoRoute as missing:
        try:
            template = cluster.route(AUTO_CREATE_TEMPLATE, fresh=True)
        except NoRoute:
            raise missing from None
        for broker in template.broker_datas:
            if MASTER_ID in broker.broker_addrs:
                make_topic(cluster, broker.broker_addrs[MASTER_ID], topic, _QUEUES)
        return cluster.route(topic)


def make_topic(cluster: Cluster, address: str, topic: str, queues: int) -> None:
    ask = UpdateTopic(
        topic=topic,
        default_topic=AUTO_CREATE_TEMPLATE,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=int(Permission.READ_WRITE),
        topic_filter_type=TopicFilterType.SINGLE_TAG,
    )
    cluster.calls.call(address, ask)


# --- queue_choice ---
#
# Which queue each message of a task goes to: the one it names, the one of its sharding key, or the next in turn.


class QueueChoice:
    def __init__(self, cluster: Cluster, patience_s: float, turn: int) -> None:
        """`turn` is where this task begins with the queues, so that tasks do not all begin with the same."""
        self._cluster = cluster
        self._patience_s = patience_s
        self._turn = turn
        self._queues: dict[str, list[MessageQueue]] = {}

    def fixed(self, message: OutboundMessage) -> MessageQueue | None:
        """The only queue that this message may go to; None when any will do."""
        if message.queue_id is not None:
            return _named(message, self.queues_of(message.topic))
        if message.sharding_key is not None:
            return by_sharding_key(self.queues_of(message.topic), message.sharding_key)
        return None

    def current(self, topic: str) -> MessageQueue:
        queues = self.queues_of(topic)
        return queues[self._turn % len(queues)]

    def next(self, topic: str) -> MessageQueue:
        self._turn += 1
        return self.current(topic)

    def queues_of(self, topic: str) -> list[MessageQueue]:
        queues = self._queues.get(topic)
        if queues is None:
            queues = self._queues[topic] = self._cluster.patiently(
                lambda: publish_queues(topic, route_to_write(self._cluster, topic)), self._patience_s, topic
            )
        if not queues:
            raise NoRoute(f"topic {topic} has no queue that takes messages: give it permission 6, or start its masters")
        return queues

    def refresh(self, topic: str) -> None:
        """After a failure: the topic may have moved. Queues that are known stay known when nobody can tell."""
        try:
            queues = publish_queues(topic, self._cluster.route(topic, fresh=True))
        except ArianeError:  # the next attempt tells what is wrong, or the old route still holds
            return
        if queues:
            self._queues[topic] = queues


def _named(message: OutboundMessage, queues: list[MessageQueue]) -> MessageQueue:
    found = [
        queue
        for queue in queues
        if queue.queue_id == message.queue_id and message.broker_name in (None, queue.broker_name)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(queue.broker_name for queue in found)
        raise MessageRejected(
            f"queue {message.queue_id} of topic {message.topic} is on several brokers ({names}): add a column "
            "brokerName, or use shardingKey"
        )
    raise MessageRejected(f"topic {message.topic} has no queue {message.queue_id} that takes messages")


# --- parcels ---
#
# Requests to be: messages for one queue, packed as they will travel.

_BATCH_PROPERTIES = "WAIT\x01true\x02"
_ROUND_BYTES_MAX = 8 * 1024 * 1024


@dataclass(slots=True)
class QueueBatch:
    """`fixed` when it may go to no other queue."""

    queue: MessageQueue
    fixed: bool
    messages: list[OutboundMessage] = field(default_factory=list)
    size: int = 0
    encoded: bytes | None = None
    """In place of `messages`, of which there are `count`."""
    count: int = 0

    def add(self, message: OutboundMessage) -> None:
        self.messages.append(message)
        self.size += message.size
        self.count += 1

    def request(self, group: str) -> SendV2:
        single = self.messages[0] if len(self.messages) == 1 else None
        kind = SendBatch if single is None else SendMessageV2
        return kind(
            producer_group=group,
            topic=self.queue.topic,
            default_topic=AUTO_CREATE_TEMPLATE,
            default_topic_queue_nums=4,
            queue_id=self.queue.queue_id,
            sys_flag=0,
            born_timestamp=int(time() * 1000),
            flag=0,
            properties=_BATCH_PROPERTIES if single is None else single.properties.decode(),
            reconsume_times=0,
            unit_mode=False,
            batch=single is None,
            body=self._body() if single is None else single.body,
        )

    def _body(self) -> bytes:
        if self.encoded is not None:
            return self.encoded
        return encode_batch(BatchItem(one.body, one.properties) for one in self.messages)


class Rounds:
    """A round holds at most one parcel for each queue."""

    def __init__(self, options: WriteOptions, choice: QueueChoice) -> None:
        self._options = options
        self._choice = choice

    def of_messages(self, messages: Iterable[OutboundMessage]) -> Iterator[list[QueueBatch]]:
        """A round ends when a message does not fit the parcel of its queue any more."""
        parcels: dict[MessageQueue, QueueBatch] = {}
        size = 0
        for message in messages:
            queue, fixed = self._queue_for(message, parcels)
            parcel = parcels.get(queue)
            if (parcel is not None and not self._fits(parcel, message, fixed)) or size > _ROUND_BYTES_MAX:
                yield list(parcels.values())
                parcels, size, parcel = {}, 0, None
            if parcel is None:
                parcel = parcels[queue] = QueueBatch(queue, fixed)
            parcel.add(message)
            size += message.size
        if parcels:
            yield list(parcels.values())

    def of_rows(self, topic: str, rows: EncodedRows) -> Iterator[list[QueueBatch]]:
        """One parcel for each queue in turn."""
        parcels: list[QueueBatch] = []
        for count, data in rows.pieces(self._options.batch_count, self._options.batch_bytes):
            parcels.append(QueueBatch(self._choice.next(topic), fixed=False, size=len(data), encoded=data, count=count))
            if (
                len(parcels) == len(self._choice.queues_of(topic))
                or sum(one.size for one in parcels) > _ROUND_BYTES_MAX
            ):
                yield parcels
                parcels = []
        if parcels:
            yield parcels

    def _queue_for(
        self, message: OutboundMessage, parcels: dict[MessageQueue, QueueBatch]
    ) -> tuple[MessageQueue, bool]:
        fixed = self._choice.fixed(message)
        if fixed is not None:
            return fixed, True
        queue = self._choice.current(message.topic)
        parcel = parcels.get(queue)
        if parcel is not None and not self._fits(parcel, message, fixed=False):
            queue = self._choice.next(message.topic)  # and a new round when every queue has its parcel
        return queue, False

    def _fits(self, parcel: QueueBatch, message: OutboundMessage, fixed: bool) -> bool:
        return (
            parcel.fixed == fixed
            and not message.travels_alone
            and not parcel.messages[0].travels_alone
            and len(parcel.messages) < self._options.batch_count
            and parcel.size + message.size <= self._options.batch_bytes
        )


# --- send_answers ---
#
# What a broker's answer to a send means: stored, to be sent again, or hopeless.

# Another broker, or the same one later, may well say yes; anything else is for a person to look at.
RETRY_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)


def accepted(request: Send, command: Command) -> SendResponse | str:
    """The answer of a broker that has the message, or why it must be sent again. Raises what no attempt can mend."""
    try:
        response = read_response(request, command)
    except RequestFailed as error:
        if error.code == ResponseCode.MESSAGE_ILLEGAL:
            raise MessageRejected(f"the broker refuses a message for topic {request.topic}: {error.remark}") from error
        if error.code not in RETRY_CODES and not error.retriable:
            raise
        return str(error)
    # Stored, though not as safely as the broker was set up to: not an acknowledgement.
    return (
        response if response.code == ResponseCode.SUCCESS else f"{ResponseCode(response.code).name}: {response.remark}"
    )


# ---


@dataclass(slots=True)
class _Posted:
    """Requests of one round that are on their way to one broker."""

    parcels: list[QueueBatch]
    connection: BlockingConnection
    requests: list[SendV2] = field(default_factory=list)
    opaques: list[int] = field(default_factory=list)


class TaskSender:
    def __init__(self, cluster: Cluster, options: WriteOptions, turn: int) -> None:
        """`turn` is where this task begins with the queues, so that tasks do not all begin with the same."""
        self._cluster = cluster
        self._options = options
        self._choice = QueueChoice(cluster, options.patience_s, turn)
        self._rounds = Rounds(options, self._choice)
        self._under_way: list[_Posted] = []
        self._failed: list[QueueBatch] = []
        self._reasons: list[str] = []
        self.sent = 0

    def send(self, messages: Iterable[OutboundMessage]) -> None:
        for parcels in self._rounds.of_messages(messages):
            self._next_round(parcels)

    def send_rows(self, topic: str, rows: EncodedRows) -> None:
        for parcels in self._rounds.of_rows(topic, rows):
            self._next_round(parcels)

    def finish(self) -> None:
        """Returns when every message is acknowledged."""
        deadline = monotonic() + self._options.patience_s
        backoff = Backoff(first_s=0.05, longest_s=2.0)
        self._settle()
        while self._failed:
            pause_s = backoff.next_s()
            if monotonic() + pause_s > deadline:
                raise _given_up(self._failed, self._reasons, self._options.patience_s)
            sleep(pause_s)
            self._look_elsewhere()
            again, self._failed = self._failed, []
            self._post(again)
            self._settle()

    # --- rounds -----------------------------------------------------------------------------------------------------

    def _next_round(self, parcels: list[QueueBatch]) -> None:
        self.finish()
        self._post(parcels)
        self.sent += sum(parcel.count for parcel in parcels)

    def _post(self, parcels: list[QueueBatch]) -> None:
        by_broker: dict[str, list[QueueBatch]] = {}
        for parcel in parcels:
            by_broker.setdefault(parcel.queue.broker_name, []).append(parcel)
        self._reasons = []
        for parts in by_broker.values():
            try:
                self._under_way.append(self._posted(parts))
            except (TransportError, NoRoute) as error:
                self._fail(parts, error)

    def _posted(self, parcels: list[QueueBatch]) -> _Posted:
        queue = parcels[0].queue
        calls = self._cluster.calls
        posted = _Posted(
            parcels, calls.connection(self._cluster.address(queue.topic, queue.broker_name, master_only=True))
        )
        for parcel in parcels:
            request = parcel.request(self._options.group)
            posted.requests.append(request)
            posted.opaques.append(posted.connection.send(calls.command(request)))
        return posted

    def _settle(self) -> None:
        """Takes the answers of the round that is under way. Raises what no other attempt can mend."""
        under_way, self._under_way = self._under_way, []
        for posted in under_way:
            try:
                commands = posted.connection.receive(posted.opaques, self._options.send_timeout_ms / 1000)
            except TransportError as error:
                self._fail(posted.parcels, error)
                continue
            for parcel, request, command in zip(posted.parcels, posted.requests, commands, strict=True):
                outcome = accepted(request, command)
                if isinstance(outcome, str):
                    self._fail([parcel], outcome)

    def _fail(self, parcels: list[QueueBatch], reason: ArianeError | str) -> None:
        self._failed += parcels
        self._reasons.append(f"{parcels[0].queue.broker_name}: {reason}")

    def _look_elsewhere(self) -> None:
        for topic in {parcel.queue.topic for parcel in self._failed}:
            self._choice.refresh(topic)
        for parcel in self._failed:
            if not parcel.fixed:
                parcel.queue = self._choice.next(parcel.queue.topic)


def _given_up(failed: list[QueueBatch], reasons: list[str], patience_s: float) -> SendFailed:
    count = sum(parcel.count for parcel in failed)
    return SendFailed(
        f"{count} messages for {failed[0].queue.topic} were not acknowledged within {patience_s:g} s "
        f"({'; '.join(dict.fromkeys(reasons))}). Check that the brokers run, or raise brokerWaitSeconds"
    )
