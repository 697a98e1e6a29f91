"""Consumer offsets: asked, committed, copied and moved."""

import logging
from dataclasses import dataclass

from ariane.broker.groups.configs import Groups
from ariane.broker.groups.lag import queue_count
from ariane.broker.groups.members import Clients
from ariane.broker.groups.offsets import NONE, ConsumerOffsets, can_be_committed, correction_offsets
from ariane.broker.groups.resets import OffsetResets, offsets_of_members
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.errors import RequestFailed
from ariane.model.ids import QueueOffset
from ariane.rpc.handlers import Call, handles
from ariane.store.blocking_io import Steps, off_the_loop
from ariane.store.message_store import MessageStore
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Answer
from ariane.wire.requests.offsets import (
    CloneGroupOffset,
    ConsumerOffsetsAnswer,
    ConsumerOffsetTable,
    ConsumerStatus,
    ConsumerStatusAnswer,
    CorrectionOffsets,
    CorrectionOffsetsAnswer,
    GetAllConsumerOffsets,
    GetConsumerOffset,
    GetConsumerStatus,
    GetCorrectionOffsets,
    OffsetAnswer,
    OffsetStored,
    ResetOffsets,
    ResetOffsetsAnswer,
    UpdateConsumerOffset,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConsumerOffsetHandlers:
    settings: BrokerSettings
    offsets: ConsumerOffsets
    groups: Groups
    topics: Topics
    clients: Clients
    store: MessageStore

    @handles(GetConsumerOffset)
    async def query(self, ask: GetConsumerOffset, call: Call) -> OffsetAnswer:
        offset = self.offsets.get(ask.consumer_group, ask.topic, ask.queue_id)
        if offset == NONE and ask.set_zero_if_not_found is not False:
            offset = 0 if await off_the_loop(self._is_young(ask.topic, ask.queue_id)) else NONE
        if offset == NONE:
            raise RequestFailed(
                ResponseCode.QUERY_NOT_FOUND,
                f"group {ask.consumer_group} has no offset in queue {ask.queue_id} of {ask.topic}",
            )
        return OffsetAnswer(offset=QueueOffset(offset))

    def _is_young(self, topic: str, queue_id: int) -> Steps[bool]:
        """Whether the queue still has its first message, and that in memory.

        A new group then starts at 0, whatever its clients say: what was sent while the first of them came up is not
        left out.
        """
        queue = self.store.parts.queues.get(topic, queue_id)
        if queue is None:
            return True
        yield from queue.warm(0)
        return queue.min_offset <= 0 and not self.store.reader.read(topic, queue_id, 0, 1).suggest_slave

    @handles(UpdateConsumerOffset)
    def update(self, ask: UpdateConsumerOffset, call: Call) -> OffsetStored:
        self._check_target(ask)
        queue = self.store.parts.queues.get(ask.topic, ask.queue_id)
        end = 0 if queue is None else queue.max_offset
        if not can_be_committed(ask.commit_offset, end):
            facts = {
                "group": ask.consumer_group,
                "topic": ask.topic,
                "queue": ask.queue_id,
                "peer": call.connection.peer,
            }
            log.warning("offset refused", extra=facts | {"offset": ask.commit_offset, "end": end})
            raise RequestFailed(
                ResponseCode.INVALID_PARAMETER,
                f"offset {ask.commit_offset} is not in queue {ask.queue_id} of {ask.topic}, which ends at {end}; "
                "the offset stored before is kept",
            )
        self.offsets.commit(ask.consumer_group, ask.topic, ask.queue_id, ask.commit_offset)
        return OffsetStored()

    def _check_target(self, ask: UpdateConsumerOffset) -> None:
        config = self.topics.get(ask.topic)
        if config is None:
            raise RequestFailed(ResponseCode.TOPIC_NOT_EXIST, f"topic {ask.topic} does not exist on this broker")
        is_here = self.store.parts.queues.get(ask.topic, ask.queue_id) is not None
        if not is_here and not 0 <= ask.queue_id < queue_count(config):
            raise RequestFailed(ResponseCode.INVALID_PARAMETER, f"topic {ask.topic} has no queue {ask.queue_id}")
        self.groups.find(ask.consumer_group)

    @handles(GetAllConsumerOffsets)
    def all(self, ask: GetAllConsumerOffsets, call: Call) -> ConsumerOffsetsAnswer:
        return ConsumerOffsetsAnswer(body=ConsumerOffsetTable(offset_table=self.offsets.table()))

    @handles(GetCorrectionOffsets)
    def correction(self, ask: GetCorrectionOffsets, call: Call) -> CorrectionOffsetsAnswer:
        left_out = set((ask.filter_groups or "").split(","))
        groups = self.offsets.groups_of(ask.topic) - left_out
        begins = {queue_id: queue.min_offset for queue_id, queue in self.store.parts.queues.of_topic(ask.topic).items()}
        found = correction_offsets(
            [self.offsets.of(group, ask.topic) for group in groups],
            self.offsets.of(ask.compare_group, ask.topic),
            begins,
        )
        return CorrectionOffsetsAnswer(body=CorrectionOffsets(correction_offsets=found))

    @handles(CloneGroupOffset)
    def clone(self, ask: CloneGroupOffset, call: Call) -> Answer:
        self.groups.find(ask.dest_group)
        source = None if ask.offline else self.clients.group(ask.src_group)
        for topic in [ask.topic] if ask.topic else sorted(self.offsets.topics_of(ask.src_group)):
            forsaken = source is not None and source.subscriptions and topic not in source.subscriptions
            if self.topics.get(topic) is not None and not forsaken:
                self.offsets.clone(ask.src_group, ask.dest_group, topic)
        return Answer()

    @handles(ResetOffsets)
    async def reset(self, ask: ResetOffsets, call: Call) -> ResetOffsetsAnswer:
        resets = OffsetResets(self.settings.name, self.topics, self.groups, self.offsets, self.clients, self.store)
        return ResetOffsetsAnswer(body=await resets.reset(ask))

    @handles(GetConsumerStatus)
    async def status(self, ask: GetConsumerStatus, call: Call) -> ConsumerStatusAnswer:
        group = self.clients.group(ask.group)
        if group is None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"no consumer of group {ask.group} is online")
        table = await offsets_of_members(group, ask.topic, ask.client_addr or None)
        return ConsumerStatusAnswer(body=ConsumerStatus(consumer_table=table))
