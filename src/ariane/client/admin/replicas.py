"""Masters and slaves as an operator sees them: each member of a broker name, how far behind it is, and what is wrong.

Every member is asked for its state, its settings, and whom it is connected to. Brokers of Ariane and of 5.x tell the
last (GET_BROKER_HA_STATUS), those of 4.x do not. What nobody tells is None, never a guess:

    behind_bytes   as the master counts it, or else the distance between the ends of both logs
    behind_s       how long ago the slave had everything that the master had: 0 if it has; from brokers of Ariane
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from ariane.client.admin.requests import AdminRequests, Broker, PerServer
from ariane.errors import ArianeError, ClientError, RequestFailed
from ariane.model.route import MASTER_ID
from ariane.settings.properties_file import read_properties
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.brokers import GetBrokerSettings, GetRuntimeInfo
from ariane.wire.requests.replication import GetHaStatus, HaStatus, LostConnection, MasterConnection, SlaveConnection

SYNC_MASTER = "SYNC_MASTER"
_CONNECTIONS_MAX = 64
"""Of one master: more are not shown."""
_DIGITS_MAX = 19

C = TypeVar("C", SlaveConnection, LostConnection)


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a broker name."""

    cluster: str
    name: str
    broker_id: int | None
    """None for a slave of Apache that is not registered: it does not say its id to the master."""
    address: str
    """Its address in the route; of one that is not registered, where its connection comes from."""
    is_registered: bool = True
    role: str | None = None
    """As its settings say: ASYNC_MASTER, SYNC_MASTER or SLAVE."""
    failure: str | None = None
    """Why it did not respond."""
    is_connected: bool | None = None
    """Of a slave: whether it is connected to its master."""
    reason: str | None = None
    """Why it is not."""
    begin: int | None = None
    end: int | None = None
    dispatched: int | None = None
    """How far consumers can read."""
    behind_bytes: int | None = None
    behind_s: float | None = None
    connected_ms: int | None = None
    lost_ms: int | None = None
    metadata_ms: int | None = None
    """When a slave last copied topics, groups and offsets."""
    metadata_failure: str | None = None
    version: str | None = None
    settings: Mapping[str, str] = {}
    unknown: tuple[str, ...] = ()
    """What it was asked and did not tell, with the reason."""

    @property
    def is_master(self) -> bool:
        return self.is_registered and self.broker_id == MASTER_ID

    @property
    def state(self) -> str:
        if self.failure is not None:
            return "unreachable"
        if self.is_master:
            return "ok"
        if self.is_connected is None:
            return "unknown"
        return "connected" if self.is_connected else "not connected"

    def __str__(self) -> str:
        if self.is_master:
            return f"the master of {self.name} ({self.address})"
        return f"slave {self.broker_id} of {self.name} ({self.address})".replace(" None", "")


class ReplicaSet(msgspec.Struct, frozen=True, kw_only=True):
    """The members of one broker name, the master first."""

    cluster: str
    name: str
    members: tuple[Replica, ...]
    refused: tuple[LostConnection, ...] = ()
    """Peers that the master refused in the last day, and that did not come back as slaves."""

    @property
    def master(self) -> Replica | None:
        return next((member for member in self.members if member.is_master), None)

    @property
    def slaves(self) -> list[Replica]:
        return [member for member in self.members if not member.is_master]

    @property
    def has_no_slave_in_reach(self) -> bool:
        """Of a SYNC_MASTER: it waits for nobody, and its sends end with SLAVE_NOT_AVAILABLE."""
        master = self.master
        is_sync = master is not None and master.role == SYNC_MASTER
        return is_sync and all(slave.is_connected is False for slave in self.slaves)

    @property
    def troubles(self) -> list[str]:
        """What keeps the copies from being made, or may do so: one sentence each."""
        master = self.master
        found = []
        if master is None:
            found.append(f"{self.name} has no master: nothing can be sent to it")
        elif self.has_no_slave_in_reach:
            found.append(f"{self.name} is a SYNC_MASTER without a slave: sends end with SLAVE_NOT_AVAILABLE")
        for slave in self.slaves:
            if slave.is_connected is False:
                found.append(f"{slave} is not connected to its master: {slave.reason or 'nobody says why'}")
        return found

    @property
    def failures(self) -> list[str]:
        return [f"{member.name} ({member.address}): {member.failure}" for member in self.members if member.failure]


async def replica_sets(
    requests: AdminRequests, name: str | None = None, *, cluster: str | None = None
) -> tuple[ReplicaSet, ...]:
    """By cluster and broker name; ClientError when no broker of that name is registered."""
    brokers = await requests.brokers(cluster=cluster, slaves=True)
    known = sorted({broker.name for broker in brokers})
    if name is not None and name not in known:
        raise ClientError(f"there is no broker name {name}: the nameserver knows {', '.join(known)}")
    facts = await _ask([broker for broker in brokers if name in (None, broker.name)], requests)
    names = sorted({(broker.cluster, broker.name) for broker in facts})
    return tuple(
        _set_of({broker: fact for broker, fact in facts.items() if (broker.cluster, broker.name) == pair})
        for pair in names
    )


# --- what each member says --------------------------------------------------------------------------------------------


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    failure: str | None = None
    runtime: Mapping[str, str] = {}
    settings: Mapping[str, str] = {}
    status: HaStatus | None = None
    unknown: tuple[str, ...] = ()

    def number(self, name: str) -> int | None:
        text = self.runtime.get(name, "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX else None

    @property
    def role(self) -> str | None:
        return self.settings.get("brokerRole") or (None if self.status is None else self.status.broker_role)

    @property
    def following(self) -> MasterConnection | None:
        """What a slave of Ariane says about its connection; those of Apache do not say whether there is one."""
        status = self.status
        return None if status is None or status.master or status.broker_role is None else status.ha_client_runtime_info


async def _ask(brokers: Iterable[Broker], requests: AdminRequests) -> dict[Broker, _Facts]:
    """Slaves tell the ends of their logs before masters do: so none that is healthy seems to be ahead."""
    asked = list(brokers)
    of_slaves, settings, statuses = await asyncio.gather(
        requests.each([broker for broker in asked if not broker.is_master], GetRuntimeInfo()),
        requests.each(asked, GetBrokerSettings()),
        requests.each(asked, GetHaStatus()),
    )
    of_masters = await requests.each([broker for broker in asked if broker.is_master], GetRuntimeInfo())
    runtimes = PerServer({**of_slaves.responses, **of_masters.responses}, (*of_slaves.failures, *of_masters.failures))
    errors = [{failure.server: failure.error for failure in each.failures} for each in (runtimes, settings, statuses)]
    facts = {}
    for broker in asked:
        no_runtime, no_settings, no_status = (each.get(str(broker)) for each in errors)
        if no_runtime is not None:
            facts[broker] = _Facts(failure=str(no_runtime))
            continue
        unknown = []
        if no_settings is not None:
            unknown.append(f"its role and settings: {no_settings}")
        if no_status is not None:
            unknown.append(f"connections between master and slave: {_why(no_status)}")
        facts[broker] = _Facts(
            runtime=runtimes.responses[broker].body.table,
            settings={}
            if no_settings is not None
            else {entry.key: entry.value for entry in read_properties(settings.responses[broker].body)},
            status=None if no_status is not None else statuses.responses[broker].body,
            unknown=tuple(unknown),
        )
    return facts


def _why(error: ArianeError) -> str:
    if isinstance(error, RequestFailed) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return "a broker of 4.x does not tell them"
    return str(error)


# --- one picture of it ------------------------------------------------------------------------------------------------


def _set_of(facts: Mapping[Broker, _Facts]) -> ReplicaSet:
    brokers = sorted(facts)
    master = next((broker for broker in brokers if broker.is_master), None)
    slaves = [broker for broker in brokers if not broker.is_master]
    status = None if master is None else facts[master].status
    view = _MasterView(slaves, status if status is not None and status.master else None)
    end = None if master is None else facts[master].number("commitLogMaxOffset")
    members = [] if master is None else [_member(master, facts[master])]
    members += [_slave(slave, facts[slave], view, end) for slave in slaves]
    cluster, name = brokers[0].cluster, brokers[0].name
    members += [_connected_slave(cluster, name, connection) for connection in view.others]
    members += [_lost_slave(cluster, name, lost, end) for lost in view.lost_others]
    return ReplicaSet(cluster=cluster, name=name, members=tuple(members), refused=tuple(view.refused))


class _MasterView:
    """What the master says about its slaves, by slave as far as it can be known which is which."""

    def __init__(self, slaves: list[Broker], status: HaStatus | None) -> None:
        self.is_known = status is not None
        connections = [] if status is None else status.ha_connection_info[:_CONNECTIONS_MAX]
        lost = [] if status is None else status.lost_connections[:_CONNECTIONS_MAX]
        self.of = _matched(slaves, connections)
        self.others = _without(connections, self.of.values())
        absent = [slave for slave in slaves if slave not in self.of]
        self.lost_of = _matched(absent, lost)
        rest = _without(lost, self.lost_of.values())
        self.lost_others = [each for each in rest if each.slave_ack_offset is not None]
        self.refused = [each for each in rest if each.slave_ack_offset is None]


def _matched(slaves: list[Broker], connections: list[C]) -> dict[Broker, C]:
    """By id; for slaves of Apache, which do not say it, by host, if there is only one of each there."""
    by_id = {connection.broker_id: connection for connection in connections if connection.broker_id is not None}
    matched = {slave: by_id[slave.broker_id] for slave in slaves if slave.broker_id in by_id}
    silent = [connection for connection in connections if connection.broker_id is None]
    left = [slave for slave in slaves if slave not in matched]
    hosts = Counter(_host(connection.addr) for connection in silent)
    of_host = Counter(_host(slave.address) for slave in left)
    by_host = {_host(connection.addr): connection for connection in silent}
    for slave in left:
        host = _host(slave.address)
        if hosts[host] == of_host[host] == 1:
            matched[slave] = by_host[host]
    return matched


def _without(connections: Iterable[C], some: Iterable[C]) -> list[C]:
    known = {id(connection) for connection in some}
    return [connection for connection in connections if id(connection) not in known]


def _host(address: str) -> str:
    return address.rpartition(":")[0] or address


def _member(broker: Broker, facts: _Facts) -> Replica:
    end, behind = facts.number("commitLogMaxOffset"), facts.number("dispatchBehindBytes")
    return Replica(
        cluster=broker.cluster,
        name=broker.name,
        broker_id=broker.broker_id,
        address=broker.address,
        role=facts.role,
        failure=facts.failure,
        begin=facts.number("commitLogMinOffset"),
        end=end,
        dispatched=None if end is None or behind is None else max(end - behind, 0),
        version=facts.runtime.get("brokerVersionDesc"),
        settings=facts.settings,
        unknown=facts.unknown,
    )


def _slave(broker: Broker, facts: _Facts, view: _MasterView, master_end: int | None) -> Replica:
    """The slave's own word about its connection counts more than the master's, which may not know yet that it broke."""
    base, own = _member(broker, facts), facts.following
    connection, lost = view.of.get(broker), view.lost_of.get(broker)
    reported = next((each.slave_ack_offset for each in (connection, lost) if each is not None), None)
    end = reported if base.end is None else base.end
    behind = _distance(end, master_end) if connection is None else _not_negative(connection.diff)
    if own is not None:
        is_connected: bool | None = own.connected_timestamp is not None
    else:
        is_connected = True if connection is not None else (False if view.is_known else None)
    behind_ms = [each.behind_millis for each in (connection, lost, own) if each is not None]
    return replace(
        base,
        role=base.role or "SLAVE",
        is_connected=is_connected,
        reason=None if is_connected else _reason(own, lost, base, master_end),
        end=end,
        dispatched=base.dispatched if own is None or own.dispatched_offset is None else own.dispatched_offset,
        behind_bytes=behind,
        behind_s=0.0 if behind == 0 else _seconds(next((ms for ms in behind_ms if ms is not None), None)),
        connected_ms=_connected_ms(connection, own) if is_connected else None,
        lost_ms=None if is_connected or lost is None else lost.lost_timestamp,
        metadata_ms=own and own.metadata_timestamp,
        metadata_failure=own and own.metadata_failure,
    )


def _connected_ms(connection: SlaveConnection | None, own: MasterConnection | None) -> int | None:
    times = [each.connected_timestamp for each in (connection, own) if each is not None]
    return next((ms for ms in times if ms is not None), None)


def _distance(end: int | None, master_end: int | None) -> int | None:
    return None if end is None or master_end is None else _not_negative(master_end - end)


def _not_negative(number: int) -> int | None:
    """A slave that is ahead is not behind by nothing: its master has lost something, or one of them says nonsense."""
    return number if number >= 0 else None


def _reason(own: MasterConnection | None, lost: LostConnection | None, base: Replica, end: int | None) -> str | None:
    if own is not None and own.reason:
        return own.reason
    if base.failure is not None:
        return f"it does not respond: {base.failure}"
    if lost is not None:
        return lost.reason or "it closed the connection"
    if base.end is not None and end is not None and base.end > end:
        return f"its log ends {base.end - end} bytes beyond the master's"
    return None


def _connected_slave(cluster: str, name: str, connection: SlaveConnection) -> Replica:
    return Replica(
        cluster=cluster,
        name=name,
        broker_id=connection.broker_id,
        address=connection.addr,
        is_registered=False,
        role="SLAVE",
        is_connected=True,
        end=connection.slave_ack_offset,
        dispatched=connection.dispatched_offset,
        behind_bytes=_not_negative(connection.diff),
        behind_s=0.0 if connection.diff == 0 else _seconds(connection.behind_millis),
        connected_ms=connection.connected_timestamp,
        unknown=("what it says itself: it is not registered at the nameserver",),
    )


def _lost_slave(cluster: str, name: str, lost: LostConnection, master_end: int | None) -> Replica:
    end = lost.slave_ack_offset
    behind = _distance(end, master_end)
    return Replica(
        cluster=cluster,
        name=name,
        broker_id=lost.broker_id,
        address=lost.addr,
        is_registered=False,
        role="SLAVE",
        is_connected=False,
        reason=lost.reason or "it closed the connection, and is not registered any more",
        end=end,
        behind_bytes=behind,
        behind_s=0.0 if behind == 0 else _seconds(lost.behind_millis),
        lost_ms=lost.lost_timestamp,
    )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None or milliseconds < 0 else milliseconds / 1000
