"""The route table against a naive model, over any sequence of what brokers, networks and administrators do.

The model keeps one record per live address and one per (topic, broker), scans them for every query, and has no index
and no version. After every step both return the same, and a topic's version changed exactly if its route did.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ariane.model.route import BrokerData, QueueData, TopicRoute
from ariane.model.topic import DataVersion, TopicConfig, TopicSysFlag
from ariane.nameserver.route_table import Registration, RouteTable

TOPICS = ("t1", "t2", "t3")
NAMES = ("a", "b")
CLUSTERS = ("c1", "c2")
ADDRESSES = ("h1:1", "h2:1", "h3:1")
IDS = (0, 0, 1)  # mostly masters: only they bring topics
CONNECTIONS = ("k1", "k2", "k3")

topic_tables = st.dictionaries(
    st.sampled_from(TOPICS),
    st.builds(
        TopicConfig,
        topic_name=st.just(""),
        read_queue_nums=st.integers(1, 2),
        perm=st.sampled_from([4, 6]),
        topic_sys_flag=st.integers(0, 3),
    ),
).map(lambda table: {name: _named(name, config) for name, config in table.items()})


def _named(name: str, config: TopicConfig) -> TopicConfig:
    return TopicConfig(
        topic_name=name,
        read_queue_nums=config.read_queue_nums,
        perm=config.perm,
        topic_sys_flag=config.topic_sys_flag,
    )


fields = {
    "cluster": st.sampled_from(CLUSTERS),
    "broker_name": st.sampled_from(NAMES),
    "broker_id": st.sampled_from(IDS),
    "address": st.sampled_from(ADDRESSES),
    "connection": st.sampled_from(CONNECTIONS),
    "data_version": st.builds(DataVersion, counter=st.integers(0, 2)),
    "topics": st.none() | topic_tables,
    "filter_servers": st.none() | st.lists(st.sampled_from(["f1", "f2"]), max_size=1),
    "expiry_seconds": st.sampled_from([60.0, 120.0]),
}
registrations = st.builds(Registration, **fields)
later_changes = ("broker_id", "connection", "data_version", "topics", "filter_servers")
changes = st.fixed_dictionaries({}, optional={name: fields[name] for name in later_changes})


@dataclass
class Live:
    request: Registration
    seen: float
    table_size: int

    @property
    def identity(self) -> tuple[str, str, int, str]:
        request = self.request
        return request.cluster, request.broker_name, request.broker_id, request.address


class Model:
    def __init__(self) -> None:
        self.live: dict[str, Live] = {}
        self.cluster: dict[str, str] = {}
        self.queues: dict[tuple[str, str], QueueData] = {}

    def register(self, request: Registration, now: float) -> None:
        previous = self.live.get(request.address)
        if previous and previous.request.broker_name != request.broker_name:
            self.drop(lambda live: live is previous)
            previous = None
        self.live = {
            address: live
            for address, live in self.live.items()
            if (live.request.broker_name, live.request.broker_id) != (request.broker_name, request.broker_id)
            or address == request.address
        }
        size = previous.table_size if previous else 0
        if self.takes_topics(request, previous):
            assert request.topics is not None
            size = len(request.topics)
            for config in request.topics.values():
                self.queues[config.topic_name, request.broker_name] = QueueData(
                    broker_name=request.broker_name,
                    read_queue_nums=config.read_queue_nums,
                    write_queue_nums=config.write_queue_nums,
                    perm=int(config.perm),
                    topic_sys_flag=config.topic_sys_flag,
                )
        if request.filter_servers is None:
            request = replace(request, filter_servers=previous.request.filter_servers if previous else [])
        self.live[request.address] = Live(request, now, size)
        self.cluster[request.broker_name] = request.cluster

    def takes_topics(self, request: Registration, previous: Live | None) -> bool:
        if request.broker_id != 0 or request.topics is None:
            return False
        if previous is None or previous.request.broker_id != 0:
            return True
        return previous.request.data_version != request.data_version or len(request.topics) > previous.table_size

    def drop(self, gone: Callable[[Live], bool]) -> set[str]:
        dropped = {address for address, live in self.live.items() if gone(live)}
        self.live = {address: live for address, live in self.live.items() if address not in dropped}
        names = {live.request.broker_name for live in self.live.values()}
        self.queues = {key: queues for key, queues in self.queues.items() if key[1] in names}
        return dropped

    def addresses(self, name: str) -> dict[int, str]:
        return {
            live.request.broker_id: address for address, live in self.live.items() if live.request.broker_name == name
        }

    def names(self) -> set[str]:
        return {live.request.broker_name for live in self.live.values()}

    def route(self, topic: str) -> TopicRoute | None:
        holders = [name for name in NAMES if (topic, name) in self.queues]
        addresses = [address for name in holders for address in self.addresses(name).values()]
        if not holders:
            return None
        return TopicRoute(
            queue_datas=[self.queues[topic, name] for name in holders],
            broker_datas=[self.broker_data(name) for name in holders],
            filter_server_table={
                address: list(servers)
                for address in addresses
                if (servers := self.live[address].request.filter_servers)
            },
        )

    def broker_data(self, name: str) -> BrokerData:
        return BrokerData(cluster=self.cluster[name], broker_name=name, broker_addrs=self.addresses(name))


class RouteTableMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable()
        self.model = Model()
        self.now = 0.0
        self.previous = self.responses()

    def responses(self) -> dict[str, tuple[TopicRoute | None, int]]:
        return {topic: (self.table.route(topic), self.table.route_version(topic)) for topic in TOPICS}

    @rule(request=registrations)
    def register(self, request: Registration) -> None:
        result = self.table.register(request, self.now)
        self.model.register(request, self.now)
        master = self.model.addresses(request.broker_name).get(0)
        assert result.master_address == (master if request.broker_id else None)

    @rule(data=st.data(), changes=changes)
    def register_again(self, data: Any, changes: dict[str, Any]) -> None:
        """The common case: a broker registers again, sometimes with a change."""
        if not self.model.live:
            return
        request = data.draw(st.sampled_from([live.request for live in self.model.live.values()]))
        before = self.responses()
        # Two brokers of one name may register different clusters; then even an equal registration is a change.
        is_same = changes.keys() <= {"connection"} and request.cluster == self.model.cluster[request.broker_name]
        self.register(replace(request, **changes))
        assert not is_same or self.responses() == before

    @rule(
        cluster=st.sampled_from(CLUSTERS),
        name=st.sampled_from(NAMES),
        broker_id=st.sampled_from(IDS),
        address=st.sampled_from(ADDRESSES),
    )
    def unregister(self, cluster: str, name: str, broker_id: int, address: str) -> None:
        identity = (cluster, name, broker_id, address)
        dropped = self.model.drop(lambda live: live.identity == identity)
        assert self.table.unregister(cluster, name, broker_id, address) == bool(dropped)

    @rule(connection=st.sampled_from(CONNECTIONS))
    def close(self, connection: str) -> None:
        dropped = self.model.drop(lambda live: live.request.connection == connection)
        assert {live.address for live in self.table.drop_connection(connection)} == dropped

    @rule(seconds=st.sampled_from([1.0, 29.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        dropped = self.model.drop(lambda live: self.now - live.seen > live.request.expiry_seconds)
        assert {live.address for live in self.table.expire(self.now)} == dropped

    @rule(address=st.sampled_from(ADDRESSES))
    def heartbeat(self, address: str) -> None:
        assert self.table.touch(address, self.now) == (address in self.model.live)
        if address in self.model.live:
            self.model.live[address].seen = self.now

    @rule(topic=st.sampled_from(TOPICS), cluster=st.none() | st.sampled_from(CLUSTERS))
    def delete_topic(self, topic: str, cluster: str | None) -> None:
        gone = [key for key in self.model.queues if key[0] == topic and cluster in (None, self.model.cluster[key[1]])]
        for key in gone:
            del self.model.queues[key]
        assert self.table.delete_topic(topic, cluster) == bool(gone)

    @rule(name=st.sampled_from(NAMES), writable=st.booleans())
    def change_permission(self, name: str, writable: bool) -> None:
        keys = [key for key in self.model.queues if key[1] == name]
        for key in keys:
            old = self.model.queues[key]
            self.model.queues[key] = QueueData(
                broker_name=name,
                read_queue_nums=old.read_queue_nums,
                write_queue_nums=old.write_queue_nums,
                perm=6 if writable else 4,
                topic_sys_flag=old.topic_sys_flag,
            )
        change = self.table.add_write_permission if writable else self.table.wipe_write_permission
        assert change(name) == len(keys)

    @invariant()
    def routes_are_those_of_the_model(self) -> None:
        for topic in TOPICS:
            assert self.table.route(topic) == self.model.route(topic)

    @invariant()
    def a_version_changes_exactly_when_the_route_does(self) -> None:
        responses = self.responses()
        for topic in TOPICS:
            (route, version), (old_route, old_version) = responses[topic], self.previous[topic]
            assert (route == old_route) == (version == old_version)
        self.previous = responses

    @invariant()
    def every_route_has_queues_and_addresses(self) -> None:
        for route in filter(None, (self.table.route(topic) for topic in TOPICS)):
            assert route.queue_datas
            assert {queues.broker_name for queues in route.queue_datas} == {
                broker.broker_name for broker in route.broker_datas
            }
            assert all(broker.broker_addrs for broker in route.broker_datas)

    @invariant()
    def every_live_address_is_listed_once_and_dropped_ones_never(self) -> None:
        brokers = self.table.cluster_map().broker_addr_table
        assert brokers == {name: self.model.broker_data(name) for name in self.model.names()}
        keys = [address for broker in brokers.values() for address in broker.broker_addrs.values()]
        assert sorted(keys) == sorted(self.model.live)
        for address in ADDRESSES:
            live = self.model.live.get(address)
            assert self.table.data_version(address) == (live.request.data_version if live else None)

    @invariant()
    def clusters_hold_each_broker_once(self) -> None:
        clusters = self.table.cluster_map().cluster_addr_table
        assert all(clusters.values())
        pairs = sorted((name, cluster) for cluster, names in clusters.items() for name in names)
        assert pairs == sorted((name, self.model.cluster[name]) for name in self.model.names())

    @invariant()
    def topic_lists_agree_with_routes(self) -> None:
        routes = {topic: route for topic in TOPICS if (route := self.table.route(topic)) is not None}
        assert sorted(self.table.topics()) == sorted(routes)
        for cluster in CLUSTERS:
            here = [t for t, route in routes.items() if cluster in {data.cluster for data in route.broker_datas}]
            assert sorted(self.table.topics_of_cluster(cluster)) == sorted(here)
        unit = [t for t, route in routes.items() if route.queue_datas[0].topic_sys_flag & TopicSysFlag.UNIT]
        assert sorted(self.table.flagged_topics(TopicSysFlag.UNIT)) == sorted(unit)

    def teardown(self) -> None:
        """Whatever happened, when all connections close nothing is left in any table."""
        for connection in CONNECTIONS:
            self.table.drop_connection(connection)
        assert _contents(self.table) == _contents(RouteTable())


def _contents(table: RouteTable) -> list[object]:
    live, queues = table._live, table._queues
    return [table._brokers, live._by_address, live._addresses_on, queues._topics, queues._topics_of]


TestRouteTable = RouteTableMachine.TestCase
TestRouteTable.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
