"""One consumer group as its members' heartbeats show it. Pure: no clock, no network."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ariane.broker.subscription_check import Disagreement, Wants, differing_topics
from ariane.model.group import ConsumeFromWhere, ConsumeType, MessageModel, Subscription
from ariane.transport.connection import Connection
from ariane.wire.codes import Language


@dataclass(slots=True, frozen=True, eq=False)
class Member:
    """A client in a group, as its newest heartbeat shows it."""

    client_id: str
    connection: Connection
    language: Language
    version: int
    last_seen: float
    """In the clock's monotonic seconds."""
    wants: Wants = frozenset()


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    name: str
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    """By topic. Apache's rule: the topics are those of the newest heartbeat, and of each the newest version."""
    members: dict[Connection, Member] = field(default_factory=dict)
    _wishes: dict[Wants, dict[Connection, Member]] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        """Whether all members subscribe alike."""
        return len(self._wishes) <= 1

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
        if old is not None and old.wants == member.wants:
            self._wishes[old.wants][member.connection] = member
            return None
        self._forget_wish(old)
        other = self._someone_unlike(member)
        self._wishes.setdefault(member.wants, {})[member.connection] = member
        if other is None:
            return None
        return Disagreement(self.name, member.client_id, other.client_id, differing_topics(member.wants, other.wants))

    def leave(self, connection: Connection) -> bool:
        """Whether it was a member."""
        member = self.members.pop(connection, None)
        self._forget_wish(member)
        return member is not None

    def _someone_unlike(self, member: Member) -> Member | None:
        """One is enough to warn of, so a start of a thousand members does not compare each with each."""
        for wants, alike in self._wishes.items():
            if wants != member.wants:
                return next(iter(alike.values()))
        return None

    def _forget_wish(self, member: Member | None) -> None:
        if member is not None:
            alike = self._wishes[member.wants]
            del alike[member.connection]
            if not alike:
                del self._wishes[member.wants]
