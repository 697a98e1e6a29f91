"""Which queue each message of a task goes to: the one it names, the one of its sharding key, or the next in turn."""

from ariane.client.selection import by_sharding_key, publish_queues
from ariane.errors import ArianeError, MessageRejected, NoRoute
from ariane.model.route import MessageQueue
from ariane.spark.cluster import Cluster
from ariane.spark.new_topic import route_to_write
from ariane.spark.outgoing import Outgoing


class QueueChoice:
    def __init__(self, cluster: Cluster, patience_s: float, turn: int) -> None:
        """`turn` is where this task begins with the queues, so that tasks do not all begin with the same."""
        self._cluster = cluster
        self._patience_s = patience_s
        self._turn = turn
        self._queues: dict[str, list[MessageQueue]] = {}

    def fixed(self, message: Outgoing) -> MessageQueue | None:
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


def _named(message: Outgoing, queues: list[MessageQueue]) -> MessageQueue:
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
