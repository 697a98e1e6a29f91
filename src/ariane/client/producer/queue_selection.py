"""Queue selection for sends: the queue of the first attempt and of each retry, and of a sharding key. No I/O.

`QueueSelection.choose` decides: round robin, if possible on another broker than the one that just failed.

Brokers to avoid, by the latency of their last send (RocketMQ's sendLatencyFaultEnable):

    a send took at least   50 ms  100 ms  550 ms   1 s    2 s    3 s    15 s
    avoid it for              0       0    30 s   1 min  2 min  3 min  10 min

A failed attempt counts as 30 s.
"""

import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ariane.model.message import Message
from ariane.model.route import MASTER_ID, BrokerData, MessageQueue, QueueData, TopicRoute
from ariane.model.topic import Permission
from ariane.wire.hashes import java_hash

Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""A function of the user that chooses one of the queues for a message, for when a sharding key is not enough."""

_WRITE = int(Permission.WRITE)


def publish_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """Every queue that accepts messages, in the order of Java producers: by broker name, then number."""
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
    """`broker-a:4;broker-b:4`: exactly these, even while a broker is down, so that a key never changes its queue."""
    for part in filter(None, order.split(";")):
        broker_name, _, count = part.partition(":")
        if count.isascii() and count.isdigit():
            for queue_id in range(min(int(count), 65_536)):
                yield MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)


def template_route(template: TopicRoute, queues_max: int) -> TopicRoute:
    """The route of a topic that the first send will create: the brokers of TBW102, with at most `queues_max` queues."""
    datas = [_with_queues(data, min(queues_max, data.read_queue_nums)) for data in template.queue_datas]
    return TopicRoute(queue_datas=datas, broker_datas=template.broker_datas)


def _with_queues(data: QueueData, count: int) -> QueueData:
    return QueueData(broker_name=data.broker_name, read_queue_nums=count, write_queue_nums=count, perm=data.perm)


def _broker_name(data: QueueData | BrokerData) -> str:
    return data.broker_name


class RoundRobin:
    """Each queue in turn, from a random one on, so that producers started together do not use the same queues."""

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


# --- the queue of an attempt ---


class QueueSelection:
    """Chooses the queues of one producer's attempts. `now` is a monotonic clock."""

    def __init__(self, now: Callable[[], float], *, latency_fault: bool) -> None:
        self._now = now
        self._latency_fault = latency_fault
        self._faults = FaultTable()
        self._round_robin: dict[str, RoundRobin] = {}

    def choose(self, queues: Sequence[MessageQueue], last_broker: str | None = None) -> MessageQueue:
        """The next queue in round robin, if possible on another broker than the one that just failed."""
        topic = queues[0].topic
        round_robin = self._round_robin.get(topic) or self._round_robin.setdefault(topic, RoundRobin())
        if self._latency_fault:
            now = self._now()
            chosen = round_robin.pick(queues, usable=lambda broker: self._faults.is_usable(broker, now))
            if chosen is not None:
                return chosen
            better = self._faults.least_bad(now)
            chosen = round_robin.pick(queues, usable=lambda broker: broker == better)
            if chosen is not None:
                return chosen
        chosen = round_robin.pick(queues, avoid=last_broker) or round_robin.pick(queues)
        assert chosen is not None
        return chosen

    def record_latency(self, queue: MessageQueue, latency_s: float) -> None:
        """Records how long a send took."""
        self._faults.record_latency(queue.broker_name, latency_s, self._now())

    def record_failure(self, queue: MessageQueue) -> None:
        self._faults.record_failure(queue.broker_name, self._now())


# --- avoidance of slow brokers ---

_LATENCIES_S = (0.05, 0.1, 0.55, 1.0, 2.0, 3.0, 15.0)
_PAUSES_S = (0.0, 0.0, 30.0, 60.0, 120.0, 180.0, 600.0)
_FAILURE_S = 30.0


@dataclass(slots=True)
class _Fault:
    latency_s: float
    until: float


class FaultTable:
    """Latencies by broker name. Times are those of a monotonic clock, passed by the caller."""

    def __init__(self) -> None:
        self._faults: dict[str, _Fault] = {}
        self._turn = 0

    def record_latency(self, broker: str, latency_s: float, now: float) -> None:
        self._faults[broker] = _Fault(latency_s, now + pause_for(latency_s))

    def record_failure(self, broker: str, now: float) -> None:
        self.record_latency(broker, _FAILURE_S, now)

    def is_usable(self, broker: str, now: float) -> bool:
        fault = self._faults.get(broker)
        return fault is None or now >= fault.until

    def least_bad(self, now: float) -> str | None:
        """If all are avoided: one of the better half in turn, so that no single broker gets all messages."""
        ranked = sorted(self._faults, key=lambda broker: self._badness(broker, now))
        if not ranked:
            return None
        self._turn += 1
        return ranked[self._turn % max(1, len(ranked) // 2)]

    def _badness(self, broker: str, now: float) -> tuple[bool, float, float]:
        fault = self._faults[broker]
        return now < fault.until, fault.latency_s, fault.until


def pause_for(latency_s: float) -> float:
    """How long to avoid a broker whose last send took `latency_s`."""
    step = bisect_right(_LATENCIES_S, latency_s) - 1
    return _PAUSES_S[step] if step >= 0 else 0.0
