"""Clients and their broker: heartbeats, who is connected, and the locks of ordered consumption."""

from msgspec import field

from ariane.model.group import ConsumeFromWhere, ConsumeType, MessageModel, Subscription
from ariane.model.route import MessageQueue
from ariane.wire.body import JsonBody
from ariane.wire.codes import RequestCode
from ariane.wire.declare import ServedBy, request
from ariane.wire.fields import Answer, Request

# --- presence


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
    """C++ clients leave out empty sets and send the enums as numbers."""

    client_id: str = field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []


@request(RequestCode.HEART_BEAT, served_by=ServedBy.BROKER)
class Heartbeat(Request[Answer], frozen=True):
    body: HeartbeatData | None = None


class Unregistered(Answer, frozen=True):
    """No field, yet a header of its own: clients find extFields `{}` in the answer."""


@request(RequestCode.UNREGISTER_CLIENT, served_by=ServedBy.BROKER)
class UnregisterClient(Request[Unregistered], frozen=True):
    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class ClientCheck(JsonBody, frozen=True):
    client_id: str
    group: str
    subscription_data: Subscription


@request(RequestCode.CHECK_CLIENT_CONFIG, served_by=ServedBy.BROKER)
class CheckClientConfig(Request[Answer], frozen=True):
    """Asked by SQL92 consumers at their start: a subscription that the broker refuses ends them at once."""

    body: ClientCheck | None = None


# --- members of a group


class ConsumerIds(JsonBody, frozen=True):
    consumer_id_list: list[str] = []


class ConsumerIdsAnswer(Answer, frozen=True):
    body: ConsumerIds = ConsumerIds()


@request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, served_by=ServedBy.BROKER)
class GetConsumerIds(Request[ConsumerIdsAnswer], frozen=True):
    consumer_group: str


@request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, served_by=ServedBy.CLIENT)
class NotifyConsumerIdsChanged(Request[Answer], frozen=True):
    """One-way: members came or went, so share out the queues anew."""

    consumer_group: str


# --- locks


class QueueLocks(JsonBody, frozen=True):
    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = []


class LockedQueues(JsonBody, frozen=True):
    locked: list[MessageQueue] = field(name="lockOKMQSet", default_factory=list)


class LockAnswer(Answer, frozen=True):
    body: LockedQueues = LockedQueues()


@request(RequestCode.LOCK_BATCH_MQ, served_by=ServedBy.BROKER)
class LockQueues(Request[LockAnswer], frozen=True):
    body: QueueLocks | None = None


@request(RequestCode.UNLOCK_BATCH_MQ, served_by=ServedBy.BROKER)
class UnlockQueues(Request[Answer], frozen=True):
    body: QueueLocks | None = None
