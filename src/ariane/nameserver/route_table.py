"""Who holds which topic, as brokers report it: the heart of the nameserver.

    TopicQueues   topic   -> {broker name -> QueueData}     only masters (id 0) fill it
    _brokers      name    -> BrokerData                     cluster, {broker id -> address}
    LiveBrokers   address -> LiveBroker                     last seen, data version, connection, filter servers

Three rules hold between calls, whatever brokers send:
 1. An address has one place: one broker name, one id. The place names the address, the address names the place.
 2. A broker name is there while it has an address; its queues go with its last address, so no route leads nowhere.
 3. A topic's version changes exactly when its route does, so an encoded answer is good while the version stands.

Pure: no clock, no I/O, no log. `now` is in monotonic seconds; the caller logs and closes what the results name.
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

# --- topic_queues ---
#
# Which brokers have queues of which topic, and a version per topic that moves when its route does. Pure.

INT32_MAX = 2**31 - 1  # clients read these numbers into 32 bits


@dataclass(slots=True)
class _Topic:
    queues: dict[str, QueueData]  # by broker name; never empty
    version: int


class TopicQueues:
    """Topic to queues by broker name, with the way back from a broker to its topics.

    The way back makes the loss of a broker cost its own topics and not all topics. Versions come from one counter that
    only grows: a topic that vanishes and returns can not meet an old number again.
    """

    def __init__(self, topics_max: int) -> None:
        self._topics_max = topics_max
        self._topics: dict[str, _Topic] = {}
        self._topics_of: dict[str, dict[str, None]] = {}
        self._changes = 0

    def of(self, topic: str) -> list[QueueData]:
        """By broker name, so that every nameserver tells the same route in the same order."""
        found = self._topics.get(topic)
        return [] if found is None else [found.queues[broker_name] for broker_name in sorted(found.queues)]

    def version(self, topic: str) -> int:
        """0 for a topic that nobody has."""
        found = self._topics.get(topic)
        return 0 if found is None else found.version

    def topics(self) -> list[str]:
        return list(self._topics)

    def topics_of(self, broker_name: str) -> list[str]:
        return list(self._topics_of.get(broker_name, ()))

    def flagged(self, has: TopicSysFlag, lacks: TopicSysFlag) -> list[str]:
        """Topics by the flags that the first broker of their route gave them."""
        wanted, looked_at = int(has), int(has | lacks)
        return [
            name
            for name, topic in self._topics.items()
            if topic.queues[min(topic.queues)].topic_sys_flag & looked_at == wanted
        ]

    def put(self, broker_name: str, configs: Iterable[TopicConfig]) -> dict[str, str]:
        """Add or update topics of one broker, never remove one. Returns the refused ones and why."""
        change = self._next_change()
        faults = ((config.topic_name, self._put_one(broker_name, config, change)) for config in configs)
        return {topic: fault for topic, fault in faults if fault is not None}

    def renew(self, broker_name: str) -> None:
        """The broker's addresses changed: its topics keep their queues, but their routes differ."""
        change = self._next_change()
        for topic in self._topics_of.get(broker_name, ()):
            self._topics[topic].version = change

    def remove_broker(self, broker_name: str) -> None:
        change = self._next_change()
        for topic in self.topics_of(broker_name):
            self._remove_one(topic, broker_name, change)

    def remove_topic(self, topic: str, broker_names: Iterable[str] | None = None) -> bool:
        """Forget a topic on the named brokers, or on all of them. False when there was nothing to forget."""
        found = self._topics.get(topic)
        if found is None:
            return False
        names = found.queues if broker_names is None else broker_names
        holders = [name for name in names if name in found.queues]
        change = self._next_change()
        for broker_name in holders:
            self._remove_one(topic, broker_name, change)
        return bool(holders)

    def change_permission(self, broker_name: str, *, add: Permission, remove: Permission) -> int:
        """Set and clear permission bits on all topics of a broker; returns how many topics it has."""
        change = self._next_change()
        topics = self.topics_of(broker_name)
        for name in topics:
            queues = self._topics[name].queues[broker_name]
            perm = queues.perm & ~int(remove) | int(add)
            if perm != queues.perm:
                self._set(name, replace(queues, perm=perm), change)
        return len(topics)

    def _put_one(self, broker_name: str, config: TopicConfig, change: int) -> str | None:
        queues = _queues_of(broker_name, config)
        known = self._topics.get(config.topic_name)
        if known is not None and known.queues.get(broker_name) == queues:
            return None  # by far the most frequent case: nothing to check, and the version stays
        fault = _config_fault(config)
        if fault is None and known is None and len(self._topics) >= self._topics_max:
            fault = f"this nameserver already holds {self._topics_max} topics"
        if fault is None:
            self._set(config.topic_name, queues, change)
        return fault

    def _set(self, name: str, queues: QueueData, change: int) -> None:
        topic = self._topics.setdefault(name, _Topic({}, change))
        topic.queues[queues.broker_name] = queues
        topic.version = change
        self._topics_of.setdefault(queues.broker_name, {})[name] = None

    def _remove_one(self, name: str, broker_name: str, change: int) -> None:
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


def _config_fault(config: TopicConfig) -> str | None:
    """Why clients could not use this topic; the name is checked because it may become a file name somewhere else."""
    fault = topic_name_problem(config.topic_name)
    numbers = (config.read_queue_nums, config.write_queue_nums, config.perm, config.topic_sys_flag)
    if fault is None and not all(0 <= number <= INT32_MAX for number in numbers):
        fault = f"queue numbers, permission and flags must be between 0 and {INT32_MAX}, not {numbers}"
    return fault


# --- live_brokers ---
#
# Which broker processes live: when each was last heard, and over which connection. Pure: time is an argument.


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBroker:
    """One broker process as it last registered. Its address is its identity."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    data_version: DataVersion
    topics_taken: int  # the size of the topic table we last took from it, to tell a whole table from an increment
    filter_servers: tuple[str, ...]
    connection: object
    last_seen: float
    expiry_seconds: float

    def is_silent(self, now: float) -> bool:
        return now - self.last_seen > self.expiry_seconds


class LiveBrokers:
    """Live brokers by address, and the addresses that registered over each connection.

    The second table makes a closed connection cheap to judge: most of them belong to clients and name no broker. A
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
        """Add a broker or renew it. A new connection takes the old one's place, so the old one may close unnoticed."""
        known = self._by_address.get(broker.address)
        if known is not None:
            self._forget_connection(known)
        self._by_address[broker.address] = broker
        self._addresses_on.setdefault(broker.connection, {})[broker.address] = None

    def remove(self, address: str) -> LiveBroker | None:
        broker = self._by_address.pop(address, None)
        if broker is not None:
            self._forget_connection(broker)
        return broker

    def touch(self, address: str, now: float) -> bool:
        """Note a sign of life; False when nobody registered from `address`."""
        broker = self._by_address.get(address)
        if broker is not None:
            self._by_address[address] = dataclasses.replace(broker, last_seen=now)
        return broker is not None

    def on_connection(self, connection: object) -> list[LiveBroker]:
        return [self._by_address[address] for address in self._addresses_on.get(connection, ())]

    def silent(self, now: float) -> list[LiveBroker]:
        return [broker for broker in self._by_address.values() if broker.is_silent(now)]

    def _forget_connection(self, broker: LiveBroker) -> None:
        addresses = self._addresses_on[broker.connection]
        del addresses[broker.address]
        if not addresses:
            del self._addresses_on[broker.connection]


# --- registration ---
#
# What a broker says when it registers, what it is told, and whether its topic table is news. Pure.

EXPIRY_SECONDS = 120.0  # Apache's, four registration periods
NO_VERSION = DataVersion()


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What one broker process says of itself. `topics` and `filter_servers` are None when the request had no body."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterResult:
    """The answer to a broker, and what its registration did to others."""

    is_first: bool
    master_address: str | None = None  # told to slaves only
    ha_address: str | None = None
    refused_topics: Mapping[str, str] = field(default_factory=dict)  # name to reason
    displaced: tuple[LiveBroker, ...] = ()  # two processes that claim one id push each other out: worth a warning


def is_first(request: Registration, known: LiveBroker | None) -> bool:
    """Whether this address takes this place for the first time; `known` is what it was under the same broker name."""
    return known is None or known.broker_id != request.broker_id


def topics_to_take(request: Registration, known: LiveBroker | None) -> Mapping[str, TopicConfig] | None:
    """The topic table, if it is a master's and may hold something that we have not taken.

    A new topic is announced alone, under the new data version. The whole table that follows carries that same version;
    were it skipped, a nameserver that started in between would know this one topic only. So more topics than we took
    under a version are news too.
    """
    if request.broker_id != MASTER_ID or request.topics is None:
        return None
    if known is None or is_first(request, known) or known.data_version != request.data_version:
        return request.topics
    return request.topics if len(request.topics) > known.topics_taken else None


def live_broker(request: Registration, known: LiveBroker | None, now: float) -> LiveBroker:
    """The broker as it now stands. What a request without a body does not say is kept."""
    filters = known.filter_servers if known and request.filter_servers is None else tuple(request.filter_servers or ())
    topics = topics_to_take(request, known)
    kept = known.topics_taken if known else 0
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
    )


# ---

# Far above the largest known clusters, far below what would fill the memory of a small machine.
TOPICS_MAX = 200_000
BROKERS_MAX = 4_096

_NONE = Permission.NONE
_NO_FLAG = TopicSysFlag(0)


class SystemTopics(NamedTuple):
    """Names that no user topic may take, and one broker to ask for its own."""

    topics: list[str]
    broker_address: str | None


class RouteTable:
    """Changes only in functions that do not suspend, so it needs no lock on an event loop."""

    def __init__(self, *, topics_max: int = TOPICS_MAX, brokers_max: int = BROKERS_MAX) -> None:
        self._brokers_max = brokers_max
        self._brokers: dict[str, BrokerData] = {}
        self._live = LiveBrokers()
        self._queues = TopicQueues(topics_max)

    # -- what brokers say

    def register(self, request: Registration, now: float) -> RegisterResult:
        """Take a broker in or renew it. RequestFailed, with nothing changed, when there is no room for its address."""
        self._check_room(request.address)
        known, displaced = self._clear_place(request)
        live = live_broker(request, known, now)
        self._place(live, known)
        topics = topics_to_take(request, known) or {}
        master = self._master_of(live)
        return RegisterResult(
            is_first=is_first(request, known),
            master_address=None if master is None else master.address,
            ha_address=None if master is None else master.ha_address,
            refused_topics=self._queues.put(request.broker_name, topics.values()),
            displaced=displaced,
        )

    def unregister(self, cluster: str, broker_name: str, broker_id: int, address: str) -> bool:
        """False, and nothing changed, unless all four name one live broker: nobody signs off for somebody else."""
        live = self._live.get(address)
        if live is None or (live.cluster, live.broker_name, live.broker_id) != (cluster, broker_name, broker_id):
            return False
        self._drop(live)
        return True

    def touch(self, address: str, now: float) -> bool:
        """A heartbeat; False asks the caller to have the broker register again."""
        return self._live.touch(address, now)

    def drop_connection(self, connection: object) -> list[LiveBroker]:
        """Drop the brokers whose latest registration came over this connection; usually none."""
        return self._drop_all(self._live.on_connection(connection))

    def expire(self, now: float) -> list[LiveBroker]:
        """Drop the brokers that were silent for too long."""
        return self._drop_all(self._live.silent(now))

    def data_version(self, address: str) -> DataVersion | None:
        live = self._live.get(address)
        return None if live is None else live.data_version

    def is_changed(self, address: str, version: DataVersion) -> bool:
        """Whether a broker whose tables are at `version` should register; a stranger always should."""
        return self.data_version(address) != version

    # -- what clients ask

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
        """Differs whenever `route(topic)` does, at the cost of one look-up. Order confs are not known here."""
        return self._queues.version(topic)

    # -- what administrators ask

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
        """Forget a topic, in one cluster or everywhere. A broker that still has it may bring it back."""
        return self._queues.remove_topic(topic, None if cluster is None else self._brokers_in(cluster))

    def wipe_write_permission(self, broker_name: str) -> int:
        """Lead producers away from a broker until its next changed registration; returns how many topics it has."""
        return self._queues.change_permission(broker_name, add=_NONE, remove=Permission.WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        """Undo a wipe. The other bits stay; Apache sets all topics to plain read-write, which breaks auto-creation."""
        return self._queues.change_permission(broker_name, add=Permission.WRITE, remove=_NONE)

    # -- how the tables stay in step

    def _check_room(self, address: str) -> None:
        if len(self._live) >= self._brokers_max and self._live.get(address) is None:
            remark = f"this nameserver already holds {self._brokers_max} brokers; raise its limit or stop some brokers"
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, remark)

    def _clear_place(self, request: Registration) -> tuple[LiveBroker | None, tuple[LiveBroker, ...]]:
        """What we knew of this broker, and who had to go: itself under another name, another process with its id."""
        known = self._live.get(request.address)
        moved = known if known is not None and known.broker_name != request.broker_name else None
        if moved is not None:
            self._drop(moved)
        data = self._brokers.get(request.broker_name)
        holder = request.address if data is None else data.broker_addrs.get(request.broker_id, request.address)
        rival = self._live.remove(holder) if holder != request.address else None
        return None if moved else known, tuple(gone for gone in (moved, rival) if gone)

    def _place(self, live: LiveBroker, known: LiveBroker | None) -> None:
        """Put the address in its one place. The broker's last cluster is its cluster."""
        data = self._brokers.get(live.broker_name)
        others = {} if data is None else data.broker_addrs
        kept = {other_id: address for other_id, address in others.items() if address != live.address}
        placed = _broker_data(live.cluster, live.broker_name, {**kept, live.broker_id: live.address})
        self._live.put(live)
        self._brokers[live.broker_name] = placed
        if placed != data or known is None or known.filter_servers != live.filter_servers:
            self._queues.renew(live.broker_name)

    def _drop(self, live: LiveBroker) -> None:
        self._live.remove(live.address)
        data = self._brokers[live.broker_name]
        kept = {broker_id: address for broker_id, address in data.broker_addrs.items() if address != live.address}
        if kept:  # a slave keeps the routes alive for readers
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
    """A new value for every change: routes already handed out keep what they said. The master comes first."""
    return BrokerData(cluster=cluster, broker_name=broker_name, broker_addrs=dict(sorted(addresses.items())))
