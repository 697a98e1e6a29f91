"""Which queue a message goes to. Pure: routes and keys in, queues out."""

import random
from collections.abc import Callable, Iterable, Sequence

from ariane.model.message import Message
from ariane.model.route import MASTER_ID, BrokerData, MessageQueue, QueueData, TopicRoute
from ariane.model.topic import Permission
from ariane.wire.java_hash import java_hash

Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Chooses one of the queues for a message: the user's own way, when a sharding key is not enough."""

_WRITE = int(Permission.WRITE)


def publish_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """Every queue that takes messages, in the order on which Java producers agree: by broker name, then number."""
    if route.order_topic_conf:
        return list(_ordered_queues(topic, route.order_topic_conf))
    with_master = {data.broker_name for data in route.broker_datas if MASTER_ID in data.broker_addrs}
    return [
        MessageQueue(topic=topic, broker_name=data.broker_name, queue_id=queue_id)
        for data in sorted(route.queue_datas, key=_broker_name)
        if data.perm & _WRITE and data.broker_name in with_master
        for queue_id in range(data.write_queue_nums)
    ]


def _ordered_queues(topic: str, order: str) -> Iterable[MessageQueue]:
    """`broker-a:4;broker-b:4`: exactly these, even while a broker is away, so that a key never changes its queue."""
    for part in filter(None, order.split(";")):
        broker_name, _, count = part.partition(":")
        if count.isascii() and count.isdigit():
            for queue_id in range(min(int(count), 65_536)):
                yield MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)


def template_route(template: TopicRoute, queues_max: int) -> TopicRoute:
    """The route of a topic that the first send will create: on the brokers of TBW102, with as many queues as asked."""
    datas = [_narrowed(data, min(queues_max, data.read_queue_nums)) for data in template.queue_datas]
    return TopicRoute(queue_datas=datas, broker_datas=template.broker_datas)


def _narrowed(data: QueueData, count: int) -> QueueData:
    return QueueData(broker_name=data.broker_name, read_queue_nums=count, write_queue_nums=count, perm=data.perm)


def _broker_name(data: QueueData | BrokerData) -> str:
    return data.broker_name


class RoundRobin:
    """Each queue in turn, from a random one on, so that producers started together do not march in step."""

    def __init__(self, start: int | None = None) -> None:
        self._next = random.getrandbits(16) if start is None else start

    def pick(
        self, queues: Sequence[MessageQueue], *, avoid: str | None = None, usable: Callable[[str], bool] | None = None
    ) -> MessageQueue | None:
        """The next queue that is not on the broker `avoid` and whose broker is `usable`; None when there is none."""
        for _ in queues:
            queue = queues[self._next % len(queues)]
            self._next += 1
            if queue.broker_name != avoid and (usable is None or usable(queue.broker_name)):
                return queue
        return None


def by_sharding_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """The queue that Java's SelectMessageQueueByHash chooses for the same key and the same route."""
    return queues[abs(java_hash(key)) % len(queues)]
