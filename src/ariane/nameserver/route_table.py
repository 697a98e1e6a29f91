"""The route table of the nameserver: which brokers are alive, and which topics and queues they have.

    TopicQueues   topic   -> {broker name -> QueueData}     only masters (id 0) fill it
    _brokers      name    -> BrokerData                     cluster, {broker id -> address}
    LiveBrokers   address -> LiveBroker                     last seen, data version, connection, filter servers

Three invariants hold between calls, whatever brokers send:
 1. An address belongs to exactly one broker name and id, and that name and id to exactly that address.
 2. A broker name exists while it has an address; its queues are removed with its last address. So every route has an
    address.
 3. A topic's version changes exactly when its route does, so an encoded route is valid while the version is the same.

Pure: no clock, no I/O, no logging. `now` is in monotonic seconds; the caller logs and closes what the results name.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from ariane.errors import RequestFailed
from ariane.model.ids import topic_name_problem
from ariane.model.route import MASTER_ID, BrokerData, ClusterMap, QueueData, TopicRoute
from ariane.model.topic import DataVersion, Permission, TopicConfig, TopicSysFlag
from ariane.wire.codes import ResponseCode

INT32_MAX = 2**31 - 1  # clients read these numbers into 32 bits


@dataclass(slots=True)
class _Topic:
    queues: dict[str, QueueData]  # by broker name; never empty
    version: int


class TopicQueues:
    """The queues of each topic by broker name, a reverse index from broker to topics, and a version per topic.

    With the reverse index, dropping a broker costs only its own topics, not all topics. Versions come from one counter
    that only grows, so a topic that is removed and added again never gets an old version.
    """

    def __init__(self, topics_max: int) -> None:
        self._topics_max = topics_max
        self._topics: dict[str, _Topic] = {}
        self._topics_of: dict[str, dict[str, None]] = {}
        self._changes = 0

    def of(self, topic: str) -> list[QueueData]:
        """Sorted by broker name, so that every nameserver returns the same route in the same order."""
        entry = self._topics.get(topic)
        return [] if entry is None else [entry.queues[broker_name] for broker_name in sorted(entry.queues)]

    def version(self, topic: str) -> int:
        """0 for an unknown topic."""
        entry = self._topics.get(topic)
        return 0 if entry is None else entry.version

    def topics(self) -> list[str]:
        return list(self._topics)

    def topics_of(self, broker_name: str) -> list[str]:
        return list(self._topics_of.get(broker_name, ()))

    def flagged(self, has: TopicSysFlag, lacks: TopicSysFlag) -> list[str]:
        """Topics by flag. If brokers disagree, the first broker of the route decides."""
        expected, mask = int(has), int(has | lacks)
        return [
            name
            for name, topic in self._topics.items()
            if topic.queues[min(topic.queues)].topic_sys_flag & mask == expected
        ]

    def put(self, broker_name: str, configs: Iterable[TopicConfig]) -> dict[str, str]:
        """Adds or updates topics of one broker, never removes one. Returns the refused topics with the reason."""
        change = self._next_change()
        results = ((config.topic_name, self._put_topic(broker_name, config, change)) for config in configs)
        return {topic: problem for topic, problem in results if problem is not None}

    def renew(self, broker_name: str) -> None:
        """Gives the broker's topics a new version: their routes changed because its addresses did."""
        change = self._next_change()
        for topic in self._topics_of.get(broker_name, ()):
            self._topics[topic].version = change

    def remove_broker(self, broker_name: str) -> None:
        change = self._next_change()
        for topic in self.topics_of(broker_name):
            self._remove_queues(topic, broker_name, change)

    def remove_topic(self, topic: str, broker_names: Iterable[str] | None = None) -> bool:
        """Removes a topic from the named brokers, or from all of them. False when none of them has it."""
        entry = self._topics.get(topic)
        if entry is None:
            return False
        names = entry.queues if broker_names is None else broker_names
        holders = [name for name in names if name in entry.queues]
        change = self._next_change()
        for broker_name in holders:
            self._remove_queues(topic, broker_name, change)
        return bool(holders)

    def change_permission(self, broker_name: str, *, add: Permission, remove: Permission) -> int:
        """Sets and clears permission bits on all topics of a broker; returns how many topics it has."""
        change = self._next_change()
        topics = self.topics_of(broker_name)
        for name in topics:
            queues = self._topics[name].queues[broker_name]
            perm = queues.perm & ~int(remove) | int(add)
            if perm != queues.perm:
                self._set(name, replace(queues, perm=perm), change)
        return len(topics)

    def _put_topic(self, broker_name: str, config: TopicConfig, change: int) -> str | None:
        queues = _queues_of(broker_name, config)
        entry = self._topics.get(config.topic_name)
        if entry is not None and entry.queues.get(broker_name) == queues:
            return None  # by far the most common case: nothing to check, and the version stays
        problem = _config_problem(config)
        if problem is None and entry is None and len(self._topics) >= self._topics_max:
            problem = f"this nameserver already has {self._topics_max} topics, its limit"
        if problem is None:
            self._set(config.topic_name, queues, change)
        return problem

    def _set(self, name: str, queues: QueueData, change: int) -> None:
        topic = self._topics.setdefault(name, _Topic({}, change))
        topic.queues[queues.broker_name] = queues
        topic.version = change
        self._topics_of.setdefault(queues.broker_name, {})[name] = None

    def _remove_queues(self, name: str, broker_name: str, change: int) -> None:
        topic = self._topics[name]
        del topic.queues[broker_name]
        topic.version = change
        if not topic.queues:
            del self._topics[name]
        del self._topics_of[broker_name][name]
        if not self._topics_of[broker_name]:
            del self._topics_of[broker_name]

    def _next_change(self) -> int:
        self._changes += 1
        return self._changes


def _queues_of(broker_name: str, config: TopicConfig) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=int(config.perm),
        topic_sys_flag=int(config.topic_sys_flag),
    )


def _config_problem(config: TopicConfig) -> str | None:
    """Why the topic is refused, or None. The name is checked because clients may use it as a file name."""
    problem = topic_name_problem(config.topic_name)
    numbers = (config.read_queue_nums, config.write_queue_nums, config.perm, config.topic_sys_flag)
    if problem is None and not all(0 <= number <= INT32_MAX for number in numbers):
        problem = f"queue numbers, permission and flags must be between 0 and {INT32_MAX}, not {numbers}"
    return problem


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBroker:
    """One broker process, as of its last registration. Its address is its identity."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    data_version: DataVersion
    topics_taken: int  # size of the last topic table accepted from it, to distinguish a full table from an increment
    filter_servers: tuple[str, ...]
    connection: object
    last_seen: float
    expiry_seconds: float
    account: str | None = None

    def is_expired(self, now: float) -> bool:
        return now - self.last_seen > self.expiry_seconds


class LiveBrokers:
    """Live brokers by address, and the addresses that registered over each connection.

    With the second table a closed connection costs one look-up: most connections belong to clients, not to brokers. A
    connection is any hashable token; it is compared and never called.
    """

    def __init__(self) -> None:
        self._by_address: dict[str, LiveBroker] = {}
        self._addresses_on: dict[object, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._by_address)

    def get(self, address: str) -> LiveBroker | None:
        return self._by_address.get(address)

    def put(self, broker: LiveBroker) -> None:
        """Adds or renews a broker. A new connection replaces the old one, whose close then drops no broker."""
        previous = self._by_address.get(broker.address)
        if previous is not None:
            self._forget_connection(previous)
        self._by_address[broker.address] = broker
        self._addresses_on.setdefault(broker.connection, {})[broker.address] = None

    def remove(self, address: str) -> LiveBroker | None:
        broker = self._by_address.pop(address, None)
        if broker is not None:
            self._forget_connection(broker)
        return broker

    def touch(self, address: str, now: float) -> bool:
        """Records a heartbeat; False when no broker is registered at `address`."""
        broker = self._by_address.get(address)
        if broker is not None:
            self._by_address[address] = dataclasses.replace(broker, last_seen=now)
        return broker is not None

    def on_connection(self, connection: object) -> list[LiveBroker]:
        return [self._by_address[address] for address in self._addresses_on.get(connection, ())]

    def expired(self, now: float) -> list[LiveBroker]:
        return [broker for broker in self._by_address.values() if broker.is_expired(now)]

    def _forget_connection(self, broker: LiveBroker) -> None:
        addresses = self._addresses_on[broker.connection]
        del addresses[broker.address]
        if not addresses:
            del self._addresses_on[broker.connection]


EXPIRY_SECONDS = 120.0  # Apache's default: four registration periods
NO_VERSION = DataVersion()


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The registration of one broker process. `topics` and `filter_servers` are None when the request had no body."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    connection: object
    ha_address: str = ""
    data_version: DataVersion = NO_VERSION
    topics: Mapping[str, TopicConfig] | None = None
    filter_servers: Sequence[str] | None = None
    expiry_seconds: float = EXPIRY_SECONDS
    account: str | None = None
    """That registers it, if the nameserver has access control."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterResult:
    """The response to a broker, and the effects of its registration on others."""

    is_first: bool
    master_address: str | None = None  # for slaves only
    ha_address: str | None = None
    refused_topics: Mapping[str, str] = field(default_factory=dict)  # name to reason
    displaced: tuple[LiveBroker, ...] = ()  # dropped by this registration: another process with the same id, for one


def is_first(request: Registration, previous: LiveBroker | None) -> bool:
    """Whether this address registers with this broker id for the first time; `previous` has the same broker name."""
    return previous is None or previous.broker_id != request.broker_id


def topics_to_take(request: Registration, previous: LiveBroker | None) -> Mapping[str, TopicConfig] | None:
    """The topic table of the request if it is a master's and may contain news, else None.

    A broker announces a new topic alone, under the new data version. The full table that follows carries that same
    version; if it were skipped, a nameserver that started in between would know this one topic only. So a table with
    more topics than were accepted under its version counts as news too.
    """
    if request.broker_id != MASTER_ID or request.topics is None:
        return None
    if previous is None or is_first(request, previous) or previous.data_version != request.data_version:
        return request.topics
    return request.topics if len(request.topics) > previous.topics_taken else None


def live_broker(request: Registration, previous: LiveBroker | None, now: float) -> LiveBroker:
    """The broker after this registration. Fields that a request without a body lacks are kept from `previous`."""
    filters = tuple(request.filter_servers or ())
    if previous and request.filter_servers is None:
        filters = previous.filter_servers
    topics = topics_to_take(request, previous)
    kept = previous.topics_taken if previous else 0
    return LiveBroker(
        cluster=request.cluster,
        broker_name=request.broker_name,
        broker_id=request.broker_id,
        address=request.address,
        ha_address=request.ha_address,
        data_version=request.data_version,
        topics_taken=kept if topics is None else len(topics),
        filter_servers=filters,
        connection=request.connection,
        last_seen=now,
        expiry_seconds=request.expiry_seconds,
        account=request.account,
    )


# Far above the largest known clusters, far below what would fill the memory of a small machine.
TOPICS_MAX = 200_000
BROKERS_MAX = 4_096

_NONE = Permission.NONE
_NO_FLAG = TopicSysFlag(0)


class SystemTopics(NamedTuple):
    """Names that no user topic may have, and the address of one broker, which knows further system topics."""

    topics: list[str]
    broker_address: str | None


class RouteTable:
    """The three tables together. No method awaits, so on an event loop it needs no lock."""

    def __init__(self, *, topics_max: int = TOPICS_MAX, brokers_max: int = BROKERS_MAX) -> None:
        self._brokers_max = brokers_max
        self._brokers: dict[str, BrokerData] = {}
        self._live = LiveBrokers()
        self._queues = TopicQueues(topics_max)

    # --- requests of brokers ---

    def register(self, request: Registration, now: float) -> RegisterResult:
        """Registers or renews a broker. RequestFailed, with nothing changed, when the limit of brokers is reached."""
        self._check_limit(request.address)
        previous, displaced = self._drop_conflicting(request)
        live = live_broker(request, previous, now)
        self._put(live, previous)
        topics = topics_to_take(request, previous) or {}
        master = self._master_of(live)
        return RegisterResult(
            is_first=is_first(request, previous),
            master_address=None if master is None else master.address,
            ha_address=None if master is None else master.ha_address,
            refused_topics=self._queues.put(request.broker_name, topics.values()),
            displaced=displaced,
        )

    def unregister(self, cluster: str, broker_name: str, broker_id: int, address: str) -> bool:
        """False, with nothing changed, unless all four match one live broker: a broker cannot unregister another."""
        live = self._live.get(address)
        if live is None or (live.cluster, live.broker_name, live.broker_id) != (cluster, broker_name, broker_id):
            return False
        self._drop(live)
        return True

    def live(self, address: str) -> LiveBroker | None:
        return self._live.get(address)

    def holders(self, request: Registration, now: float) -> list[LiveBroker]:
        """Live brokers on other connections whose place this registration would take: by address, or by name and id."""
        data = self._brokers.get(request.broker_name)
        place = None if data is None else data.broker_addrs.get(request.broker_id)
        found = (self._live.get(address) for address in {request.address: None, place: None} if address is not None)
        return [
            live for live in found if live and live.connection is not request.connection and not live.is_expired(now)
        ]

    def touch(self, address: str, now: float) -> bool:
        """Records a heartbeat; False when the broker is not registered."""
        return self._live.touch(address, now)

    def drop_connection(self, connection: object) -> list[LiveBroker]:
        """Drops the brokers whose latest registration came over this connection; for most connections none."""
        return self._drop_all(self._live.on_connection(connection))

    def expire(self, now: float) -> list[LiveBroker]:
        """Drops the brokers that have not registered or sent a heartbeat within their expiry time."""
        return self._drop_all(self._live.expired(now))

    def data_version(self, address: str) -> DataVersion | None:
        live = self._live.get(address)
        return None if live is None else live.data_version

    def is_changed(self, address: str, version: DataVersion) -> bool:
        """Whether a broker whose tables are at `version` should register; an unknown broker always should."""
        return self.data_version(address) != version

    # --- requests of clients ---

    def route(self, topic: str, order_conf: str | None = None) -> TopicRoute | None:
        queues = self._queues.of(topic)
        if not queues:
            return None
        brokers = [self._brokers[queue.broker_name] for queue in queues]
        filters = {address: self._filter_servers(address) for data in brokers for address in data.broker_addrs.values()}
        return TopicRoute(
            queue_datas=queues,
            broker_datas=brokers,
            filter_server_table={address: servers for address, servers in filters.items() if servers},
            order_topic_conf=order_conf,
        )

    def route_version(self, topic: str) -> int:
        """Changes whenever `route(topic)` does; costs one look-up. It does not cover the order configuration."""
        return self._queues.version(topic)

    # --- requests of administrators ---

    def cluster_map(self) -> ClusterMap:
        clusters: dict[str, list[str]] = {}
        for name, data in self._brokers.items():
            clusters.setdefault(data.cluster, []).append(name)
        return ClusterMap(broker_addr_table=dict(self._brokers), cluster_addr_table=clusters)

    def topics(self) -> list[str]:
        return self._queues.topics()

    def topics_of_cluster(self, cluster: str) -> list[str]:
        names = self._brokers_in(cluster)
        return list(dict.fromkeys(topic for name in names for topic in self._queues.topics_of(name)))

    def system_topics(self) -> SystemTopics:
        clusters = (data.cluster for data in self._brokers.values())
        addresses = (address for data in self._brokers.values() for address in data.broker_addrs.values())
        return SystemTopics(list(dict.fromkeys([*clusters, *self._brokers])), next(addresses, None))

    def flagged_topics(self, has: TopicSysFlag, lacks: TopicSysFlag = _NO_FLAG) -> list[str]:
        """The unit lists: 311 has UNIT, 312 has UNIT_SUBSCRIPTION, 313 has UNIT_SUBSCRIPTION and lacks UNIT."""
        return self._queues.flagged(has, lacks)

    def delete_topic(self, topic: str, cluster: str | None = None) -> bool:
        """Removes a topic, in one cluster or everywhere. A broker that still has it may register it again."""
        return self._queues.remove_topic(topic, None if cluster is None else self._brokers_in(cluster))

    def wipe_write_permission(self, broker_name: str) -> int:
        """Keeps producers away from a broker until its next changed registration; returns how many topics it has."""
        return self._queues.change_permission(broker_name, add=_NONE, remove=Permission.WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        """Undoes a wipe. Other bits stay; Apache sets all topics to plain read-write, which breaks auto-creation."""
        return self._queues.change_permission(broker_name, add=Permission.WRITE, remove=_NONE)

    # --- how the tables stay consistent ---

    def _check_limit(self, address: str) -> None:
        if len(self._live) >= self._brokers_max and self._live.get(address) is None:
            remark = f"this nameserver already has {self._brokers_max} brokers; raise brokers_max or stop some brokers"
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, remark)

    def _drop_conflicting(self, request: Registration) -> tuple[LiveBroker | None, tuple[LiveBroker, ...]]:
        """Drops this address under another broker name, and another address with this name and id.

        Returns the previous registration of this address under this name, and what was dropped.
        """
        previous = self._live.get(request.address)
        moved = previous if previous is not None and previous.broker_name != request.broker_name else None
        if moved is not None:
            self._drop(moved)
        data = self._brokers.get(request.broker_name)
        holder = request.address if data is None else data.broker_addrs.get(request.broker_id, request.address)
        replaced = self._live.remove(holder) if holder != request.address else None
        return None if moved else previous, tuple(broker for broker in (moved, replaced) if broker)

    def _put(self, live: LiveBroker, previous: LiveBroker | None) -> None:
        """Stores the broker under its name and id only. Its last registered cluster is its cluster."""
        data = self._brokers.get(live.broker_name)
        others = {} if data is None else data.broker_addrs
        kept = {other_id: address for other_id, address in others.items() if address != live.address}
        updated = _broker_data(live.cluster, live.broker_name, {**kept, live.broker_id: live.address})
        self._live.put(live)
        self._brokers[live.broker_name] = updated
        if updated != data or previous is None or previous.filter_servers != live.filter_servers:
            self._queues.renew(live.broker_name)

    def _drop(self, live: LiveBroker) -> None:
        self._live.remove(live.address)
        data = self._brokers[live.broker_name]
        kept = {broker_id: address for broker_id, address in data.broker_addrs.items() if address != live.address}
        if kept:  # a slave keeps the routes for readers
            self._brokers[live.broker_name] = _broker_data(data.cluster, live.broker_name, kept)
            self._queues.renew(live.broker_name)
        else:
            del self._brokers[live.broker_name]
            self._queues.remove_broker(live.broker_name)

    def _drop_all(self, brokers: list[LiveBroker]) -> list[LiveBroker]:
        for live in brokers:
            self._drop(live)
        return brokers

    def _master_of(self, live: LiveBroker) -> LiveBroker | None:
        addresses = self._brokers[live.broker_name].broker_addrs
        if live.broker_id == MASTER_ID or MASTER_ID not in addresses:
            return None
        return self._live.get(addresses[MASTER_ID])

    def _brokers_in(self, cluster: str) -> list[str]:
        return [name for name, data in self._brokers.items() if data.cluster == cluster]

    def _filter_servers(self, address: str) -> list[str]:
        live = self._live.get(address)
        return list(live.filter_servers) if live else []


def _broker_data(cluster: str, broker_name: str, addresses: Mapping[int, str]) -> BrokerData:
    """A new value for every change, so that routes already returned do not change. The master comes first."""
    return BrokerData(cluster=cluster, broker_name=broker_name, broker_addrs=dict(sorted(addresses.items())))
