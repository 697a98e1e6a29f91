"""Who is connected, as producer or consumer of which group.

A client is whatever sends heartbeats over a connection. It is a member of a group until it says otherwise, until its
connection closes, or until it has been silent for two minutes. One connection serves many groups of one process.

Everything is kept by connection, as in Apache's broker: a client id may come twice, while the connection that a
restarted client left behind is not yet known to be dead.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from ariane.broker.groups.configs import (
    Disagreement,
    SubscriptionSet,
    consumer_group_problem,
    differing_topics,
    subscription_set_of,
)
from ariane.broker.settings import BrokerSettings
from ariane.clock import Clock
from ariane.errors import RequestFailed
from ariane.lifecycle import background, every
from ariane.model.group import ConsumeFromWhere, ConsumeType, GroupConfig, MessageModel, Subscription
from ariane.model.ids import group_name_problem
from ariane.rpc.caller import tell_peer
from ariane.transport.connection import Connection
from ariane.wire.codes import Language, ResponseCode
from ariane.wire.requests.clients import ConsumerData, HeartbeatData, NotifyConsumerIdsChanged

# --- consumer_group ---
#
# One consumer group as its members' heartbeats show it. Pure: no clock, no network.


@dataclass(slots=True, frozen=True, eq=False)
class Member:
    """A client in a group, as its newest heartbeat shows it."""

    client_id: str
    connection: Connection
    language: Language
    version: int
    last_seen: float
    """In the clock's monotonic seconds."""
    subscription_set: SubscriptionSet = frozenset()


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    name: str
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    """By topic. Apache's rule: the topics are those of the newest heartbeat, and of each the newest version."""
    members: dict[Connection, Member] = field(default_factory=dict)
    _by_subscription_set: dict[SubscriptionSet, dict[Connection, Member]] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        """Whether all members subscribe alike."""
        return len(self._by_subscription_set) <= 1

    def client_ids(self) -> list[str]:
        """Each once: members share out the queues by this list, and the share of a dead double would be nobody's."""
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    def find(self, client_id: str) -> Member | None:
        """The member of this id; of several, the open connection that was heard last."""
        found = [member for member in self.members.values() if member.client_id == client_id]
        return max(found, key=lambda member: (member.connection.is_open, member.last_seen), default=None)

    def subscribe(self, wanted: Iterable[Subscription]) -> bool:
        """Takes over a member's subscription; whether the set of topics changed."""
        newest = {one.topic: one for one in wanted}
        changed = newest.keys() != self.subscriptions.keys()
        for topic, old in self.subscriptions.items():
            if topic in newest and newest[topic].sub_version <= old.sub_version:
                newest[topic] = old
        self.subscriptions = newest
        return changed

    def join(self, member: Member) -> Disagreement | None:
        """Adds a member or renews it; what it disagrees about with another, if that is news."""
        old = self.members.get(member.connection)
        self.members[member.connection] = member
        if old is not None and old.subscription_set == member.subscription_set:
            self._by_subscription_set[old.subscription_set][member.connection] = member
            return None
        self._remove_from_subscription_sets(old)
        other = self._member_with_other_subscriptions(member)
        self._by_subscription_set.setdefault(member.subscription_set, {})[member.connection] = member
        if other is None:
            return None
        return Disagreement(
            self.name,
            member.client_id,
            other.client_id,
            differing_topics(member.subscription_set, other.subscription_set),
        )

    def leave(self, connection: Connection) -> bool:
        """Whether it was a member."""
        member = self.members.pop(connection, None)
        self._remove_from_subscription_sets(member)
        return member is not None

    def _member_with_other_subscriptions(self, member: Member) -> Member | None:
        """One is enough to warn of, so a start of a thousand members does not compare each with each."""
        for subscription_set, alike in self._by_subscription_set.items():
            if subscription_set != member.subscription_set:
                return next(iter(alike.values()))
        return None

    def _remove_from_subscription_sets(self, member: Member | None) -> None:
        if member is not None:
            alike = self._by_subscription_set[member.subscription_set]
            del alike[member.connection]
            if not alike:
                del self._by_subscription_set[member.subscription_set]


# --- client_limits ---
#
# What strangers may make a broker remember: the bounds of a heartbeat, checked before anything is kept.

_CLIENT_ID_LENGTH_MAX = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    members_max: int = 10_000
    """Of one group. Every change is told to each of them."""
    groups_max: int = 1_000
    """Of one connection, as producer and as consumer together."""
    topics_max: int = 1_000
    """Of one member's subscription."""


def heartbeat_problem(heartbeat: HeartbeatData, groups: Set[tuple[str, str]], limits: ClientLimits) -> str | None:
    """Why a heartbeat is not taken, None when it is. `groups`: role and name of all that the connection would be in."""
    if not 0 < len(heartbeat.client_id) <= _CLIENT_ID_LENGTH_MAX:
        return f"clientID has {len(heartbeat.client_id)} characters: 1 to {_CLIENT_ID_LENGTH_MAX} are taken"
    if len(groups) > limits.groups_max:
        return (
            f"one connection takes part in at most {limits.groups_max} groups, this would be {len(groups)}: "
            "spread them over several client instances"
        )
    for role, name in groups:
        problem = group_name_problem(name) if role == "producer" else consumer_group_problem(name)
        if problem is not None:
            return problem
    for consumer in heartbeat.consumer_data_set:
        if len(consumer.subscription_data_set) > limits.topics_max:
            return (
                f"group {consumer.group_name} subscribes to {len(consumer.subscription_data_set)} topics, at most "
                f"{limits.topics_max} are taken: split the group"
            )
    return None


# ---

log = logging.getLogger(__name__)

HEARTBEAT_TIMEOUT_S = 120.0  # four heartbeats
SCAN_INTERVAL_S = 10.0

_NO_MEMBERS: Mapping[Connection, Member] = {}


@dataclass(slots=True)
class _ClientEntry:
    """What one connection takes part in."""

    member: Member
    producing: set[str] = field(default_factory=set)
    consuming: set[str] = field(default_factory=set)


class Clients:
    """Changes on the event loop only. Time is an argument: seconds that never go back."""

    def __init__(
        self,
        on_members_changed: Callable[[ConsumerGroup], None] = lambda group: None,
        on_disagreement: Callable[[Disagreement], None] = lambda found: None,
        limits: ClientLimits | None = None,
    ) -> None:
        """`on_members_changed` is called when members or topics of a group have changed, with those who are left."""
        self._on_members_changed = on_members_changed
        self._on_disagreement = on_disagreement
        self._limits = limits or ClientLimits()
        self._groups: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Connection, Member]] = {}
        self._entries: dict[Connection, _ClientEntry] = {}
        self._by_client_id: dict[str, dict[Connection, Member]] = {}
        self._round_robin: dict[str, int] = {}
        self.disagreements = 0
        """How often a member was found to subscribe unlike another of its group."""

    # --- looking up -------------------------------------------------------------------------------------------------

    def group(self, name: str) -> ConsumerGroup | None:
        return self._groups.get(name)

    def groups(self) -> Mapping[str, ConsumerGroup]:
        return self._groups

    def groups_of_topic(self, topic: str) -> set[str]:
        """Groups whose members are here and subscribe to `topic`."""
        return {name for name, group in self._groups.items() if topic in group.subscriptions}

    def producers(self, group: str) -> list[Member]:
        return list(self._producers.get(group, _NO_MEMBERS).values())

    def producer_groups(self) -> list[str]:
        return list(self._producers)

    def find(self, client_id: str) -> Member | None:
        """A client by its id, producer or consumer; of several connections, the open one that was heard last."""
        found = self._by_client_id.get(client_id, _NO_MEMBERS).values()
        return max((one for one in found if one.connection.is_open), key=lambda one: one.last_seen, default=None)

    def pick_producer(self, group: str) -> Member | None:
        """One of the group's producers, each in turn: any of them can tell the outcome of a transaction."""
        alive = [member for member in self.producers(group) if member.connection.is_open]
        if not alive:
            return None
        turn = self._round_robin[group] = self._round_robin.get(group, -1) + 1
        return alive[turn % len(alive)]

    # --- heartbeats -------------------------------------------------------------------------------------------------

    def heartbeat(
        self, connection: Connection, heartbeat: HeartbeatData, language: Language, version: int, now: float
    ) -> None:
        """A client says that it lives, and what it takes part in. RequestFailed, with nothing changed, at a limit."""
        if not connection.is_open:  # closed while its last bytes were read: nobody would remove it again
            return
        self._check(connection, heartbeat)
        member = Member(heartbeat.client_id, connection, language, version, now)
        entry = self._entry(member)
        for producer in heartbeat.producer_data_set:
            entry.producing.add(producer.group_name)
            self._producers.setdefault(producer.group_name, {})[connection] = member
        for consumer in heartbeat.consumer_data_set:
            entry.consuming.add(consumer.group_name)
            self._consume(
                consumer, replace(member, subscription_set=subscription_set_of(consumer.subscription_data_set))
            )

    def _consume(self, data: ConsumerData, member: Member) -> None:
        group = self._groups.setdefault(data.group_name, ConsumerGroup(data.group_name))
        group.consume_type, group.message_model = data.consume_type, data.message_model
        group.consume_from_where = data.consume_from_where
        before = group.members.get(member.connection)
        disagreement = group.join(member)
        is_new = before is None or before.client_id != member.client_id
        if group.subscribe(data.subscription_data_set) or is_new:
            self._on_members_changed(group)
        if disagreement is not None:
            self._tell(disagreement)

    def _tell(self, found: Disagreement) -> None:
        self.disagreements += 1
        log.warning(
            "members of a group subscribe differently: the newest heartbeat wins and others miss messages; give them "
            "one subscription, or groups of their own",
            extra={
                "group": found.group,
                "topics": ", ".join(found.topics),
                "client": found.client_id,
                "other": found.other_client_id,
            },
        )
        self._on_disagreement(found)

    def _check(self, connection: Connection, heartbeat: HeartbeatData) -> None:
        joining = {("producer", one.group_name) for one in heartbeat.producer_data_set}
        joining |= {("consumer", one.group_name) for one in heartbeat.consumer_data_set}
        entry = self._entries.get(connection)
        if entry is not None:
            joining |= {("producer", name) for name in entry.producing}
            joining |= {("consumer", name) for name in entry.consuming}
        problem = heartbeat_problem(heartbeat, joining, self._limits)
        for role, name in joining:
            problem = problem or self._member_limit_problem(connection, role, name)
        if problem is not None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, problem)

    def _member_limit_problem(self, connection: Connection, role: str, name: str) -> str | None:
        group = self._groups.get(name)
        consumers = _NO_MEMBERS if group is None else group.members
        members = consumers if role == "consumer" else self._producers.get(name, _NO_MEMBERS)
        if connection in members or len(members) < self._limits.members_max:
            return None
        return f"group {name} has {len(members)} {role}s already, at most {self._limits.members_max} are taken"

    def _entry(self, member: Member) -> _ClientEntry:
        entry = self._entries.get(member.connection)
        if entry is None:
            entry = self._entries[member.connection] = _ClientEntry(member)
            member.connection.on_close(partial(self.forget, member.connection))
        elif entry.member.client_id != member.client_id:
            self._remove_client_id(entry.member)
        entry.member = member
        self._by_client_id.setdefault(member.client_id, {})[member.connection] = member
        return entry

    # --- leaving ----------------------------------------------------------------------------------------------------

    def unregister(
        self, connection: Connection, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        """A client leaves a group; its connection may live on for others."""
        if producer_group:
            self._leave_producers(connection, producer_group)
        if consumer_group:
            self._leave_consumers(connection, consumer_group)

    def forget(self, connection: Connection) -> None:
        """The connection is gone, and with it everything that went over it."""
        entry = self._entries.get(connection)
        if entry is None:
            return
        for name in tuple(entry.producing):
            self._leave_producers(connection, name)
        for name in tuple(entry.consuming):
            self._leave_consumers(connection, name)
        self._remove_client_id(entry.member)
        del self._entries[connection]

    def expire(self, now: float) -> None:
        """Removes who has been silent for too long. A connection of which nothing is left is closed, as Apache does."""
        since = now - HEARTBEAT_TIMEOUT_S
        for connection, entry in tuple(self._entries.items()):
            for name in [name for name in entry.producing if self._producers[name][connection].last_seen < since]:
                self._leave_producers(connection, name)
            for name in [name for name in entry.consuming if self._groups[name].members[connection].last_seen < since]:
                self._leave_consumers(connection, name)
            if entry.member.last_seen < since:
                log.warning("client removed: no heartbeat for two minutes", extra=_facts(entry.member))
                self.forget(connection)
                connection.close()

    def _leave_producers(self, connection: Connection, name: str) -> None:
        if connection in self._entries:
            self._entries[connection].producing.discard(name)
        members = self._producers.get(name)
        if members is not None and members.pop(connection, None) is not None and not members:
            del self._producers[name]
            self._round_robin.pop(name, None)

    def _leave_consumers(self, connection: Connection, name: str) -> None:
        if connection in self._entries:
            self._entries[connection].consuming.discard(name)
        group = self._groups.get(name)
        if group is None or not group.leave(connection):
            return
        if not group.members:
            del self._groups[name]
        self._on_members_changed(group)

    def _remove_client_id(self, member: Member) -> None:
        alike = self._by_client_id[member.client_id]
        del alike[member.connection]
        if not alike:
            del self._by_client_id[member.client_id]

    # --- life -------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def expiry_scan(self, clock: Clock) -> AsyncIterator[None]:
        """Looks for silent clients while the body runs."""

        def scan() -> None:
            self.expire(clock.monotonic())

        async with background(partial(every, clock, SCAN_INTERVAL_S, scan, SCAN_INTERVAL_S)):
            yield


def _facts(member: Member) -> dict[str, object]:
    return {"client": member.client_id, "peer": member.connection.peer}


# --- member_notices ---
#
# Tells the members of a group that it has changed, so that they share out the queues anew at once.
#
# Without the notice they would find out by themselves, at their next rebalance up to 20 s later.


class RebalanceNotifier:
    """Give `notices.members_changed` to `Clients`. Both the broker's switch and the group's must be on."""

    def __init__(self, settings: BrokerSettings, config_of: Callable[[str], GroupConfig | None]) -> None:
        self._settings = settings
        self._config_of = config_of

    def members_changed(self, group: ConsumerGroup) -> None:
        if self._settings.notify_ids_changed and self._is_enabled_for(group.name):
            notice = NotifyConsumerIdsChanged(consumer_group=group.name)
            for connection in group.members:
                tell_peer(connection, notice)

    def _is_enabled_for(self, name: str) -> bool:
        config = self._config_of(name)
        return config is None or config.notify_consumer_ids_changed_enable
