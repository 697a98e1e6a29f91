"""Admin requests about consumer groups: configuration, progress and lag."""

import asyncio
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
from ariane.rpc.handlers import Call, handles
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
    GroupTableResponse,
    ListGroupsOfTopic,
    UpdateGroup,
)

log = logging.getLogger(__name__)


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
    def update(self, request: UpdateGroup, call: Call) -> Response:
        if request.body is None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, "the request has no body with a group")
        self.groups.put(request.body)
        log.info("group changed", extra={"group": request.body.group_name, "peer": call.connection.peer})
        return Response()

    @handles(DeleteGroup)
    def delete(self, request: DeleteGroup, call: Call) -> Response:
        """A missing group is not an error: a tool that asks every broker must not fail at one of them."""
        was_there = self.groups.delete(request.group_name)
        if request.remove_offset or request.clean_offset:
            self.offsets.delete_group(request.group_name)
        fields = {"group": request.group_name, "peer": call.connection.peer, "was_there": was_there}
        log.info("group deleted", extra=fields)
        return Response()

    @handles(GetGroupTable)
    def table(self, request: GetGroupTable, call: Call) -> GroupTableResponse:
        may_see = self.rights_of(call).may_see_group
        table = self.groups.table()
        shown = {name: config for name, config in table.subscription_group_table.items() if may_see(name)}
        return GroupTableResponse(body=replace(table, subscription_group_table=shown))

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
    async def stats(self, request: GetConsumeStats, call: Call) -> ConsumeStatsResponse:
        group = request.consumer_group
        topics = tuple(self.progress.topics_of(group, request.topic))
        return ConsumeStatsResponse(
            body=merge_stats([await self.progress.of_topic(group, config) for config in topics])
        )

    @handles(GetBrokerConsumeStats)
    async def all_stats(self, request: GetBrokerConsumeStats, call: Call) -> BrokerConsumeStatsResponse:
        stats_by_group: list[dict[str, list[ConsumeStats]]] = []
        total = 0
        for group in filter(self.rights_of(call).may_see_group, tuple(self.groups.all())):
            configs = [config for config in self.progress.topics_of(group) if config.order or not request.is_order]
            stats = [await self.progress.of_topic(group, config) for config in configs]
            total += sum(map(lag, stats))
            if stats:
                stats_by_group.append({group: stats})
                await asyncio.sleep(0)  # a thousand groups must not block the event loop
        body = BrokerConsumeStats(
            broker_addr=str(self.settings.advertised), consume_stats_list=stats_by_group, total_diff=total
        )
        return BrokerConsumeStatsResponse(body=body)

    @handles(GetConsumeTimeSpans)
    async def time_spans(self, request: GetConsumeTimeSpans, call: Call) -> ConsumeTimeSpansResponse:
        config = self.progress.topics.get(request.topic)
        if config is None:
            raise RequestFailed(ResponseCode.TOPIC_NOT_EXIST, f"topic {request.topic} does not exist on this broker")
        now_ms = self.clock.now_ms()
        spans = [
            await self.progress.time_span(request.group, request.topic, queue_id, now_ms)
            for queue_id in range(queue_count(config))
        ]
        return ConsumeTimeSpansResponse(body=ConsumeTimeSpans(consume_time_span_set=spans))
