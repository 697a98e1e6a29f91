"""Consumer groups: list, make, change, delete, and who is in them."""

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
    """A line of the list of groups."""

    members: GroupMembers
    lag: GroupLag


class GroupAdmin:
    def __init__(self, desk: AdminRequests) -> None:
        self._desk = desk
        self._lags = LagReader(desk)

    # --- looking ----------------------------------------------------------------------------------------------------

    async def names(self, *, cluster: str | None = None) -> list[str]:
        """Every group that a broker has settings for: made by hand, or by being used."""
        tables = await self._tables(cluster=cluster)
        return sorted({name for table in tables.responses.values() for name in table})

    async def configs(
        self, group: str, *, cluster: str | None = None, broker: str | None = None
    ) -> PerBroker[GroupConfig]:
        """The group's settings at each broker that has some."""
        tables = await self._tables(cluster=cluster, broker=broker)
        found = {one: table[group] for one, table in tables.responses.items() if group in table}
        return PerServer(found, tables.failures)

    async def members(self, group: str) -> GroupMembers:
        """Who is connected, and what the group subscribes to. No members: nobody is online."""
        return await members_of(self._desk, group)

    async def lag(self, group: str, topic: str | None = None, *, owners: bool = False) -> GroupLag:
        """How far behind the group is in each queue. `owners` asks each member which queues it has."""
        return await self._lags.lag(group, topic, owners=owners)

    async def summaries(self, groups: Iterable[str] | None = None) -> list[GroupSummary]:
        """Members and lag of every group, or of those named."""
        names = await self.names() if groups is None else list(groups)
        return await self._desk.together(self._summary(name) for name in names)

    async def time_spans(self, group: str, topic: str) -> PerBroker[list[QueueTimeSpan]]:
        """Of each queue: when its oldest and newest message was stored, and the one that the group consumed last."""
        responses = await self._desk.each(await self._desk.of_topic(topic), GetConsumeTimeSpans(topic, group))
        return responses.some(f"time spans of {group}").mapped(lambda response: response.body.consume_time_span_set)

    # --- changing ---------------------------------------------------------------------------------------------------

    async def put(self, config: GroupConfig, *, cluster: str | None = None, broker: str | None = None) -> list[Broker]:
        """The group is as `config` says from now on, whether or not it was there."""
        brokers = await self._desk.brokers(cluster=cluster, broker=broker)
        return (await self._desk.each(brokers, UpdateGroup(config))).all(f"putting group {config.group_name}")

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
        """Changes only what is named, at each broker that has the group; ClientError when none has."""
        wanted = {
            "consume_enable": consume_enable,
            "consume_from_min_enable": consume_from_min_enable,
            "consume_broadcast_enable": consume_broadcast_enable,
            "retry_queue_nums": retry_queue_nums,
            "retry_max_times": retry_max_times,
            "notify_consumer_ids_changed_enable": notify_consumer_ids_changed_enable,
        }
        changes = {name: value for name, value in wanted.items() if value is not None}
        found = await self.configs(group, cluster=cluster, broker=broker)
        found.all(f"settings of group {group}")
        if not found.responses:
            raise ClientError(f"no broker knows group {group}: make it with put(), or check its name")
        changed = {one: replace(config, **changes) for one, config in found.responses.items()}
        done = await self._desk.gather(changed, lambda one: self._desk.ask(one.address, UpdateGroup(changed[one])))
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
        """Deletes the settings; with `offsets` how far it came, with `topics` its retries and its dead letters."""
        brokers = await self._desk.brokers(cluster=cluster, broker=broker)
        what = f"deleting group {group}"
        request = DeleteGroup(group, remove_offset=offsets, clean_offset=offsets)
        done = (await self._desk.each(brokers, request)).all(what)
        for topic in (f"{RETRY_PREFIX}{group}", f"{DEAD_LETTER_PREFIX}{group}") if topics else ():
            (await self._desk.each(brokers, DeleteTopicInBroker(topic))).all(what)
            if broker is None:
                (await self._desk.each_nameserver(DeleteTopicInNameserver(topic, cluster))).all(what)
        return done

    # --- steps ------------------------------------------------------------------------------------------------------

    async def _tables(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> PerBroker[dict[str, GroupConfig]]:
        brokers = await self._desk.brokers(cluster=cluster, broker=broker)
        responses = (await self._desk.each(brokers, GetGroupTable())).some("reading the groups")
        return responses.mapped(lambda response: response.body.subscription_group_table)

    async def _summary(self, group: str) -> GroupSummary:
        members, lag = await self.members(group), await self.lag(group)
        return GroupSummary(members=members, lag=lag)


# --- clients ---
#
# Connected producers and consumers, and what a consumer says when it is asked.

_TIMEOUT_S = 12.0  # the broker gives the members some seconds of their own


class ClientAdmin:
    def __init__(self, desk: AdminRequests) -> None:
        self._desk = desk

    async def producers(self, group: str, *, topic: str | None = None) -> PerBroker[list[ClientConnection]]:
        """Who is connected as a producer of `group`: to the brokers of `topic`, or to any."""
        brokers = await (self._desk.brokers() if topic is None else self._desk.of_topic(topic))
        responses = await self._desk.gather(brokers, lambda one: self._producers(one, group))
        return responses.some(f"producers of {group}")

    async def all_producers(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> PerBroker[dict[str, list[ProducerInfo]]]:
        """Every producer by group, as each broker knows them."""
        brokers = await self._desk.brokers(cluster=cluster, broker=broker)
        responses = (await self._desk.each(brokers, GetAllProducers())).some("reading producers")
        return responses.mapped(lambda response: response.body.data)

    async def running_info(self, group: str, client_id: str, *, stacks: bool = False) -> ConsumerRunningInfo:
        """What one member says of itself: its subscriptions, its queues, what it holds. `stacks`: its threads, too."""
        for member in (await members_of(self._desk, group)).members:
            if member.client_id == client_id:
                return await running_info(self._desk, group, member, stacks=stacks)
        raise ClientError(f"group {group} has no member {client_id} online: see groups.members()")

    async def running_infos(self, group: str, *, stacks: bool = False) -> PerServer[str, ConsumerRunningInfo]:
        """The same of every member, by client id."""
        members = await members_of(self._desk, group)
        return await running_infos(self._desk, group, members, stacks=stacks)

    async def positions(
        self, group: str, topic: str, *, client_id: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """Where each member is in its queues, by client id: ahead of what the brokers have stored."""
        request = GetConsumerStatus(topic, group, client_id)
        responses = await self._desk.gather(
            await self._desk.of_topic(topic), lambda one: self._desk.ask(one.address, request, _TIMEOUT_S)
        )
        found: dict[str, dict[MessageQueue, int]] = {}
        for response in responses.some(f"positions of {group}").responses.values():
            for member, table in response.body.consumer_table.items():
                found.setdefault(member, {}).update(table)
        return found

    async def _producers(self, broker: Broker, group: str) -> list[ClientConnection]:
        """Brokers say SYSTEM_ERROR when they know none."""
        asked = self._desk.ask(broker.address, GetProducerConnections(group))
        response = await absent_is_none(asked, ResponseCode.SYSTEM_ERROR)
        return [] if response is None else response.body.connection_set
