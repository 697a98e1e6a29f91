"""Admin API for consumer groups: list, create, change, delete, members and lag; and for connected clients."""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from ariane.client.admin.lag import GroupLag, LagReader
from ariane.client.admin.members import GroupMembers, members_of, running_info, running_infos
from ariane.client.admin.requests import AdminRequests, Broker, PerBroker, PerServer, absent_is_none
from ariane.errors import ClientError
from ariane.model.group import GroupConfig
from ariane.model.ids import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ariane.model.route import MessageQueue
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.clients import (
    ClientConnection,
    ConsumerRunningInfo,
    GetAllProducers,
    GetProducerConnections,
    ProducerInfo,
)
from ariane.wire.requests.groups import DeleteGroup, GetConsumeTimeSpans, GetGroupTable, QueueTimeSpan, UpdateGroup
from ariane.wire.requests.offsets import GetConsumerStatus
from ariane.wire.requests.topics import DeleteTopicInBroker, DeleteTopicInNameserver


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Members and lag of one group."""

    members: GroupMembers
    lag: GroupLag


class GroupAdmin:
    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests
        self._lags = LagReader(requests)

    # --- queries ----------------------------------------------------------------------------------------------------

    async def names(self, *, cluster: str | None = None) -> list[str]:
        """Every group that a broker has settings for: created explicitly, or by the first consumer."""
        tables = await self._tables(cluster=cluster)
        return sorted({name for table in tables.responses.values() for name in table})

    async def configs(
        self, group: str, *, cluster: str | None = None, broker: str | None = None
    ) -> PerBroker[GroupConfig]:
        """The group's settings at each broker that has some."""
        tables = await self._tables(cluster=cluster, broker=broker)
        configs = {server: table[group] for server, table in tables.responses.items() if group in table}
        return PerServer(configs, tables.failures)

    async def members(self, group: str) -> GroupMembers:
        """The connected members, and the subscriptions of the group."""
        return await members_of(self._requests, group)

    async def lag(self, group: str, topic: str | None = None, *, owners: bool = False) -> GroupLag:
        """The lag of the group in each queue. With `owners`, each member is asked which queues it has."""
        return await self._lags.lag(group, topic, owners=owners)

    async def summaries(self, groups: Iterable[str] | None = None) -> list[GroupSummary]:
        """Members and lag of every group, or of the given ones."""
        names = await self.names() if groups is None else list(groups)
        return await self._requests.run_all(self._summary(name) for name in names)

    async def time_spans(self, group: str, topic: str) -> PerBroker[list[QueueTimeSpan]]:
        """Of each queue: when its oldest and newest message was stored, and the one that the group consumed last."""
        responses = await self._requests.each(
            await self._requests.readers_of_topic(topic), GetConsumeTimeSpans(topic, group)
        )
        return responses.some(f"time spans of {group}").mapped(lambda response: response.body.consume_time_span_set)

    # --- changes ----------------------------------------------------------------------------------------------------

    async def put(self, config: GroupConfig, *, cluster: str | None = None, broker: str | None = None) -> list[Broker]:
        """Creates or replaces the settings of the group."""
        brokers = await self._requests.brokers(cluster=cluster, broker=broker)
        return (await self._requests.each(brokers, UpdateGroup(config))).all(f"putting group {config.group_name}")

    async def update(
        self,
        group: str,
        *,
        consume_enable: bool | None = None,
        consume_from_min_enable: bool | None = None,
        consume_broadcast_enable: bool | None = None,
        retry_queue_nums: int | None = None,
        retry_max_times: int | None = None,
        notify_consumer_ids_changed_enable: bool | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[Broker]:
        """Changes only the given settings, at each broker that has the group; ClientError if none has."""
        options = {
            "consume_enable": consume_enable,
            "consume_from_min_enable": consume_from_min_enable,
            "consume_broadcast_enable": consume_broadcast_enable,
            "retry_queue_nums": retry_queue_nums,
            "retry_max_times": retry_max_times,
            "notify_consumer_ids_changed_enable": notify_consumer_ids_changed_enable,
        }
        changes = {name: value for name, value in options.items() if value is not None}
        current = await self.configs(group, cluster=cluster, broker=broker)
        current.all(f"settings of group {group}")
        if not current.responses:
            raise ClientError(f"no broker knows group {group}: create it with put(), or check its name")
        changed = {server: replace(config, **changes) for server, config in current.responses.items()}
        done = await self._requests.fan_out(
            changed, lambda server: self._requests.call(server.address, UpdateGroup(changed[server]))
        )
        return done.all(f"changing group {group}")

    async def delete(
        self,
        group: str,
        *,
        offsets: bool = False,
        topics: bool = False,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[Broker]:
        """Deletes the settings; with `offsets` also offsets, with `topics` also its retry and dead letter topics."""
        brokers = await self._requests.brokers(cluster=cluster, broker=broker)
        what = f"deleting group {group}"
        request = DeleteGroup(group, remove_offset=offsets, clean_offset=offsets)
        done = (await self._requests.each(brokers, request)).all(what)
        for topic in (f"{RETRY_PREFIX}{group}", f"{DEAD_LETTER_PREFIX}{group}") if topics else ():
            (await self._requests.each(brokers, DeleteTopicInBroker(topic))).all(what)
            if broker is None:
                (await self._requests.each_nameserver(DeleteTopicInNameserver(topic, cluster))).all(what)
        return done

    # --- helpers ----------------------------------------------------------------------------------------------------

    async def _tables(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> PerBroker[dict[str, GroupConfig]]:
        brokers = await self._requests.readers(cluster=cluster, broker=broker)
        responses = (await self._requests.each(brokers, GetGroupTable())).some("reading the groups")
        return responses.mapped(lambda response: response.body.subscription_group_table)

    async def _summary(self, group: str) -> GroupSummary:
        members, lag = await self.members(group), await self.lag(group)
        return GroupSummary(members=members, lag=lag)


# --- connected clients ---

_TIMEOUT_S = 12.0  # the broker waits some seconds for the members


class ClientAdmin:
    """Connected producers and consumers, and the running info of consumers."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def producers(self, group: str, *, topic: str | None = None) -> PerBroker[list[ClientConnection]]:
        """The connected producers of `group`: at the brokers of `topic`, or at any."""
        brokers = await (self._requests.brokers() if topic is None else self._requests.brokers_of_topic(topic))
        responses = await self._requests.fan_out(brokers, lambda broker: self._producers(broker, group))
        return responses.some(f"producers of {group}")

    async def all_producers(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> PerBroker[dict[str, list[ProducerInfo]]]:
        """Every producer by group, as each broker knows them."""
        brokers = await self._requests.brokers(cluster=cluster, broker=broker)
        responses = (await self._requests.each(brokers, GetAllProducers())).some("reading producers")
        return responses.mapped(lambda response: response.body.data)

    async def running_info(self, group: str, client_id: str, *, stacks: bool = False) -> ConsumerRunningInfo:
        """The running info of one member: subscriptions, queues, pending messages; with `stacks` also its threads."""
        for member in (await members_of(self._requests, group)).members:
            if member.client_id == client_id:
                return await running_info(self._requests, group, member, stacks=stacks)
        raise ClientError(f"group {group} has no member {client_id} online: see groups.members()")

    async def running_infos(self, group: str, *, stacks: bool = False) -> PerServer[str, ConsumerRunningInfo]:
        """The same for every member, by client id."""
        members = await members_of(self._requests, group)
        return await running_infos(self._requests, group, members, stacks=stacks)

    async def positions(
        self, group: str, topic: str, *, client_id: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """The current offsets of each member, by client id: ahead of those that the brokers have stored."""
        request = GetConsumerStatus(topic, group, client_id)
        responses = await self._requests.fan_out(
            await self._requests.readers_of_topic(topic),
            lambda broker: self._requests.call(broker.address, request, _TIMEOUT_S),
        )
        positions: dict[str, dict[MessageQueue, int]] = {}
        for response in responses.some(f"positions of {group}").responses.values():
            for member, table in response.body.consumer_table.items():
                positions.setdefault(member, {}).update(table)
        return positions

    async def _producers(self, broker: Broker, group: str) -> list[ClientConnection]:
        """Brokers respond with SYSTEM_ERROR if they know none."""
        call = self._requests.call(broker.address, GetProducerConnections(group))
        response = await absent_is_none(call, ResponseCode.SYSTEM_ERROR)
        return [] if response is None else response.body.connection_set
