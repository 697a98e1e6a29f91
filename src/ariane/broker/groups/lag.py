"""Consumer lag per group, topic and queue, as shown by mqadmin's `consumerProgress` and by dashboards.

For each queue: its end offset, the group's offset, and the store time of the message before that offset. Lag is the
difference of the first two; a group without an offset counts from 0, as in Apache.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from ariane.broker.groups.members import Clients
from ariane.broker.groups.offsets import ConsumerOffsets
from ariane.broker.topics import Topics
from ariane.lifecycle import Slices
from ariane.model.route import MessageQueue
from ariane.model.topic import TopicConfig
from ariane.store.blocking_io import IoSteps, run_in_executor
from ariane.store.message_store import MessageStore
from ariane.wire.requests.groups import ConsumeStats, OffsetPair, QueueTimeSpan


def no_rate(group: str, topic: str) -> float:
    """For a broker without statistics."""
    return 0.0


@dataclass(frozen=True)
class ConsumeProgress:
    broker_name: str
    topics: Topics
    offsets: ConsumerOffsets
    clients: Clients
    store: MessageStore
    rate_of: Callable[[str, str], float] = no_rate
    """Messages per second that a group consumes from a topic."""

    def topics_of(self, group: str, topic: str | None = None) -> Iterator[TopicConfig]:
        """The requested topic, or all topics in which the group has offsets.

        Topics that a connected group no longer subscribes to are skipped: their lag would grow for ever.
        """
        online = self.clients.group(group)
        for name in [topic] if topic else sorted(self.offsets.topics_of(group)):
            config = self.topics.get(name)
            unsubscribed = online is not None and online.subscriptions and name not in online.subscriptions
            if config is not None and not unsubscribed:
                yield config

    async def of_topic(self, group: str, config: TopicConfig, slices: Slices) -> ConsumeStats:
        topic = config.topic_name
        table = {}
        for queue_id in range(queue_count(config)):
            table[self._queue(topic, queue_id)] = await run_in_executor(self._of_queue(group, topic, queue_id))
            await slices.pause()
        return ConsumeStats(consume_tps=self.rate_of(group, topic), offset_table=table)

    def _of_queue(self, group: str, topic: str, queue_id: int) -> IoSteps[OffsetPair]:
        offset = max(0, self.offsets.get(group, topic, queue_id))
        stored_ms = yield from self._stored_ms(topic, queue_id, offset - 1)
        return OffsetPair(
            broker_offset=self.end(topic, queue_id), consumer_offset=offset, last_timestamp=stored_ms or 0
        )

    async def time_span(self, group: str, topic: str, queue_id: int, now_ms: int) -> QueueTimeSpan:
        """Missing values are 0: for example, an empty queue has no first message."""
        return await run_in_executor(self._time_span(group, topic, queue_id, now_ms))

    def _time_span(self, group: str, topic: str, queue_id: int, now_ms: int) -> IoSteps[QueueTimeSpan]:
        offset, end = max(0, self.offsets.get(group, topic, queue_id)), self.end(topic, queue_id)
        stored_ms = partial(self._stored_ms, topic, queue_id)
        first_ms = max(0, (yield from self.store.lookup.earliest_store_time_steps(topic, queue_id)))
        next_ms = (yield from stored_ms(offset)) if offset < end else None
        consumed_ms = (yield from stored_ms(offset - 1)) if offset > 0 else first_ms
        last_ms = yield from stored_ms(end - 1)
        return QueueTimeSpan(
            message_queue=self._queue(topic, queue_id),
            min_time_stamp=first_ms,
            max_time_stamp=last_ms or 0,
            consume_time_stamp=consumed_ms or 0,
            delay_time=0 if next_ms is None else max(0, now_ms - next_ms),
        )

    def end(self, topic: str, queue_id: int) -> int:
        queue = self.store.components.queues.get(topic, queue_id)
        return 0 if queue is None else queue.visible_end

    def start(self, topic: str, queue_id: int) -> int:
        queue = self.store.components.queues.get(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def _stored_ms(self, topic: str, queue_id: int, offset: int) -> IoSteps[int | None]:
        queue = self.store.components.queues.get(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.visible_end:
            return None
        return (yield from self.store.lookup.store_time_steps(queue, offset))

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic=topic, broker_name=self.broker_name, queue_id=queue_id)


def merge_stats(parts: list[ConsumeStats]) -> ConsumeStats:
    """The statistics of several topics of one group as one."""
    return ConsumeStats(
        consume_tps=sum(part.consume_tps for part in parts),
        offset_table={queue: pair for part in parts for queue, pair in part.offset_table.items()},
    )


def lag(stats: ConsumeStats) -> int:
    return sum(pair.broker_offset - pair.consumer_offset for pair in stats.offset_table.values())


def queue_count(config: TopicConfig) -> int:
    """Queues that can be written or read: with fewer write queues than read queues, consumers still drain the rest."""
    return max(config.read_queue_nums, config.write_queue_nums)
