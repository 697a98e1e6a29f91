"""Admin requests about topics: create, change, delete and list them, and query the offsets of their queues."""

import logging
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from ariane.broker.acl.rights import RightsOf, all_rights
from ariane.broker.groups.offsets import ConsumerOffsets
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.errors import RequestFailed, StoreError
from ariane.lifecycle import Slices
from ariane.model.ids import QueueOffset
from ariane.model.route import MessageQueue
from ariane.model.topic import TopicConfig, TopicFilterType
from ariane.rpc.handlers import Call, Encoded, encoded_by_thread, handles
from ariane.store.blocking_io import IoSteps, run_in_executor
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.message_store import MessageStore
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Response
from ariane.wire.requests.offsets import (
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetResponse,
    SearchOffset,
    StoreTimeResponse,
)
from ariane.wire.requests.topics import (
    DeleteTopicInBroker,
    GetTopicConfig,
    GetTopicStats,
    GetTopicTable,
    ListSystemTopicsInBroker,
    TopicConfigResponse,
    TopicList,
    TopicListResponse,
    TopicOffset,
    TopicStats,
    TopicStatsResponse,
    TopicTable,
    TopicTableResponse,
    UpdateTopic,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TopicHandlers:
    settings: BrokerSettings
    topics: Topics
    offsets: ConsumerOffsets
    store: MessageStore
    rights_of: RightsOf = all_rights

    @handles(UpdateTopic)
    async def update(self, request: UpdateTopic, call: Call) -> Response:
        self._refuse_system_topic(request.topic, "changed")
        self.topics.put(_config_from(request))
        await self.topics.saved()
        log.info("topic put", extra={"topic": request.topic, "peer": call.connection.peer})
        await self.topics.announced()
        return Response()

    @handles(DeleteTopicInBroker)
    async def delete(self, request: DeleteTopicInBroker, call: Call) -> Response:
        """A missing topic is not an error: tools send this request to every broker of a cluster.

        Nameservers are asked next to forget the topic: a registration that still has it must not come after that.
        """
        self._refuse_system_topic(request.topic, "deleted")
        if self._exists(request.topic):
            await self.topics.between_saves(partial(self._delete, request.topic))
            await self.topics.saved()
            log.warning("topic deleted", extra={"topic": request.topic, "peer": call.connection.peer})
            await self.topics.announced()
        return Response()

    def _exists(self, topic: str) -> bool:
        """In the table, or in the store: a crash may have left queues behind."""
        return self.topics.get(topic) is not None or bool(self.store.components.queues.of_topic(topic))

    async def _delete(self, topic: str) -> None:
        """On the disk the record of the deletion comes first, then the queues go, and the table is saved last.

        From the first step on sends do not find the topic. One that creates it again waits for the table, and so until
        the old queues are gone.
        """
        config = self.topics.get(topic)
        self.topics.delete(topic)
        try:
            await run_in_executor(self.store.delete_topics_steps(topic))
        except StoreError:
            if config is not None and self.topics.get(topic) is None:
                self.topics.put(config)
            raise
        self.offsets.delete_topic(topic)  # otherwise a new topic of this name would start beyond its end

    def _refuse_system_topic(self, topic: str, what: str) -> None:
        if self.topics.is_system(topic):
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"topic {topic} is a system topic and cannot be {what}; choose another name",
            )

    @handles(GetTopicTable)
    async def table(self, request: GetTopicTable, call: Call) -> Encoded:
        may_see, table = self.rights_of(call).may_see_topic, self.topics.table()
        deleted = dict(self.store.components.deletions.ends) if request.with_deletions else None

        def visible() -> TopicTable:
            shown = {name: config for name, config in table.topic_config_table.items() if may_see(name)}
            gone = None if deleted is None else {name: end for name, end in deleted.items() if may_see(name)}
            return replace(table, topic_config_table=shown, deleted_topics=gone)

        return await encoded_by_thread(TopicTableResponse(), visible)

    @handles(GetTopicConfig)
    def config(self, request: GetTopicConfig, call: Call) -> TopicConfigResponse:
        return TopicConfigResponse(body=self._existing(request.topic))

    @handles(ListSystemTopicsInBroker)
    def system_topics(self, request: ListSystemTopicsInBroker, call: Call) -> TopicListResponse:
        return TopicListResponse(body=TopicList(topic_list=self.topics.system_topics()))

    @handles(GetTopicStats)
    async def stats(self, request: GetTopicStats, call: Call) -> TopicStatsResponse:
        """Of every queue that can be written or read: a read-only queue still contains messages."""
        config = self._existing(request.topic)
        table = {}
        async with Slices() as slices:
            for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
                key = MessageQueue(topic=request.topic, broker_name=self.settings.name, queue_id=queue_id)
                queue = self.store.components.queues.get(request.topic, queue_id)
                table[key] = await run_in_executor(self._offsets(queue))
                await slices.pause()
        return TopicStatsResponse(body=TopicStats(offset_table=table))

    def _offsets(self, queue: ConsumeQueue | None) -> IoSteps[TopicOffset]:
        if queue is None:
            return TopicOffset()
        low, high = queue.min_offset, queue.visible_end
        last_ms = (yield from self.store.lookup.store_time_steps(queue, high - 1)) if high > low else None
        return TopicOffset(min_offset=low, max_offset=high, last_update_timestamp=last_ms or 0)

    def _existing(self, topic: str) -> TopicConfig:
        config = self.topics.get(topic)
        if config is None:
            raise RequestFailed(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic {topic[:255]} does not exist on broker {self.settings.name}; create it first",
            )
        return config


def _config_from(request: UpdateTopic) -> TopicConfig:
    try:
        filter_type = TopicFilterType(request.topic_filter_type)
    except ValueError:
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            f"topicFilterType is {request.topic_filter_type[:40]!r}, expected {' or '.join(TopicFilterType)}",
        ) from None
    return TopicConfig(
        topic_name=request.topic,
        read_queue_nums=request.read_queue_nums,
        write_queue_nums=request.write_queue_nums,
        perm=request.perm,
        topic_filter_type=filter_type,
        topic_sys_flag=request.topic_sys_flag or 0,
        order=request.order,
    )


# --- offsets of queues. As in Apache, a queue that does not exist is treated as empty ---

_TIME_MAX_MS = 2**63 - 1


@dataclass(frozen=True)
class QueueHandlers:
    store: MessageStore

    @handles(GetMaxOffset)
    def max_offset(self, request: GetMaxOffset, call: Call) -> OffsetResponse:
        queue = self.store.components.queues.get(request.topic, request.queue_id)
        return OffsetResponse(offset=QueueOffset(0 if queue is None else queue.visible_end))

    @handles(GetMinOffset)
    def min_offset(self, request: GetMinOffset, call: Call) -> OffsetResponse:
        queue = self.store.components.queues.get(request.topic, request.queue_id)
        return OffsetResponse(offset=QueueOffset(0 if queue is None else queue.min_offset))

    @handles(SearchOffset)
    async def search(self, request: SearchOffset, call: Call) -> OffsetResponse:
        """LOWER: the first message not earlier than the time. UPPER: the last message not later."""
        boundary = (request.boundary_type or "LOWER").upper()
        if boundary == "LOWER":
            return OffsetResponse(offset=QueueOffset(await self._not_before(request, request.timestamp)))
        if boundary != "UPPER":
            raise RequestFailed(
                ResponseCode.INVALID_PARAMETER, f"boundaryType {boundary[:40]!r} is unknown: LOWER or UPPER expected"
            )
        queue = self.store.components.queues.get(request.topic, request.queue_id)
        later = await self._not_before(request, min(request.timestamp, _TIME_MAX_MS - 1) + 1)
        return OffsetResponse(offset=QueueOffset(0 if queue is None else max(later - 1, queue.min_offset)))

    async def _not_before(self, request: SearchOffset, timestamp_ms: int) -> int:
        return await run_in_executor(
            self.store.lookup.offset_by_time_steps(request.topic, request.queue_id, timestamp_ms)
        )

    @handles(GetEarliestStoreTime)
    async def earliest_store_time(self, request: GetEarliestStoreTime, call: Call) -> StoreTimeResponse:
        found = self.store.lookup.earliest_store_time_steps(request.topic, request.queue_id)
        return StoreTimeResponse(timestamp=await run_in_executor(found))
