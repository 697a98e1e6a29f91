"""Topics: list, make, change, delete, and how full they are."""

import asyncio
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from ariane.client.admin.requests import AdminRequests, Broker, Failure, PerBroker, PerServer, absent_is_none
from ariane.errors import ClientError, RequestFailed
from ariane.model.route import MessageQueue, TopicRoute
from ariane.model.topic import AUTO_CREATE_TEMPLATE, Permission, TopicConfig, TopicSysFlag
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.brokers import DeleteKeyValue, GetKeyValue, PutKeyValue
from ariane.wire.requests.groups import ListGroupsOfTopic
from ariane.wire.requests.topics import (
    DeleteTopicInBroker,
    DeleteTopicInNameserver,
    GetTopicConfig,
    GetTopicStats,
    GetTopicTable,
    ListSystemTopics,
    ListSystemTopicsInBroker,
    ListTopics,
    ListTopicsByCluster,
    UpdateTopic,
)

# --- topic_stats ---
#
# Where the queues of a topic begin and end.


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    queue: MessageQueue
    min_offset: int
    max_offset: int
    """The offset that the next message will get."""
    last_stored_ms: int | None
    """None when the queue is empty."""

    @property
    def count(self) -> int:
        return self.max_offset - self.min_offset


class TopicStats(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    queues: tuple[QueueStats, ...]
    failures: tuple[Failure, ...] = ()
    """Brokers whose queues are missing here."""

    @property
    def is_complete(self) -> bool:
        return not self.failures

    @property
    def count(self) -> int | None:
        """Messages that are still stored; None when a broker did not answer."""
        return sum(queue.count for queue in self.queues) if self.is_complete else None

    def by_queue(self) -> dict[MessageQueue, QueueStats]:
        """Of all queues; the error of a broker that did not answer, for those who need every one."""
        if self.failures:
            raise self.failures[0].error
        return {one.queue: one for one in self.queues}


async def topic_stats(desk: AdminRequests, topic: str) -> TopicStats:
    responses = await desk.each(await desk.of_topic(topic), GetTopicStats(topic))
    queues = [
        QueueStats(
            queue=queue,
            min_offset=told.min_offset,
            max_offset=told.max_offset,
            last_stored_ms=told.last_update_timestamp or None,
        )
        for response in responses.some(f"statistics of {topic}").responses.values()
        for queue, told in response.body.offset_table.items()
    ]
    return TopicStats(topic=topic, queues=tuple(sorted(queues, key=lambda one: one.queue)), failures=responses.failures)


# --- order_confs ---
#
# The queues of ordered topics, which nameservers keep as a pair: topic to `broker-a:4;broker-b:4`.

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"


class OrderConfs:
    def __init__(self, desk: AdminRequests) -> None:
        self._desk = desk

    async def get(self, topic: str) -> dict[str, int] | None:
        asked = self._desk.ask_nameserver(GetKeyValue(ORDER_NAMESPACE, topic))
        response = await absent_is_none(asked, ResponseCode.QUERY_NOT_FOUND)
        return None if response is None or not response.value else _read(topic, response.value)

    async def put(self, topic: str, queues: Mapping[str, int]) -> None:
        text = ";".join(f"{broker}:{count}" for broker, count in sorted(queues.items()))
        (await self._desk.each_nameserver(PutKeyValue(ORDER_NAMESPACE, topic, text))).all("setting the order conf")

    async def delete(self, topic: str) -> None:
        (await self._desk.each_nameserver(DeleteKeyValue(ORDER_NAMESPACE, topic))).all("deleting the order conf")


def _read(topic: str, text: str) -> dict[str, int]:
    try:
        return {name: int(count) for name, _, count in (part.rpartition(":") for part in text.split(";") if part)}
    except ValueError:
        raise ClientError(
            f"the order conf of {topic} is {text[:200]!r}: expected broker-a:4;broker-b:4; set it anew"
        ) from None


# ---

_QUEUES = 4
_ROUTE_WAIT_S = 5.0
_ROUTE_POLL_S = 0.02


class TopicAdmin:
    def __init__(self, desk: AdminRequests) -> None:
        self._desk = desk
        self._order_confs = OrderConfs(desk)

    # --- looking ----------------------------------------------------------------------------------------------------

    async def names(self, *, cluster: str | None = None) -> list[str]:
        """Every topic that a live broker has registered: retry, dead letter and system topics, too."""
        request = ListTopics() if cluster is None else ListTopicsByCluster(cluster)
        return sorted((await self._desk.ask_nameserver(request)).body.topic_list)

    async def system_names(self) -> list[str]:
        """The topics that brokers and nameservers keep for themselves."""
        names = set((await self._desk.ask_nameserver(ListSystemTopics())).body.topic_list)
        responses = await self._desk.each(await self._desk.brokers(), ListSystemTopicsInBroker())
        return sorted(names.union(*(response.body.topic_list for response in responses.responses.values())))

    async def route(self, topic: str) -> TopicRoute:
        """Which brokers have `topic`, as the nameserver says now; NoRoute with cause and cure."""
        return await self._desk.route(topic)

    async def clusters(self, topic: str) -> list[str]:
        return sorted({data.cluster for data in (await self._desk.route(topic)).broker_datas})

    async def configs(
        self, topic: str, *, cluster: str | None = None, broker: str | None = None
    ) -> PerBroker[TopicConfig]:
        """The topic's settings at each broker that has it."""
        brokers = await self._desk.brokers(cluster=cluster, broker=broker)
        found = (await self._desk.gather(brokers, lambda one: self._config(one, topic))).some(f"settings of {topic}")
        return PerServer({one: config for one, config in found.responses.items() if config is not None}, found.failures)

    async def stats(self, topic: str) -> TopicStats:
        """Where each queue begins and ends."""
        return await topic_stats(self._desk, topic)

    async def groups(self, topic: str) -> list[str]:
        """Groups that consume `topic` now, or have an offset in it."""
        responses = await self._desk.each(await self._desk.of_topic(topic), ListGroupsOfTopic(topic))
        found = responses.some(f"groups of {topic}").responses.values()
        return sorted({group for response in found for group in response.body.group_list})

    # --- changing ---------------------------------------------------------------------------------------------------

    async def create(
        self,
        topic: str,
        *,
        queues: int = _QUEUES,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int = Permission.READ_WRITE,
        order: bool = False,
        unit: bool = False,
        cluster: str | None = None,
        broker: str | None = None,
        wait_s: float = _ROUTE_WAIT_S,
    ) -> list[Broker]:
        """Makes a topic at every master, or at those of one cluster, or at one broker; refused where it is already.

        Returns when the nameserver knows of it, so that the next send finds it.
        """
        existing = (await self.configs(topic, cluster=cluster, broker=broker)).responses
        if existing:
            where = ", ".join(map(str, existing))
            raise ClientError(f"topic {topic} exists at {where}: change it, for example with `ariane topic update`")
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues if read_queues is None else read_queues,
            write_queue_nums=queues if write_queues is None else write_queues,
            perm=int(perm),
            order=order,
            topic_sys_flag=int(TopicSysFlag.UNIT) if unit else 0,
        )
        return await self.put(config, cluster=cluster, broker=broker, wait_s=wait_s)

    async def put(
        self,
        config: TopicConfig,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        wait_s: float = _ROUTE_WAIT_S,
    ) -> list[Broker]:
        """The topic is as `config` says from now on, whether or not it was there: what mqadmin's updateTopic does."""
        brokers = await self._desk.brokers(cluster=cluster, broker=broker)
        done = (await self._desk.each(brokers, _update(config))).all(f"putting topic {config.topic_name}")
        if config.order:
            await self._add_to_order_conf(config, done)
        await self._until_routed(config.topic_name, done, wait_s)
        return done

    async def update(
        self,
        topic: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[Broker]:
        """Changes only what is named, at each broker that has the topic."""
        found = await self.configs(topic, cluster=cluster, broker=broker)
        found.all(f"settings of {topic}")
        if not found.responses:
            raise await self._desk.instance.routes.no_route(topic)
        wanted = {"read_queue_nums": read_queues, "write_queue_nums": write_queues, "perm": perm, "order": order}
        changes = {name: value for name, value in wanted.items() if value is not None}
        changed = {one: replace(config, **changes) for one, config in found.responses.items()}
        done = await self._desk.gather(changed, lambda one: self._desk.ask(one.address, _update(changed[one])))
        return done.all(f"changing topic {topic}")

    async def set_permission(
        self, topic: str, perm: int, *, cluster: str | None = None, broker: str | None = None
    ) -> list[Broker]:
        """`Permission.READ` keeps messages from coming, `Permission.WRITE` keeps them from being read."""
        return await self.update(topic, perm=int(perm), cluster=cluster, broker=broker)

    async def delete(self, topic: str, *, cluster: str | None = None) -> list[Broker]:
        """With its messages and offsets, at every master and every nameserver; NoRoute when there is none such."""
        await self._desk.route(topic)
        what = f"deleting topic {topic}"
        done = (await self._desk.each(await self._desk.brokers(cluster=cluster), DeleteTopicInBroker(topic))).all(what)
        (await self._desk.each_nameserver(DeleteTopicInNameserver(topic, cluster))).all(what)
        if cluster is None:
            await self.delete_order_conf(topic)
        return done

    # --- the queues of ordered topics, which nameservers keep -------------------------------------------------------

    async def order_conf(self, topic: str) -> dict[str, int] | None:
        """How many queues each broker keeps for an ordered topic; None when nothing is said."""
        return await self._order_confs.get(topic)

    async def set_order_conf(self, topic: str, queues: Mapping[str, int]) -> None:
        """Queues by broker name. Replaces what was there."""
        await self._order_confs.put(topic, queues)

    async def delete_order_conf(self, topic: str) -> None:
        await self._order_confs.delete(topic)

    # --- steps ------------------------------------------------------------------------------------------------------

    async def _config(self, broker: Broker, topic: str) -> TopicConfig | None:
        try:
            return (await self._desk.ask(broker.address, GetTopicConfig(topic))).body
        except RequestFailed as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        table = (await self._desk.ask(broker.address, GetTopicTable())).body  # Apache 4.x: all or none
        return table.topic_config_table.get(topic)

    async def _add_to_order_conf(self, config: TopicConfig, brokers: list[Broker]) -> None:
        known = await self._order_confs.get(config.topic_name) or {}
        added = {broker.name: config.write_queue_nums for broker in brokers}
        await self._order_confs.put(config.topic_name, known | added)

    async def _until_routed(self, topic: str, brokers: list[Broker], wait_s: float) -> None:
        """Brokers tell nameservers a moment after they told us. Nobody tells us, so there is nothing to wait on."""
        missing = {broker.name for broker in brokers if broker.cluster}
        try:
            async with asyncio.timeout(wait_s):
                while missing and wait_s > 0:
                    route = await self._desk.find_route(topic)
                    missing -= {data.broker_name for data in route.broker_datas} if route is not None else set()
                    await self._desk.instance.clock.sleep(_ROUTE_POLL_S if missing else 0.0)
        except TimeoutError:
            raise ClientError(
                f"topic {topic} is made, but after {wait_s} s the nameserver still does not show it at "
                f"{', '.join(sorted(missing))}: check that these brokers reach it"
            ) from None


def _update(config: TopicConfig) -> UpdateTopic:
    return UpdateTopic(
        topic=config.topic_name,
        default_topic=AUTO_CREATE_TEMPLATE,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
    )
