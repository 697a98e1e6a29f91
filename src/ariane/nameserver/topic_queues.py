"""Which brokers have queues of which topic, and a version per topic that moves when its route does. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from ariane.model.ids import topic_fault
from ariane.model.route import QueueData
from ariane.model.topic import Permission, TopicConfig, TopicSysFlag

INT32_MAX = 2**31 - 1  # clients read these numbers into 32 bits


@dataclass(slots=True)
class _Topic:
    queues: dict[str, QueueData]  # by broker name; never empty
    version: int


class TopicQueues:
    """Topic to queues by broker name, with the way back from a broker to its topics.

    The way back makes the loss of a broker cost its own topics and not all topics. Versions come from one counter that
    only grows: a topic that vanishes and returns can not meet an old number again.
    """

    def __init__(self, topics_max: int) -> None:
        self._topics_max = topics_max
        self._topics: dict[str, _Topic] = {}
        self._topics_of: dict[str, dict[str, None]] = {}
        self._changes = 0

    def of(self, topic: str) -> list[QueueData]:
        """By broker name, so that every nameserver tells the same route in the same order."""
        found = self._topics.get(topic)
        return [] if found is None else [found.queues[broker_name] for broker_name in sorted(found.queues)]

    def version(self, topic: str) -> int:
        """0 for a topic that nobody has."""
        found = self._topics.get(topic)
        return 0 if found is None else found.version

    def topics(self) -> list[str]:
        return list(self._topics)

    def topics_of(self, broker_name: str) -> list[str]:
        return list(self._topics_of.get(broker_name, ()))

    def flagged(self, has: TopicSysFlag, lacks: TopicSysFlag) -> list[str]:
        """Topics by the flags that the first broker of their route gave them."""
        wanted, looked_at = int(has), int(has | lacks)
        return [
            name
            for name, topic in self._topics.items()
            if topic.queues[min(topic.queues)].topic_sys_flag & looked_at == wanted
        ]

    def put(self, broker_name: str, configs: Iterable[TopicConfig]) -> dict[str, str]:
        """Add or update topics of one broker, never remove one. Returns the refused ones and why."""
        change = self._next_change()
        faults = ((config.topic_name, self._put_one(broker_name, config, change)) for config in configs)
        return {topic: fault for topic, fault in faults if fault is not None}

    def renew(self, broker_name: str) -> None:
        """The broker's addresses changed: its topics keep their queues, but their routes differ."""
        change = self._next_change()
        for topic in self._topics_of.get(broker_name, ()):
            self._topics[topic].version = change

    def remove_broker(self, broker_name: str) -> None:
        change = self._next_change()
        for topic in self.topics_of(broker_name):
            self._remove_one(topic, broker_name, change)

    def remove_topic(self, topic: str, broker_names: Iterable[str] | None = None) -> bool:
        """Forget a topic on the named brokers, or on all of them. False when there was nothing to forget."""
        found = self._topics.get(topic)
        if found is None:
            return False
        names = found.queues if broker_names is None else broker_names
        holders = [name for name in names if name in found.queues]
        change = self._next_change()
        for broker_name in holders:
            self._remove_one(topic, broker_name, change)
        return bool(holders)

    def change_permission(self, broker_name: str, *, add: Permission, remove: Permission) -> int:
        """Set and clear permission bits on all topics of a broker; returns how many topics it has."""
        change = self._next_change()
        topics = self.topics_of(broker_name)
        for name in topics:
            queues = self._topics[name].queues[broker_name]
            perm = queues.perm & ~int(remove) | int(add)
            if perm != queues.perm:
                self._set(name, replace(queues, perm=perm), change)
        return len(topics)

    def _put_one(self, broker_name: str, config: TopicConfig, change: int) -> str | None:
        queues = _queues_of(broker_name, config)
        known = self._topics.get(config.topic_name)
        if known is not None and known.queues.get(broker_name) == queues:
            return None  # by far the most frequent case: nothing to check, and the version stays
        fault = _config_fault(config)
        if fault is None and known is None and len(self._topics) >= self._topics_max:
            fault = f"this nameserver already holds {self._topics_max} topics"
        if fault is None:
            self._set(config.topic_name, queues, change)
        return fault

    def _set(self, name: str, queues: QueueData, change: int) -> None:
        topic = self._topics.setdefault(name, _Topic({}, change))
        topic.queues[queues.broker_name] = queues
        topic.version = change
        self._topics_of.setdefault(queues.broker_name, {})[name] = None

    def _remove_one(self, name: str, broker_name: str, change: int) -> None:
        topic = self._topics[name]
        del topic.queues[broker_name]
        topic.version = change
        if not topic.queues:
            del self._topics[name]
        del self._topics_of[broker_name][name]
        if not self._topics_of[broker_name]:
            del self._topics_of[broker_name]

    def _next_change(self) -> int:
        self._changes += 1
        return self._changes


def _queues_of(broker_name: str, config: TopicConfig) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=int(config.perm),
        topic_sys_flag=int(config.topic_sys_flag),
    )


def _config_fault(config: TopicConfig) -> str | None:
    """Why clients could not use this topic; the name is checked because it may become a file name somewhere else."""
    fault = topic_fault(config.topic_name)
    numbers = (config.read_queue_nums, config.write_queue_nums, config.perm, config.topic_sys_flag)
    if fault is None and not all(0 <= number <= INT32_MAX for number in numbers):
        fault = f"queue numbers, permission and flags must be between 0 and {INT32_MAX}, not {numbers}"
    return fault
