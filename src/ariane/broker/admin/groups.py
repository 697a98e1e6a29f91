"""Admin requests about consumer groups: configuration, progress and lag."""

import logging
from dataclasses import dataclass

from msgspec.structs import replace

from ariane.broker.acl.rights import RightsOf, all_rights
from ariane.broker.groups.configs import Groups
from ariane.broker.groups.lag import ConsumeProgress, lag, merge_stats, queue_count
from ariane.broker.groups.members import Clients
from ariane.broker.groups.offsets import ConsumerOffsets
from ariane.broker.settings import BrokerSettings
from ariane.clock import Clock
from ariane.errors import RequestFailed
from ariane.lifecycle import Slices
from ariane.rpc.handlers import Call, Encoded, encoded_by_thread, handles
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Response
from ariane.wire.requests.groups import (
    BrokerConsumeStats,
    BrokerConsumeStatsResponse,
    ConsumeStats,
    ConsumeStatsResponse,
    ConsumeTimeSpans,
    ConsumeTimeSpansResponse,
    DeleteGroup,
    GetBrokerConsumeStats,
    GetConsumeStats,
    GetConsumeTimeSpans,
    GetGroupConfig,
    GetGroupTable,
    GroupConfigResponse,
    GroupList,
    GroupListResponse,
    GroupTable,
    GroupTableResponse,
    ListGroupsOfTopic,
    UpdateGroup,
)

log = logging.getLogger(__name__)

_QUEUES_MAX = 100_000  # each takes about 130 bytes of 16 MiB


@dataclass(frozen=True)
class GroupHandlers:
    settings: BrokerSettings
    groups: Groups
    offsets: ConsumerOffsets
    clients: Clients
    progress: ConsumeProgress
    clock: Clock
    rights_of: RightsOf = all_rights

    # --- configuration ----------------------------------------------------------------------------------------------

    @handles(UpdateGroup)
    async def update(self, request: UpdateGroup, call: Call) -> Response:
        if request.body is None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, "the request has no body with a group")
        self.groups.put(request.body)
        await self.groups.saved()
        log.info("group changed", extra={"group": request.body.group_name, "peer": call.connection.peer})
        return Response()

    @handles(DeleteGroup)
    async def delete(self, request: DeleteGroup, call: Call) -> Response:
        """A missing group is not an error: a tool that asks every broker must not fail at one of them."""
        was_there = self.groups.delete(request.group_name)
        if request.remove_offset or request.clean_offset:
            self.offsets.delete_group(request.group_name)
        await self.groups.saved()
        fields = {"group": request.group_name, "peer": call.connection.peer, "was_there": was_there}
        log.info("group deleted", extra=fields)
        return Response()

    @handles(GetGroupTable)
    async def table(self, request: GetGroupTable, call: Call) -> Encoded:
        may_see, table = self.rights_of(call).may_see_group, self.groups.table()

        def visible() -> GroupTable:
            shown = {name: config for name, config in table.subscription_group_table.items() if may_see(name)}
            return replace(table, subscription_group_table=shown)

        return await encoded_by_thread(GroupTableResponse(), visible)

    @handles(GetGroupConfig)
    def config(self, request: GetGroupConfig, call: Call) -> GroupConfigResponse:
        config = self.groups.get(request.group)
        if config is None:
            raise RequestFailed(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"group {request.group} does not exist")
        return GroupConfigResponse(body=config)

    @handles(ListGroupsOfTopic)
    def of_topic(self, request: ListGroupsOfTopic, call: Call) -> GroupListResponse:
        names = self.clients.groups_of_topic(request.topic) | self.offsets.groups_of(request.topic)
        return GroupListResponse(body=GroupList(group_list=sorted(filter(self.rights_of(call).may_see_group, names))))

    # --- progress ---------------------------------------------------------------------------------------------------

    @handles(GetConsumeStats)
    async def stats(self, request: GetConsumeStats, call: Call) -> Encoded:
        group, parts, queues = request.consumer_group, [], 0
        async with Slices() as slices:
            for config in self.progress.topics_of(group, request.topic):
                queues += queue_count(config)
                _check_queues(queues, "name one topic of the group")
                parts.append(await self.progress.of_topic(group, config, slices))
        return await encoded_by_thread(ConsumeStatsResponse(), lambda: merge_stats(parts))

    @handles(GetBrokerConsumeStats)
    async def all_stats(self, request: GetBrokerConsumeStats, call: Call) -> Encoded:
        stats_by_group: list[dict[str, list[ConsumeStats]]] = []
        total = queues = 0
        async with Slices() as slices:
            for group in filter(self.rights_of(call).may_see_group, tuple(self.groups.all())):
                stats = []
                for config in self.progress.topics_of(group):
                    if config.order or not request.is_order:
                        queues += queue_count(config)
                        _check_queues(queues, "ask for the progress of single groups")
                        stats.append(await self.progress.of_topic(group, config, slices))
                total += sum(map(lag, stats))
                if stats:
                    stats_by_group.append({group: stats})
                await slices.pause()
        body = BrokerConsumeStats(
            broker_addr=str(self.settings.advertised), consume_stats_list=stats_by_group, total_diff=total
        )
        return await encoded_by_thread(BrokerConsumeStatsResponse(), lambda: body)

    @handles(GetConsumeTimeSpans)
    async def time_spans(self, request: GetConsumeTimeSpans, call: Call) -> ConsumeTimeSpansResponse:
        config = self.progress.topics.get(request.topic)
        if config is None:
            raise RequestFailed(ResponseCode.TOPIC_NOT_EXIST, f"topic {request.topic} does not exist on this broker")
        now_ms = self.clock.now_ms()
        spans = []
        async with Slices() as slices:
            for queue_id in range(queue_count(config)):
                spans.append(await self.progress.time_span(request.group, request.topic, queue_id, now_ms))
                await slices.pause()
        return ConsumeTimeSpansResponse(body=ConsumeTimeSpans(consume_time_span_set=spans))


def _check_queues(count: int, instead: str) -> None:
    """A response of more queues would exceed the longest frame; refused before they are all read."""
    if count > _QUEUES_MAX:
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR, f"this is the progress in {count} queues, at most {_QUEUES_MAX} fit: {instead}"
        )
