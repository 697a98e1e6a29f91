"""Requests between clients and brokers: heartbeats, connections, queue locks of ordered consumption, consumer state."""

from enum import StrEnum

from msgspec import field

from ariane.model.group import ConsumeFromWhere, ConsumeType, MessageModel, Subscription
from ariane.model.route import MessageQueue
from ariane.wire.codes import RequestCode
from ariane.wire.exchange import ServedBy, request
from ariane.wire.fields import Request, Response
from ariane.wire.json.body import JsonBody

# --- heartbeats ---


class ProducerData(JsonBody, frozen=True):
    group_name: str


class ConsumerData(JsonBody, frozen=True):
    group_name: str
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscription_data_set: list[Subscription] = []
    unit_mode: bool = False


class HeartbeatData(JsonBody, frozen=True):
    """C++ clients omit empty sets and send the enums as numbers."""

    client_id: str = field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []


@request(RequestCode.HEART_BEAT, served_by=ServedBy.BROKER)
class Heartbeat(Request[Response], frozen=True):
    body: HeartbeatData | None = None


class UnregisterClientResponse(Response, frozen=True):
    """A struct of its own, though without fields: clients expect extFields `{}` in the response."""


@request(RequestCode.UNREGISTER_CLIENT, served_by=ServedBy.BROKER)
class UnregisterClient(Request[UnregisterClientResponse], frozen=True):
    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class ClientCheck(JsonBody, frozen=True):
    client_id: str
    group: str
    subscription_data: Subscription


@request(RequestCode.CHECK_CLIENT_CONFIG, served_by=ServedBy.BROKER)
class CheckClientConfig(Request[Response], frozen=True):
    """Sent by SQL92 consumers at start: if the broker refuses the subscription, the consumer fails to start."""

    body: ClientCheck | None = None


# --- members of a group ---


class ConsumerIds(JsonBody, frozen=True):
    consumer_id_list: list[str] = []


class ConsumerIdsResponse(Response, frozen=True):
    body: ConsumerIds = ConsumerIds()


@request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, served_by=ServedBy.BROKER)
class GetConsumerIds(Request[ConsumerIdsResponse], frozen=True):
    consumer_group: str


@request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, served_by=ServedBy.CLIENT)
class NotifyConsumerIdsChanged(Request[Response], frozen=True):
    """One-way: members joined or left, so rebalance."""

    consumer_group: str


# --- queue locks ---


class QueueLocks(JsonBody, frozen=True):
    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = []


class LockedQueues(JsonBody, frozen=True):
    locked: list[MessageQueue] = field(name="lockOKMQSet", default_factory=list)


class LockResponse(Response, frozen=True):
    body: LockedQueues = LockedQueues()


@request(RequestCode.LOCK_BATCH_MQ, served_by=ServedBy.BROKER)
class LockQueues(Request[LockResponse], frozen=True):
    body: QueueLocks | None = None


@request(RequestCode.UNLOCK_BATCH_MQ, served_by=ServedBy.BROKER)
class UnlockQueues(Request[Response], frozen=True):
    body: QueueLocks | None = None


# --- connections ---


class ClientConnection(JsonBody, frozen=True):
    client_id: str
    client_addr: str
    language: str | None = None
    version: int = 0


class ConsumerConnections(JsonBody, frozen=True):
    connection_set: list[ClientConnection] = []
    subscription_table: dict[str, Subscription] = {}
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ConsumerConnectionsResponse(Response, frozen=True):
    body: ConsumerConnections = ConsumerConnections()


@request(RequestCode.GET_CONSUMER_CONNECTION_LIST, served_by=ServedBy.BROKER)
class GetConsumerConnections(Request[ConsumerConnectionsResponse], frozen=True):
    consumer_group: str


class ProducerConnections(JsonBody, frozen=True):
    connection_set: list[ClientConnection] = []


class ProducerConnectionsResponse(Response, frozen=True):
    body: ProducerConnections = ProducerConnections()


@request(RequestCode.GET_PRODUCER_CONNECTION_LIST, served_by=ServedBy.BROKER)
class GetProducerConnections(Request[ProducerConnectionsResponse], frozen=True):
    producer_group: str


class ProducerInfo(JsonBody, frozen=True):
    client_id: str
    remote_ip: str | None = field(name="remoteIP", default=None)
    language: str | None = None
    version: int = 0
    last_update_timestamp: int = 0


class ProducerTable(JsonBody, frozen=True):
    data: dict[str, list[ProducerInfo]] = {}


class ProducersResponse(Response, frozen=True):
    body: ProducerTable = ProducerTable()


@request(RequestCode.GET_ALL_PRODUCER_INFO, served_by=ServedBy.BROKER)
class GetAllProducers(Request[ProducersResponse], frozen=True):
    """Every producer by group."""


# --- state of one consumer ---


class ProcessQueueInfo(JsonBody, frozen=True):
    """Messages of one queue that a consumer has pulled and not finished."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_mib: int = field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    dropped: bool = field(name="droped", default=False)
    """Apache's spelling on the wire; Go clients write "dropped", which Java does not read either."""
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class ConsumeStatus(JsonBody, frozen=True):
    """Rates of one topic: times in milliseconds, counts per second."""

    pull_rt: float = field(name="pullRT", default=0.0)
    pull_tps: float = field(name="pullTPS", default=0.0)
    consume_rt: float = field(name="consumeRT", default=0.0)
    consume_ok_tps: float = field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: int = 0


class ConsumerRunningInfo(JsonBody, frozen=True):
    properties: dict[str, str] = {}
    subscription_set: list[Subscription] = []
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    status_table: dict[str, ConsumeStatus] = {}
    jstack: str | None = None


class RunningInfoResponse(Response, frozen=True):
    body: ConsumerRunningInfo = ConsumerRunningInfo()


@request(RequestCode.GET_CONSUMER_RUNNING_INFO, served_by=ServedBy.BROKER | ServedBy.CLIENT)
class GetRunningInfo(Request[RunningInfoResponse], frozen=True):
    """An administrator sends it to the broker, which forwards it to the client and returns the response."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeOutcome(StrEnum):
    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeResult(JsonBody, frozen=True):
    order: bool = False
    auto_commit: bool = True
    consume_result: ConsumeOutcome | None = None
    remark: str | None = None
    spent_time_mills: int = 0


class ConsumeDirectlyResponse(Response, frozen=True):
    body: ConsumeResult = ConsumeResult()


@request(RequestCode.CONSUME_MESSAGE_DIRECTLY, served_by=ServedBy.BROKER | ServedBy.CLIENT)
class ConsumeDirectly(Request[ConsumeDirectlyResponse], frozen=True):
    """Deliver one message to one consumer now. The broker finds it by `msg_id`; the client gets it as the body."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    body: bytes = b""
