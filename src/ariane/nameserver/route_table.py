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

from collections.abc import Mapping
from typing import NamedTuple

from ariane.errors import RequestFailed
from ariane.model.route import MASTER_ID, BrokerData, ClusterMap, TopicRoute
from ariane.model.topic import DataVersion, Permission, TopicSysFlag
from ariane.nameserver.live_brokers import LiveBroker, LiveBrokers
from ariane.nameserver.registration import RegisterResult, Registration, is_first, live_broker, topics_to_take
from ariane.nameserver.topic_queues import TopicQueues
from ariane.wire.codes import ResponseCode

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

    def register(self, ask: Registration, now: float) -> RegisterResult:
        """Take a broker in or renew it. RequestFailed, with nothing changed, when there is no room for its address."""
        self._check_room(ask.address)
        known, displaced = self._clear_place(ask)
        live = live_broker(ask, known, now)
        self._place(live, known)
        topics = topics_to_take(ask, known) or {}
        master = self._master_of(live)
        return RegisterResult(
            is_first=is_first(ask, known),
            master_address=None if master is None else master.address,
            ha_address=None if master is None else master.ha_address,
            refused_topics=self._queues.put(ask.broker_name, topics.values()),
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

    def _clear_place(self, ask: Registration) -> tuple[LiveBroker | None, tuple[LiveBroker, ...]]:
        """What we knew of this broker, and who had to go: itself under another name, another process with its id."""
        known = self._live.get(ask.address)
        moved = known if known is not None and known.broker_name != ask.broker_name else None
        if moved is not None:
            self._drop(moved)
        data = self._brokers.get(ask.broker_name)
        holder = ask.address if data is None else data.broker_addrs.get(ask.broker_id, ask.address)
        rival = self._live.remove(holder) if holder != ask.address else None
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
