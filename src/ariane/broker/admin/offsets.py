"""Requests about consumer offsets: query, commit, clone and reset."""

import logging
from dataclasses import dataclass, field

from ariane.broker.acl.rights import RightsOf, all_rights
from ariane.broker.groups.configs import Groups
from ariane.broker.groups.invented import InventedGroups
from ariane.broker.groups.lag import queue_count
from ariane.broker.groups.members import Clients
from ariane.broker.groups.offsets import NO_OFFSET, ConsumerOffsets, can_be_committed, correction_offsets
from ariane.broker.groups.resets import OffsetResets, offsets_of_members
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.errors import RequestFailed, StoreFull
from ariane.logs import RepeatedWarnings
from ariane.model.group import ConsumeType
from ariane.model.ids import QueueOffset
from ariane.rpc.handlers import Call, Encoded, encoded_by_thread, handles
from ariane.store.blocking_io import IoSteps, run_in_executor
from ariane.store.message_store import MessageStore
from ariane.transport.connection import Connection
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Response
from ariane.wire.requests.offsets import (
    CloneGroupOffset,
    ConsumerOffsetsResponse,
    ConsumerOffsetTable,
    ConsumerStatus,
    ConsumerStatusResponse,
    CorrectionOffsets,
    CorrectionOffsetsResponse,
    GetAllConsumerOffsets,
    GetConsumerOffset,
    GetConsumerStatus,
    GetCorrectionOffsets,
    OffsetResponse,
    ResetOffsets,
    ResetOffsetsResponse,
    UpdateConsumerOffset,
    UpdateOffsetResponse,
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
    rights_of: RightsOf = all_rights
    invented: InventedGroups | None = None
    warnings: RepeatedWarnings = field(default_factory=lambda: RepeatedWarnings(log))

    @handles(GetConsumerOffset)
    async def query(self, request: GetConsumerOffset, call: Call) -> OffsetResponse:
        offset = self.offsets.get(request.consumer_group, request.topic, request.queue_id)
        if offset == NO_OFFSET and request.set_zero_if_not_found is not False:
            offset = (
                0
                if await run_in_executor(self._has_first_message_cached(request.topic, request.queue_id))
                else NO_OFFSET
            )
        if offset == NO_OFFSET:
            raise RequestFailed(
                ResponseCode.QUERY_NOT_FOUND,
                f"group {request.consumer_group} has no offset in queue {request.queue_id} of {request.topic}",
            )
        return OffsetResponse(offset=QueueOffset(offset))

    def _has_first_message_cached(self, topic: str, queue_id: int) -> IoSteps[bool]:
        """Whether the queue still has its first message, and in memory.

        A new group then starts at 0 regardless of its clients' setting, so that it does not miss messages sent while
        its first client was starting.
        """
        queue = self.store.components.queues.get(topic, queue_id)
        if queue is None:
            return True
        yield from queue.warm(0)
        return queue.min_offset <= 0 and not self.store.reader.is_far_behind(queue, 0)

    @handles(UpdateConsumerOffset)
    def update(self, request: UpdateConsumerOffset, call: Call) -> UpdateOffsetResponse:
        self._check_target(request, call.connection)
        queue = self.store.components.queues.get(request.topic, request.queue_id)
        if not can_be_committed(request.commit_offset, 0 if queue is None else queue.max_offset):
            end = 0 if queue is None else queue.visible_end
            fields = {
                "group": request.consumer_group,
                "topic": request.topic,
                "queue": request.queue_id,
                "peer": call.connection.peer,
            }
            # Some clients commit -1 for each queue without messages every five seconds.
            subject = request.consumer_group, request.topic
            self.warnings.warning("offset rejected", subject, fields | {"offset": request.commit_offset, "end": end})
            raise RequestFailed(
                ResponseCode.INVALID_PARAMETER,
                f"offset {request.commit_offset} is not in queue {request.queue_id} of {request.topic}, "
                f"which ends at {end}; the stored offset is unchanged",
            )
        target = (request.consumer_group, request.topic, request.queue_id, request.commit_offset)
        try:
            if not self.offsets.advance(*target) and self._is_moved_on_purpose(request, call):
                self.offsets.commit(*target)
        except StoreFull as error:  # the journal has logged it, once: clients commit every few seconds
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"the offset is not stored: {error}") from None
        return UpdateOffsetResponse()

    def _is_moved_on_purpose(self, request: UpdateConsumerOffset, call: Call) -> bool:
        """Whether a lower offset is meant. Our clients say it. Of Apache's clients, pull consumers have a position that
        the application chooses. Its tools are not members of the group, and wait for the response, while its
        consumers commit one-way: after a restart of the broker they do so before their first heartbeat."""
        if request.seek is not None:
            return request.seek
        group = self.clients.group(request.consumer_group)
        if group is None:
            return not call.command.is_oneway
        is_member = call.connection in group.members
        return group.consume_type is ConsumeType.CONSUME_ACTIVELY or not (is_member or call.command.is_oneway)

    def _check_target(self, request: UpdateConsumerOffset, connection: Connection) -> None:
        config = self.topics.get(request.topic)
        if config is None:
            raise RequestFailed(ResponseCode.TOPIC_NOT_EXIST, f"topic {request.topic} does not exist on this broker")
        is_here = self.store.components.queues.get(request.topic, request.queue_id) is not None
        if not is_here and not 0 <= request.queue_id < queue_count(config):
            raise RequestFailed(
                ResponseCode.INVALID_PARAMETER, f"topic {request.topic} has no queue {request.queue_id}"
            )
        if self.invented is None:
            self.groups.find(request.consumer_group, connection)
        else:
            self.invented.find(request.consumer_group, connection)

    @handles(GetAllConsumerOffsets)
    async def all(self, request: GetAllConsumerOffsets, call: Call) -> Encoded:
        """Those of groups that the account may see. The keys are topic@group."""
        may_see = self.rights_of(call).may_see_group

        def visible() -> ConsumerOffsetTable:
            table = self.offsets.table()
            return ConsumerOffsetTable(
                offset_table={key: offsets for key, offsets in table.items() if may_see(key.rpartition("@")[2])}
            )

        return await encoded_by_thread(ConsumerOffsetsResponse(), visible)

    @handles(GetCorrectionOffsets)
    def correction(self, request: GetCorrectionOffsets, call: Call) -> CorrectionOffsetsResponse:
        excluded = set((request.filter_groups or "").split(","))
        groups = self.offsets.groups_of(request.topic) - excluded
        min_offsets = {
            queue_id: queue.min_offset
            for queue_id, queue in self.store.components.queues.of_topic(request.topic).items()
        }
        offsets = correction_offsets(
            [self.offsets.of(group, request.topic) for group in groups],
            self.offsets.of(request.compare_group, request.topic),
            min_offsets,
        )
        return CorrectionOffsetsResponse(body=CorrectionOffsets(correction_offsets=offsets))

    @handles(CloneGroupOffset)
    def clone(self, request: CloneGroupOffset, call: Call) -> Response:
        self.groups.find(request.dest_group, call.connection)
        source = None if request.offline else self.clients.group(request.src_group)
        for topic in [request.topic] if request.topic else sorted(self.offsets.topics_of(request.src_group)):
            unsubscribed = source is not None and source.subscriptions and topic not in source.subscriptions
            if self.topics.get(topic) is not None and not unsubscribed:
                self.offsets.clone(request.src_group, request.dest_group, topic)
        return Response()

    @handles(ResetOffsets)
    async def reset(self, request: ResetOffsets, call: Call) -> ResetOffsetsResponse:
        resets = OffsetResets(self.settings.name, self.topics, self.groups, self.offsets, self.clients, self.store)
        return ResetOffsetsResponse(body=await resets.reset(request))

    @handles(GetConsumerStatus)
    async def status(self, request: GetConsumerStatus, call: Call) -> ConsumerStatusResponse:
        group = self.clients.group(request.group)
        if group is None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"no consumer of group {request.group} is online")
        table = await offsets_of_members(group, request.topic, request.client_addr or None)
        return ConsumerStatusResponse(body=ConsumerStatus(consumer_table=table))
