"""Admin API for topics: list, create, change, delete, statistics, and the configuration of ordered topics."""

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
        """Messages that are still stored; None if a broker did not respond."""
        return sum(queue.count for queue in self.queues) if self.is_complete else None

    def by_queue(self) -> dict[MessageQueue, QueueStats]:
        """For callers that need all queues: raises the error of a broker that did not respond."""
        if self.failures:
            raise self.failures[0].error
        return {stats.queue: stats for stats in self.queues}


async def topic_stats(requests: AdminRequests, topic: str) -> TopicStats:
    request = GetTopicStats(topic)
    readers = await requests.readers_of_topic(topic)
    responses = await requests.fan_out(readers, lambda broker: requests.read(broker, topic, request))
    queues = [
        QueueStats(
            queue=queue,
            min_offset=limits.min_offset,
            max_offset=limits.max_offset,
            last_stored_ms=limits.last_update_timestamp or None,
        )
        for response in responses.some(f"statistics of {topic}").responses.values()
        for queue, limits in response.body.offset_table.items()
    ]
    return TopicStats(
        topic=topic, queues=tuple(sorted(queues, key=lambda stats: stats.queue)), failures=responses.failures
    )


ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"


class OrderConfs:
    """The queues of ordered topics, a key-value pair at the nameservers: topic to `broker-a:4;broker-b:4`."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def get(self, topic: str) -> dict[str, int] | None:
        call = self._requests.call_nameserver(GetKeyValue(ORDER_NAMESPACE, topic))
        response = await absent_is_none(call, ResponseCode.QUERY_NOT_FOUND)
        return None if response is None or not response.value else _read(topic, response.value)

    async def put(self, topic: str, queues: Mapping[str, int]) -> None:
        text = ";".join(f"{broker}:{count}" for broker, count in sorted(queues.items()))
        (await self._requests.each_nameserver(PutKeyValue(ORDER_NAMESPACE, topic, text))).all("setting the order conf")

    async def delete(self, topic: str) -> None:
        (await self._requests.each_nameserver(DeleteKeyValue(ORDER_NAMESPACE, topic))).all("deleting the order conf")


def _read(topic: str, text: str) -> dict[str, int]:
    try:
        return {name: int(count) for name, _, count in (part.rpartition(":") for part in text.split(";") if part)}
    except ValueError:
        raise ClientError(
            f"the order conf of {topic} is {text[:200]!r}: expected broker-a:4;broker-b:4; set it again"
        ) from None


_QUEUES = 4
_ROUTE_WAIT_S = 5.0
_ROUTE_POLL_S = 0.02


class TopicAdmin:
    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests
        self._order_confs = OrderConfs(requests)

    # --- queries ----------------------------------------------------------------------------------------------------

    async def names(self, *, cluster: str | None = None) -> list[str]:
        """Every topic that a live broker has registered, including retry, dead letter and system topics."""
        request = ListTopics() if cluster is None else ListTopicsByCluster(cluster)
        return sorted((await self._requests.call_nameserver(request)).body.topic_list)

    async def system_names(self) -> list[str]:
        """The internal topics of brokers and nameservers."""
        names = set((await self._requests.call_nameserver(ListSystemTopics())).body.topic_list)
        responses = await self._requests.each(await self._requests.readers(), ListSystemTopicsInBroker())
        return sorted(names.union(*(response.body.topic_list for response in responses.responses.values())))

    async def route(self, topic: str) -> TopicRoute:
        """The current route of `topic` at the nameserver; NoRoute with cause and hint."""
        return await self._requests.route(topic)

    async def clusters(self, topic: str) -> list[str]:
        return sorted({data.cluster for data in (await self._requests.route(topic)).broker_datas})

    async def configs(
        self, topic: str, *, cluster: str | None = None, broker: str | None = None
    ) -> PerBroker[TopicConfig]:
        """The topic's settings at each broker that has it."""
        brokers = await self._requests.readers(cluster=cluster, broker=broker)
        results = await self._requests.fan_out(brokers, lambda broker: self._config(broker, topic))
        configs = results.some(f"settings of {topic}").responses.items()
        return PerServer({broker: config for broker, config in configs if config is not None}, results.failures)

    async def stats(self, topic: str) -> TopicStats:
        """The minimum and maximum offset of each queue."""
        return await topic_stats(self._requests, topic)

    async def groups(self, topic: str) -> list[str]:
        """Groups that consume `topic` now, or have an offset in it."""
        responses = await self._requests.each(await self._requests.readers_of_topic(topic), ListGroupsOfTopic(topic))
        lists = responses.some(f"groups of {topic}").responses.values()
        return sorted({group for response in lists for group in response.body.group_list})

    # --- changes ----------------------------------------------------------------------------------------------------

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
        """Creates a topic at every master, or at those of one cluster, or at one broker; fails if it exists there.

        Returns when the nameserver has its route, so that the next send finds it.
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
        """Creates or replaces the topic's settings, as mqadmin's updateTopic does."""
        brokers = await self._requests.brokers(cluster=cluster, broker=broker)
        done = (await self._requests.each(brokers, _update(config))).all(f"putting topic {config.topic_name}")
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
        """Changes only the given settings, at each broker that has the topic."""
        current = await self.configs(topic, cluster=cluster, broker=broker)
        current.all(f"settings of {topic}")
        if not current.responses:
            raise await self._requests.instance.routes.no_route(topic)
        options = {"read_queue_nums": read_queues, "write_queue_nums": write_queues, "perm": perm, "order": order}
        changes = {name: value for name, value in options.items() if value is not None}
        changed = {broker: replace(config, **changes) for broker, config in current.responses.items()}
        done = await self._requests.fan_out(
            changed, lambda broker: self._requests.call(broker.address, _update(changed[broker]))
        )
        return done.all(f"changing topic {topic}")

    async def set_permission(
        self, topic: str, perm: int, *, cluster: str | None = None, broker: str | None = None
    ) -> list[Broker]:
        """`Permission.READ` stops sends to the topic, `Permission.WRITE` stops its consumption."""
        return await self.update(topic, perm=int(perm), cluster=cluster, broker=broker)

    async def delete(self, topic: str, *, cluster: str | None = None) -> list[Broker]:
        """Deletes its messages and offsets, too, at every master and every nameserver; NoRoute if it does not exist."""
        await self._requests.route(topic)
        what = f"deleting topic {topic}"
        done = (
            await self._requests.each(await self._requests.brokers(cluster=cluster), DeleteTopicInBroker(topic))
        ).all(what)
        (await self._requests.each_nameserver(DeleteTopicInNameserver(topic, cluster))).all(what)
        if cluster is None:
            await self.delete_order_conf(topic)
        return done

    # --- configuration of ordered topics ----------------------------------------------------------------------------

    async def order_conf(self, topic: str) -> dict[str, int] | None:
        """How many queues each broker has for an ordered topic; None if that is not configured."""
        return await self._order_confs.get(topic)

    async def set_order_conf(self, topic: str, queues: Mapping[str, int]) -> None:
        """Number of queues by broker name. Replaces the previous configuration."""
        await self._order_confs.put(topic, queues)

    async def delete_order_conf(self, topic: str) -> None:
        await self._order_confs.delete(topic)

    # --- helpers ----------------------------------------------------------------------------------------------------

    async def _config(self, broker: Broker, topic: str) -> TopicConfig | None:
        try:
            return (await self._requests.call(broker.address, GetTopicConfig(topic))).body
        except RequestFailed as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        table = (
            await self._requests.call(broker.address, GetTopicTable())
        ).body  # Apache 4.x can only return all topics
        return table.topic_config_table.get(topic)

    async def _add_to_order_conf(self, config: TopicConfig, brokers: list[Broker]) -> None:
        current = await self._order_confs.get(config.topic_name) or {}
        added = {broker.name: config.write_queue_nums for broker in brokers}
        await self._order_confs.put(config.topic_name, current | added)

    async def _until_routed(self, topic: str, brokers: list[Broker], wait_s: float) -> None:
        """Usually the first look finds it: a broker registers the topic before it responds, unless that takes long."""
        missing = {broker.name for broker in brokers if broker.cluster}
        try:
            async with asyncio.timeout(wait_s):
                while missing and wait_s > 0:
                    route = await self._requests.find_route(topic)
                    missing -= {data.broker_name for data in route.broker_datas} if route is not None else set()
                    await self._requests.instance.clock.sleep(_ROUTE_POLL_S if missing else 0.0)
        except TimeoutError:
            raise ClientError(
                f"topic {topic} is created, but after {wait_s} s the nameserver still has no route for it at "
                f"{', '.join(sorted(missing))}: check that these brokers reach the nameserver"
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
