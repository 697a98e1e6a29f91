"""Topics for administrators: make, change, delete, list, and how far their queues reach."""

import logging
from dataclasses import dataclass

from ariane.broker.groups.offsets import ConsumerOffsets
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.errors import RequestFailed
from ariane.model.ids import QueueOffset
from ariane.model.route import MessageQueue
from ariane.model.topic import TopicConfig, TopicFilterType
from ariane.rpc.handlers import Call, handles
from ariane.store.blocking_io import Steps, off_the_loop
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.message_store import MessageStore
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Answer
from ariane.wire.requests.offsets import (
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetAnswer,
    SearchOffset,
    StoreTimeAnswer,
)
from ariane.wire.requests.topics import (
    DeleteTopicInBroker,
    GetTopicConfig,
    GetTopicStats,
    GetTopicTable,
    ListSystemTopicsInBroker,
    TopicConfigAnswer,
    TopicList,
    TopicListAnswer,
    TopicOffset,
    TopicStats,
    TopicStatsAnswer,
    TopicTableAnswer,
    UpdateTopic,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TopicHandlers:
    settings: BrokerSettings
    topics: Topics
    offsets: ConsumerOffsets
    store: MessageStore

    @handles(UpdateTopic)
    def update(self, ask: UpdateTopic, call: Call) -> Answer:
        self._refuse_system_topic(ask.topic, "changed")
        self.topics.put(_wanted(ask))
        log.info("topic put", extra={"topic": ask.topic, "peer": call.connection.peer})
        return Answer()

    @handles(DeleteTopicInBroker)
    def delete(self, ask: DeleteTopicInBroker, call: Call) -> Answer:
        """Tools ask every broker of a cluster, so a topic that is not here is no failure."""
        self._refuse_system_topic(ask.topic, "deleted")
        if self.topics.delete(ask.topic):
            self.store.parts.queues.delete_topic(ask.topic)
            self.offsets.delete_topic(ask.topic)  # or the topic's next life would begin behind its end
            log.warning("topic deleted", extra={"topic": ask.topic, "peer": call.connection.peer})
        return Answer()

    def _refuse_system_topic(self, topic: str, what: str) -> None:
        if self.topics.is_system(topic):
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"topic {topic} is the system's own and cannot be {what}; choose another name",
            )

    @handles(GetTopicTable)
    def table(self, ask: GetTopicTable, call: Call) -> TopicTableAnswer:
        return TopicTableAnswer(body=self.topics.table())

    @handles(GetTopicConfig)
    def config(self, ask: GetTopicConfig, call: Call) -> TopicConfigAnswer:
        return TopicConfigAnswer(body=self._found(ask.topic))

    @handles(ListSystemTopicsInBroker)
    def system_topics(self, ask: ListSystemTopicsInBroker, call: Call) -> TopicListAnswer:
        return TopicListAnswer(body=TopicList(topic_list=self.topics.system_topics()))

    @handles(GetTopicStats)
    async def stats(self, ask: GetTopicStats, call: Call) -> TopicStatsAnswer:
        """Of every queue that can be written or read: a queue that is only read still has messages to show."""
        config = self._found(ask.topic)
        table = {}
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            key = MessageQueue(topic=ask.topic, broker_name=self.settings.name, queue_id=queue_id)
            table[key] = await off_the_loop(self._offsets(self.store.parts.queues.get(ask.topic, queue_id)))
        return TopicStatsAnswer(body=TopicStats(offset_table=table))

    def _offsets(self, queue: ConsumeQueue | None) -> Steps[TopicOffset]:
        if queue is None:
            return TopicOffset()
        low, high = queue.min_offset, queue.max_offset
        last_ms = (yield from self.store.lookup.finding_store_time(queue, high - 1)) if high > low else None
        return TopicOffset(min_offset=low, max_offset=high, last_update_timestamp=last_ms or 0)

    def _found(self, topic: str) -> TopicConfig:
        config = self.topics.get(topic)
        if config is None:
            raise RequestFailed(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic {topic[:255]} does not exist on broker {self.settings.name}; create it first",
            )
        return config


def _wanted(ask: UpdateTopic) -> TopicConfig:
    try:
        filter_type = TopicFilterType(ask.topic_filter_type)
    except ValueError:
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            f"topicFilterType is {ask.topic_filter_type[:40]!r}, expected {' or '.join(TopicFilterType)}",
        ) from None
    return TopicConfig(
        topic_name=ask.topic,
        read_queue_nums=ask.read_queue_nums,
        write_queue_nums=ask.write_queue_nums,
        perm=ask.perm,
        topic_filter_type=filter_type,
        topic_sys_flag=ask.topic_sys_flag or 0,
        order=ask.order,
    )


# --- queues ---
#
# Where a queue begins and ends, and what lies at a time. As in Apache, a queue that does not exist is an empty one.

_TIME_MAX_MS = 2**63 - 1


@dataclass(frozen=True)
class QueueHandlers:
    store: MessageStore

    @handles(GetMaxOffset)
    def max_offset(self, ask: GetMaxOffset, call: Call) -> OffsetAnswer:
        queue = self.store.parts.queues.get(ask.topic, ask.queue_id)
        return OffsetAnswer(offset=QueueOffset(0 if queue is None else queue.max_offset))

    @handles(GetMinOffset)
    def min_offset(self, ask: GetMinOffset, call: Call) -> OffsetAnswer:
        queue = self.store.parts.queues.get(ask.topic, ask.queue_id)
        return OffsetAnswer(offset=QueueOffset(0 if queue is None else queue.min_offset))

    @handles(SearchOffset)
    async def search(self, ask: SearchOffset, call: Call) -> OffsetAnswer:
        """LOWER: the first message that is not earlier. UPPER: the last that is not later."""
        boundary = (ask.boundary_type or "LOWER").upper()
        if boundary == "LOWER":
            return OffsetAnswer(offset=QueueOffset(await self._not_before(ask, ask.timestamp)))
        if boundary != "UPPER":
            raise RequestFailed(
                ResponseCode.INVALID_PARAMETER, f"boundaryType {boundary[:40]!r} is unknown: LOWER or UPPER expected"
            )
        queue = self.store.parts.queues.get(ask.topic, ask.queue_id)
        later = await self._not_before(ask, min(ask.timestamp, _TIME_MAX_MS - 1) + 1)
        return OffsetAnswer(offset=QueueOffset(0 if queue is None else max(later - 1, queue.min_offset)))

    async def _not_before(self, ask: SearchOffset, timestamp_ms: int) -> int:
        return await off_the_loop(self.store.lookup.searching_by_time(ask.topic, ask.queue_id, timestamp_ms))

    @handles(GetEarliestStoreTime)
    async def earliest_store_time(self, ask: GetEarliestStoreTime, call: Call) -> StoreTimeAnswer:
        found = self.store.lookup.finding_earliest_store_time(ask.topic, ask.queue_id)
        return StoreTimeAnswer(timestamp=await off_the_loop(found))
