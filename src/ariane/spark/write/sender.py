"""Sends the messages of one task, in batches by queue, each acknowledged before the next batch of its queue is sent.

A round holds at most one request for each queue, all pending at the same time. While the brokers store a round the next
one is encoded; it is sent when the last response has come. So messages of one queue stay in order even when a request
has to be sent again, all brokers work at the same time, and so does the task.
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
from ariane.wire.properties import WAIT_TRUE
from ariane.wire.record.batch import BatchItem, encode_batch
from ariane.wire.requests.send import Send, SendBatch, SendMessageV2, SendResponse, SendV2
from ariane.wire.requests.topics import UpdateTopic

# --- creating topics ---

_QUEUES = 4


def route_to_write(cluster: Cluster, topic: str, *, fresh: bool = False) -> TopicRoute:
    """The route of a topic, which is created if it is missing and the brokers let producers create topics.

    It is created on all of those brokers. A producer's first send creates it on one of them, and then all messages go
    there. NoRoute, which may be retried, until the nameserver knows the new topic.
    """
    try:
        return cluster.route(topic, fresh=fresh)
    except NoRoute as missing:
        try:
            template = cluster.route(AUTO_CREATE_TEMPLATE, fresh=True)
        except NoRoute:
            raise missing from None
        for broker in template.broker_datas:
            if MASTER_ID in broker.broker_addrs:
                create_topic(cluster, broker.broker_addrs[MASTER_ID], topic, _QUEUES)
        return cluster.route(topic)


def create_topic(cluster: Cluster, address: str, topic: str, queues: int) -> None:
    request = UpdateTopic(
        topic=topic,
        default_topic=AUTO_CREATE_TEMPLATE,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=int(Permission.READ_WRITE),
        topic_filter_type=TopicFilterType.SINGLE_TAG,
    )
    cluster.calls.call(address, request)


# --- queues ---


class QueueChoice:
    """The queue of each message: the one it names, the one of its sharding key, or the next in turn."""

    def __init__(self, cluster: Cluster, patience_s: float, turn: int) -> None:
        """`turn` is the first queue of this task: tasks should not all begin with the same one."""
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
        """After a failure: the topic may have moved. Keeps the known queues if the nameserver does not answer."""
        try:
            queues = publish_queues(topic, self._cluster.route(topic, fresh=True))
        except ArianeError:  # the next attempt reports the error, or the old route is still right
            return
        if queues:
            self._queues[topic] = queues


def _named(message: OutboundMessage, queues: list[MessageQueue]) -> MessageQueue:
    matches = [
        queue
        for queue in queues
        if queue.queue_id == message.queue_id and message.broker_name in (None, queue.broker_name)
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(queue.broker_name for queue in matches)
        raise MessageRejected(
            f"queue {message.queue_id} of topic {message.topic} is on several brokers ({names}): add a column "
            "brokerName, or use shardingKey"
        )
    raise MessageRejected(f"topic {message.topic} has no queue {message.queue_id} that takes messages")


# --- batches and rounds ---

_BATCH_PROPERTIES = WAIT_TRUE
_ROUND_BYTES_MAX = 8 * 1024 * 1024


@dataclass(slots=True)
class QueueBatch:
    """Messages of one send request. `fixed` if they may not go to another queue."""

    queue: MessageQueue
    fixed: bool
    messages: list[OutboundMessage] = field(default_factory=list)
    size: int = 0
    encoded: bytes | None = None
    """The encoded batch in place of `messages`; `count` says how many messages it has."""
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
        return encode_batch(BatchItem(message.body, message.properties) for message in self.messages)


class Rounds:
    """Groups messages into rounds, with at most one batch for each queue."""

    def __init__(self, options: WriteOptions, choice: QueueChoice) -> None:
        self._options = options
        self._choice = choice

    def of_messages(self, messages: Iterable[OutboundMessage]) -> Iterator[list[QueueBatch]]:
        """A round ends when a message does not fit into the batch of its queue any more."""
        batches: dict[MessageQueue, QueueBatch] = {}
        size = 0
        for message in messages:
            queue, fixed = self._queue_for(message, batches)
            batch = batches.get(queue)
            if (batch is not None and not self._fits(batch, message, fixed)) or size > _ROUND_BYTES_MAX:
                yield list(batches.values())
                batches, size, batch = {}, 0, None
            if batch is None:
                batch = batches[queue] = QueueBatch(queue, fixed)
            batch.add(message)
            size += message.size
        if batches:
            yield list(batches.values())

    def of_rows(self, topic: str, rows: EncodedRows) -> Iterator[list[QueueBatch]]:
        """One batch for each queue in turn."""
        batches: list[QueueBatch] = []
        for count, data in rows.batches(self._options.batch_count, self._options.batch_bytes):
            batches.append(QueueBatch(self._choice.next(topic), fixed=False, size=len(data), encoded=data, count=count))
            if (
                len(batches) == len(self._choice.queues_of(topic))
                or sum(batch.size for batch in batches) > _ROUND_BYTES_MAX
            ):
                yield batches
                batches = []
        if batches:
            yield batches

    def _queue_for(
        self, message: OutboundMessage, batches: dict[MessageQueue, QueueBatch]
    ) -> tuple[MessageQueue, bool]:
        fixed = self._choice.fixed(message)
        if fixed is not None:
            return fixed, True
        queue = self._choice.current(message.topic)
        batch = batches.get(queue)
        if batch is not None and not self._fits(batch, message, fixed=False):
            queue = self._choice.next(message.topic)  # and a new round when every queue has its batch
        return queue, False

    def _fits(self, batch: QueueBatch, message: OutboundMessage, fixed: bool) -> bool:
        return (
            batch.fixed == fixed
            and not message.is_unbatched
            and not batch.messages[0].is_unbatched
            and len(batch.messages) < self._options.batch_count
            and batch.size + message.size <= self._options.batch_bytes
        )


# --- responses ---

# Another broker, or the same one later, may accept the message. Other errors need a person.
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
    """The response of a broker that stored the message, or why it must be sent again. Raises an error that a retry
    cannot fix."""
    try:
        response = read_response(request, command)
    except RequestFailed as error:
        if error.code == ResponseCode.MESSAGE_ILLEGAL:
            raise MessageRejected(f"the broker rejects a message for topic {request.topic}: {error.remark}") from error
        if error.code not in RETRY_CODES and not error.retriable:
            raise
        return str(error)
    # Stored, but less safely than the broker is configured for: that does not count as an acknowledgement.
    return (
        response if response.code == ResponseCode.SUCCESS else f"{ResponseCode(response.code).name}: {response.remark}"
    )


# --- the sender ---


@dataclass(slots=True)
class _PendingRequests:
    """Pending requests of one round to one broker."""

    batches: list[QueueBatch]
    connection: BlockingConnection
    requests: list[SendV2] = field(default_factory=list)
    opaques: list[int] = field(default_factory=list)


class TaskSender:
    def __init__(self, cluster: Cluster, options: WriteOptions, turn: int) -> None:
        """`turn` is the first queue of this task: tasks should not all begin with the same one."""
        self._cluster = cluster
        self._options = options
        self._choice = QueueChoice(cluster, options.patience_s, turn)
        self._rounds = Rounds(options, self._choice)
        self._pending: list[_PendingRequests] = []
        self._failed: list[QueueBatch] = []
        self._reasons: list[str] = []
        self.sent = 0

    def send(self, messages: Iterable[OutboundMessage]) -> None:
        for batches in self._rounds.of_messages(messages):
            self._next_round(batches)

    def send_rows(self, topic: str, rows: EncodedRows) -> None:
        for batches in self._rounds.of_rows(topic, rows):
            self._next_round(batches)

    def finish(self) -> None:
        """Returns when every message is acknowledged."""
        deadline = monotonic() + self._options.patience_s
        backoff = Backoff(first_s=0.05, longest_s=2.0)
        self._receive()
        while self._failed:
            pause_s = backoff.next_s()
            if monotonic() + pause_s > deadline:
                raise _not_acknowledged(self._failed, self._reasons, self._options.patience_s)
            sleep(pause_s)
            self._reroute_failed()
            again, self._failed = self._failed, []
            self._post(again)
            self._receive()

    # --- rounds -----------------------------------------------------------------------------------------------------

    def _next_round(self, batches: list[QueueBatch]) -> None:
        self.finish()
        self._post(batches)
        self.sent += sum(batch.count for batch in batches)

    def _post(self, batches: list[QueueBatch]) -> None:
        by_broker: dict[str, list[QueueBatch]] = {}
        for batch in batches:
            by_broker.setdefault(batch.queue.broker_name, []).append(batch)
        self._reasons = []
        for of_broker in by_broker.values():
            try:
                self._pending.append(self._posted(of_broker))
            except (TransportError, NoRoute) as error:
                self._fail(of_broker, error)

    def _posted(self, batches: list[QueueBatch]) -> _PendingRequests:
        queue = batches[0].queue
        calls = self._cluster.calls
        posted = _PendingRequests(
            batches, calls.connection(self._cluster.address(queue.topic, queue.broker_name, master_only=True))
        )
        for batch in batches:
            request = batch.request(self._options.group)
            posted.requests.append(request)
            posted.opaques.append(posted.connection.send(calls.command(request, posted.connection)))
        return posted

    def _receive(self) -> None:
        """Takes the responses of the pending round. Raises an error that a retry cannot fix."""
        pending, self._pending = self._pending, []
        for posted in pending:
            try:
                commands = posted.connection.receive(posted.opaques, self._options.send_timeout_ms / 1000)
            except TransportError as error:
                self._fail(posted.batches, error)
                continue
            for batch, request, command in zip(posted.batches, posted.requests, commands, strict=True):
                result = accepted(request, command)
                if isinstance(result, str):
                    self._fail([batch], result)

    def _fail(self, batches: list[QueueBatch], reason: ArianeError | str) -> None:
        self._failed += batches
        self._reasons.append(f"{batches[0].queue.broker_name}: {reason}")

    def _reroute_failed(self) -> None:
        for topic in {batch.queue.topic for batch in self._failed}:
            self._choice.refresh(topic)
        for batch in self._failed:
            if not batch.fixed:
                batch.queue = self._choice.next(batch.queue.topic)


def _not_acknowledged(failed: list[QueueBatch], reasons: list[str], patience_s: float) -> SendFailed:
    count = sum(batch.count for batch in failed)
    return SendFailed(
        f"{count} messages for {failed[0].queue.topic} were not acknowledged within {patience_s:g} s "
        f"({'; '.join(dict.fromkeys(reasons))}). Check that the brokers run, or raise brokerWaitSeconds"
    )
