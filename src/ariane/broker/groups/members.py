"""Connected clients and the members of producer and consumer groups, from heartbeats.

A client is a connection that sends heartbeats. It is a member of its groups until it unregisters, its connection
closes, or it has sent no heartbeat for two minutes. One connection serves all groups of a process.

The tables are keyed by connection, as in Apache's broker: a client id may occur twice while the broker has not noticed
that the old connection of a restarted client is dead. Limits on heartbeat contents are enforced before any client state
is stored. `RebalanceNotifier` notifies consumers when the members of their group have changed.
"""

import asyncio
import logging
import sys
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
from ariane.rpc.caller import peer_notice
from ariane.transport.connection import Connection
from ariane.wire.codes import Language, ResponseCode
from ariane.wire.requests.clients import ConsumerData, HeartbeatData, NotifyConsumerIdsChanged

# --- one consumer group ---


@dataclass(slots=True, frozen=True, eq=False)
class Member:
    """A client in a group, as of its newest heartbeat."""

    client_id: str
    connection: Connection
    language: Language
    version: int
    last_seen: float
    """Monotonic time in seconds."""
    subscription_set: SubscriptionSet = frozenset()


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """A consumer group with connected members."""

    name: str
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    """By topic. Apache's rule: the topics of the newest heartbeat, each with its newest version."""
    members: dict[Connection, Member] = field(default_factory=dict)
    _by_subscription_set: dict[SubscriptionSet, dict[Connection, Member]] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        """Whether all members have the same subscriptions."""
        return len(self._by_subscription_set) <= 1

    def client_ids(self) -> list[str]:
        """Without duplicates: members divide the queues by this list, and a dead duplicate would get queues too."""
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    def find(self, client_id: str) -> Member | None:
        """The member with this id; of several, the open connection with the newest heartbeat."""
        matches = [member for member in self.members.values() if member.client_id == client_id]
        return max(matches, key=lambda member: (member.connection.is_open, member.last_seen), default=None)

    def subscribe(self, subscriptions: Iterable[Subscription]) -> bool:
        """Replaces the group's subscriptions by a member's; returns whether the set of topics changed."""
        newest = {subscription.topic: subscription for subscription in subscriptions}
        changed = newest.keys() != self.subscriptions.keys()
        for topic, old in self.subscriptions.items():
            if topic in newest and newest[topic].sub_version <= old.sub_version:
                newest[topic] = old
        self.subscriptions = newest
        return changed

    def join(self, member: Member) -> Disagreement | None:
        """Adds or renews a member; returns a new disagreement with another member, if any."""
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
        """One is enough for a warning, so that a thousand starting members are not compared pairwise."""
        for subscription_set, same in self._by_subscription_set.items():
            if subscription_set != member.subscription_set:
                return next(iter(same.values()))
        return None

    def _remove_from_subscription_sets(self, member: Member | None) -> None:
        if member is not None:
            same = self._by_subscription_set[member.subscription_set]
            del same[member.connection]
            if not same:
                del self._by_subscription_set[member.subscription_set]


# --- limits ---

_CLIENT_ID_LENGTH_MAX = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Limits on heartbeat contents."""

    members_max: int = 10_000
    """Of one group: each of them is notified of every change."""
    groups_max: int = 1_000
    """Of one connection, as producer and as consumer together."""
    topics_max: int = 1_000
    """Subscribed by one member."""
    subscription_bytes_max: int = 4 * 1024 * 1024
    """Of one connection in all its groups: they stay in memory while it is connected."""


def client_id_problem(client_id: str) -> str | None:
    """Why a client id is rejected, or None."""
    if 0 < len(client_id) <= _CLIENT_ID_LENGTH_MAX:
        return None
    return f"clientID has {len(client_id)} characters, allowed are 1 to {_CLIENT_ID_LENGTH_MAX}"


def heartbeat_problem(heartbeat: HeartbeatData, groups: Set[tuple[str, str]], limits: ClientLimits) -> str | None:
    """Why a heartbeat is rejected, or None. `groups`: role and name of all groups the connection would be in."""
    if (problem := client_id_problem(heartbeat.client_id)) is not None:
        return problem
    if len(groups) > limits.groups_max:
        return (
            f"one connection can be in at most {limits.groups_max} groups, this would be {len(groups)}: "
            "use several client instances"
        )
    for role, name in groups:
        problem = group_name_problem(name) if role == "producer" else consumer_group_problem(name)
        if problem is not None:
            return problem
    for consumer in heartbeat.consumer_data_set:
        if len(consumer.subscription_data_set) > limits.topics_max:
            return (
                f"group {consumer.group_name} subscribes to {len(consumer.subscription_data_set)} topics, at most "
                f"{limits.topics_max} are allowed: split the group"
            )
    return None


_SUBSCRIPTION_BYTES = 256
_TAG_BYTES = 128


def subscription_bytes(consumer: ConsumerData) -> int:
    """About how much memory the subscriptions of one member take."""
    return sum(
        _SUBSCRIPTION_BYTES
        + sys.getsizeof(subscription.sub_string)
        + _TAG_BYTES * (subscription.sub_string.count("||") + len(subscription.tags_set) + len(subscription.code_set))
        for subscription in consumer.subscription_data_set
    )


# --- all clients ---

log = logging.getLogger(__name__)

HEARTBEAT_TIMEOUT_S = 120.0  # four heartbeat intervals
SCAN_INTERVAL_S = 10.0

_NO_MEMBERS: Mapping[Connection, Member] = {}


@dataclass(slots=True)
class _ClientEntry:
    """A client connection and its groups."""

    member: Member
    producing: set[str] = field(default_factory=set)
    consuming: set[str] = field(default_factory=set)
    subscription_bytes: dict[str, int] = field(default_factory=dict)
    """By group that it consumes in."""


class Clients:
    """Use on the event loop only. `now` is monotonic time in seconds."""

    def __init__(
        self,
        on_members_changed: Callable[[ConsumerGroup], None] = lambda group: None,
        on_disagreement: Callable[[Disagreement], None] = lambda disagreement: None,
        limits: ClientLimits | None = None,
    ) -> None:
        """`on_members_changed` is called with the group after its members or topics have changed."""
        self._on_members_changed = on_members_changed
        self._on_disagreement = on_disagreement
        self._limits = limits or ClientLimits()
        self._groups: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Connection, Member]] = {}
        self._entries: dict[Connection, _ClientEntry] = {}
        self._by_client_id: dict[str, dict[Connection, Member]] = {}
        self._round_robin: dict[str, int] = {}
        self.disagreements = 0
        """How often a member was found with other subscriptions than another member of its group."""

    # --- looking up -------------------------------------------------------------------------------------------------

    def group(self, name: str) -> ConsumerGroup | None:
        return self._groups.get(name)

    def groups(self) -> Mapping[str, ConsumerGroup]:
        return self._groups

    def groups_of_topic(self, topic: str) -> set[str]:
        """Groups with connected members that subscribe to `topic`."""
        return {name for name, group in self._groups.items() if topic in group.subscriptions}

    def producers(self, group: str) -> list[Member]:
        return list(self._producers.get(group, _NO_MEMBERS).values())

    def producer_groups(self) -> list[str]:
        return list(self._producers)

    def find(self, client_id: str) -> Member | None:
        """A producer or consumer by its client id; of several connections, the open one with the newest heartbeat."""
        members = self._by_client_id.get(client_id, _NO_MEMBERS).values()
        return max(
            (member for member in members if member.connection.is_open),
            key=lambda member: member.last_seen,
            default=None,
        )

    def pick_producer(self, group: str, is_allowed: Callable[[Connection], bool] = lambda _: True) -> Member | None:
        """One of the group's producers that are allowed, round robin: any of them can resolve a transaction."""
        alive = [
            member for member in self.producers(group) if member.connection.is_open and is_allowed(member.connection)
        ]
        if not alive:
            return None
        turn = self._round_robin[group] = self._round_robin.get(group, -1) + 1
        return alive[turn % len(alive)]

    # --- heartbeats -------------------------------------------------------------------------------------------------

    def heartbeat(
        self, connection: Connection, heartbeat: HeartbeatData, language: Language, version: int, now: float
    ) -> None:
        """Registers or renews a client and its groups. RequestFailed, with nothing changed, if a limit is exceeded."""
        if not connection.is_open:  # closed while its last bytes were read: it would never be removed
            return
        self._check(connection, heartbeat)
        member = Member(heartbeat.client_id, connection, language, version, now)
        entry = self._entry(member)
        for producer in heartbeat.producer_data_set:
            entry.producing.add(producer.group_name)
            self._producers.setdefault(producer.group_name, {})[connection] = member
        for consumer in heartbeat.consumer_data_set:
            entry.consuming.add(consumer.group_name)
            entry.subscription_bytes[consumer.group_name] = subscription_bytes(consumer)
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
            self._report(disagreement)

    def _report(self, disagreement: Disagreement) -> None:
        self.disagreements += 1
        log.warning(
            "members of a group have different subscriptions: the newest heartbeat wins and others miss messages; use "
            "the same subscription, or separate groups",
            extra={
                "group": disagreement.group,
                "topics": ", ".join(disagreement.topics),
                "client": disagreement.client_id,
                "other": disagreement.other_client_id,
            },
        )
        self._on_disagreement(disagreement)

    def _check(self, connection: Connection, heartbeat: HeartbeatData) -> None:
        joining = {("producer", producer.group_name) for producer in heartbeat.producer_data_set}
        joining |= {("consumer", consumer.group_name) for consumer in heartbeat.consumer_data_set}
        entry = self._entries.get(connection)
        if entry is not None:
            joining |= {("producer", name) for name in entry.producing}
            joining |= {("consumer", name) for name in entry.consuming}
        problem = heartbeat_problem(heartbeat, joining, self._limits) or self._size_problem(heartbeat, entry)
        for role, name in joining:
            problem = problem or self._member_limit_problem(connection, role, name)
        if problem is not None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, problem)

    def _size_problem(self, heartbeat: HeartbeatData, entry: _ClientEntry | None) -> str | None:
        sizes = {} if entry is None else dict(entry.subscription_bytes)
        sizes |= {consumer.group_name: subscription_bytes(consumer) for consumer in heartbeat.consumer_data_set}
        size, size_max = sum(sizes.values()), self._limits.subscription_bytes_max
        if size <= size_max:
            return None
        return (
            f"the subscriptions of this connection would take {size} bytes, at most {size_max} are allowed: use "
            "shorter expressions, or several client instances"
        )

    def _member_limit_problem(self, connection: Connection, role: str, name: str) -> str | None:
        group = self._groups.get(name)
        consumers = _NO_MEMBERS if group is None else group.members
        members = consumers if role == "consumer" else self._producers.get(name, _NO_MEMBERS)
        if connection in members or len(members) < self._limits.members_max:
            return None
        return f"group {name} has {len(members)} {role}s, at most {self._limits.members_max} are allowed"

    def _entry(self, member: Member) -> _ClientEntry:
        entry = self._entries.get(member.connection)
        if entry is None:
            entry = self._entries[member.connection] = _ClientEntry(member)
            member.connection.on_close(partial(self.remove, member.connection))
        elif entry.member.client_id != member.client_id:
            self._remove_client_id(entry.member)
        entry.member = member
        self._by_client_id.setdefault(member.client_id, {})[member.connection] = member
        return entry

    # --- leaving ----------------------------------------------------------------------------------------------------

    def unregister(
        self, connection: Connection, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        """Removes a client from a group; its connection may stay in others."""
        if producer_group:
            self._leave_producers(connection, producer_group)
        if consumer_group:
            self._leave_consumers(connection, consumer_group)

    def remove(self, connection: Connection) -> None:
        """Removes all state of a closed connection."""
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
        """Removes clients without a recent heartbeat. A connection without any group is closed, as in Apache."""
        since = now - HEARTBEAT_TIMEOUT_S
        for connection, entry in tuple(self._entries.items()):
            for name in [name for name in entry.producing if self._producers[name][connection].last_seen < since]:
                self._leave_producers(connection, name)
            for name in [name for name in entry.consuming if self._groups[name].members[connection].last_seen < since]:
                self._leave_consumers(connection, name)
            if entry.member.last_seen < since:
                log.warning("client removed: no heartbeat for two minutes", extra=_log_fields(entry.member))
                self.remove(connection)
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
            self._entries[connection].subscription_bytes.pop(name, None)
        group = self._groups.get(name)
        if group is None or not group.leave(connection):
            return
        if not group.members:
            del self._groups[name]
        self._on_members_changed(group)

    def _remove_client_id(self, member: Member) -> None:
        same = self._by_client_id[member.client_id]
        del same[member.connection]
        if not same:
            del self._by_client_id[member.client_id]

    # --- background job ---------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def expiry_scan(self, clock: Clock) -> AsyncIterator[None]:
        """Removes expired clients periodically while the body runs."""

        def scan() -> None:
            self.expire(clock.monotonic())

        async with background(partial(every, clock, SCAN_INTERVAL_S, scan, SCAN_INTERVAL_S)):
            yield


def _log_fields(member: Member) -> dict[str, object]:
    return {"client": member.client_id, "peer": member.connection.peer}


# --- notification of members ---

_NOTICES_PER_ITERATION = 50  # about a millisecond


class RebalanceNotifier:
    """Notifies the members of a group of a change, so that they rebalance immediately and not up to 20 s later.

    Pass `members_changed` to `Clients`. Enabled if both the broker's and the group's setting are on. A thousand groups
    of a thousand members may change at once: the notices leave over many event-loop iterations, and changes of a group
    that has not been notified yet are one notice.
    """

    def __init__(self, settings: BrokerSettings, config_of: Callable[[str], GroupConfig | None]) -> None:
        self._settings = settings
        self._config_of = config_of
        self._changed: dict[str, ConsumerGroup] = {}
        self._frame = b""
        self._left: list[Connection] = []

    def members_changed(self, group: ConsumerGroup) -> None:
        if self._settings.notify_ids_changed and self._is_enabled_for(group.name):
            if not self._changed and not self._left:
                asyncio.get_running_loop().call_soon(self._notify_some)
            self._changed[group.name] = group

    def _notify_some(self) -> None:
        for _ in range(_NOTICES_PER_ITERATION):
            while not self._left:
                if not self._changed:
                    return
                group = self._changed.pop(next(iter(self._changed)))
                self._frame = peer_notice(NotifyConsumerIdsChanged(consumer_group=group.name))
                self._left = list(group.members)
            connection = self._left.pop()
            if connection.is_writable:  # a member that reads nothing would collect notices; it asks by itself
                connection.write(self._frame)
        asyncio.get_running_loop().call_soon(self._notify_some)

    def _is_enabled_for(self, name: str) -> bool:
        config = self._config_of(name)
        return config is None or config.notify_consumer_ids_changed_enable
