"""Where the queues of a topic begin and end."""

import msgspec

from ariane.client.admin.desk import Desk
from ariane.client.admin.servers import Failure
from ariane.model.route import MessageQueue
from ariane.wire.requests.topics import GetTopicStats


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    queue: MessageQueue
    min_offset: int
    max_offset: int
    """The offset that the next message will get."""
    last_stored_ms: int | None
    """None when the queue is empty."""

    @property
    def count(self) -> int:
        return self.max_offset - self.min_offset


class TopicStats(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    queues: tuple[QueueStats, ...]
    failures: tuple[Failure, ...] = ()
    """Brokers whose queues are missing here."""

    @property
    def is_complete(self) -> bool:
        return not self.failures

    @property
    def count(self) -> int | None:
        """Messages that are still stored; None when a broker did not answer."""
        return sum(queue.count for queue in self.queues) if self.is_complete else None

    def by_queue(self) -> dict[MessageQueue, QueueStats]:
        """Of all queues; the error of a broker that did not answer, for those who need every one."""
        if self.failures:
            raise self.failures[0].error
        return {one.queue: one for one in self.queues}


async def topic_stats(desk: Desk, topic: str) -> TopicStats:
    answers = await desk.each(await desk.of_topic(topic), GetTopicStats(topic))
    queues = [
        QueueStats(
            queue=queue,
            min_offset=told.min_offset,
            max_offset=told.max_offset,
            last_stored_ms=told.last_update_timestamp or None,
        )
        for answer in answers.some(f"statistics of {topic}").answers.values()
        for queue, told in answer.body.offset_table.items()
    ]
    return TopicStats(topic=topic, queues=tuple(sorted(queues, key=lambda one: one.queue)), failures=answers.failures)
