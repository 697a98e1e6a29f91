"""Consumer groups: their settings, and how far behind they are."""

import asyncio
import logging
from dataclasses import dataclass

from ariane.broker.groups.configs import Groups
from ariane.broker.groups.lag import ConsumeProgress, lag, merged, queue_count
from ariane.broker.groups.members import Clients
from ariane.broker.groups.offsets import ConsumerOffsets
from ariane.broker.settings import BrokerSettings
from ariane.clock import Clock
from ariane.errors import RequestFailed
from ariane.rpc.handlers import Call, handles
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Answer
from ariane.wire.requests.groups import (
    BrokerConsumeStats,
    BrokerConsumeStatsAnswer,
    ConsumeStats,
    ConsumeStatsAnswer,
    ConsumeTimeSpans,
    ConsumeTimeSpansAnswer,
    DeleteGroup,
    GetBrokerConsumeStats,
    GetConsumeStats,
    GetConsumeTimeSpans,
    GetGroupConfig,
    GetGroupTable,
    GroupConfigAnswer,
    GroupList,
    GroupListAnswer,
    GroupTableAnswer,
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

    # --- settings ---------------------------------------------------------------------------------------------------

    @handles(UpdateGroup)
    def update(self, ask: UpdateGroup, call: Call) -> Answer:
        if ask.body is None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, "the body names no group")
        self.groups.put(ask.body)
        log.info("group changed", extra={"group": ask.body.group_name, "peer": call.connection.peer})
        return Answer()

    @handles(DeleteGroup)
    def delete(self, ask: DeleteGroup, call: Call) -> Answer:
        """Deleting what is not there is done already: a tool that asks every broker must not fail at one of them."""
        was_there = self.groups.delete(ask.group_name)
        if ask.remove_offset or ask.clean_offset:
            self.offsets.delete_group(ask.group_name)
        facts = {"group": ask.group_name, "peer": call.connection.peer, "was_there": was_there}
        log.info("group deleted", extra=facts)
        return Answer()

    @handles(GetGroupTable)
    def table(self, ask: GetGroupTable, call: Call) -> GroupTableAnswer:
        return GroupTableAnswer(body=self.groups.table())

    @handles(GetGroupConfig)
    def config(self, ask: GetGroupConfig, call: Call) -> GroupConfigAnswer:
        config = self.groups.get(ask.group)
        if config is None:
            raise RequestFailed(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"group {ask.group} does not exist")
        return GroupConfigAnswer(body=config)

    @handles(ListGroupsOfTopic)
    def of_topic(self, ask: ListGroupsOfTopic, call: Call) -> GroupListAnswer:
        names = self.clients.groups_of_topic(ask.topic) | self.offsets.groups_of(ask.topic)
        return GroupListAnswer(body=GroupList(group_list=sorted(names)))

    # --- progress ---------------------------------------------------------------------------------------------------

    @handles(GetConsumeStats)
    async def stats(self, ask: GetConsumeStats, call: Call) -> ConsumeStatsAnswer:
        group = ask.consumer_group
        topics = tuple(self.progress.topics_of(group, ask.topic))
        return ConsumeStatsAnswer(body=merged([await self.progress.of_topic(group, config) for config in topics]))

    @handles(GetBrokerConsumeStats)
    async def all_stats(self, ask: GetBrokerConsumeStats, call: Call) -> BrokerConsumeStatsAnswer:
        found: list[dict[str, list[ConsumeStats]]] = []
        total = 0
        for group in tuple(self.groups.all()):
            configs = [config for config in self.progress.topics_of(group) if config.order or not ask.is_order]
            stats = [await self.progress.of_topic(group, config) for config in configs]
            total += sum(map(lag, stats))
            if stats:
                found.append({group: stats})
                await asyncio.sleep(0)  # a thousand groups must not hold up those who send
        body = BrokerConsumeStats(broker_addr=str(self.settings.advertised), consume_stats_list=found, total_diff=total)
        return BrokerConsumeStatsAnswer(body=body)

    @handles(GetConsumeTimeSpans)
    async def time_spans(self, ask: GetConsumeTimeSpans, call: Call) -> ConsumeTimeSpansAnswer:
        config = self.progress.topics.get(ask.topic)
        if config is None:
            raise RequestFailed(ResponseCode.TOPIC_NOT_EXIST, f"topic {ask.topic} does not exist on this broker")
        now_ms = self.clock.now_ms()
        spans = [
            await self.progress.time_span(ask.group, ask.topic, queue_id, now_ms)
            for queue_id in range(queue_count(config))
        ]
        return ConsumeTimeSpansAnswer(body=ConsumeTimeSpans(consume_time_span_set=spans))
