"""What the members of a group have acknowledged to their master: values, without clock and sockets.

An acknowledgement belongs to a member, its incarnation, an epoch and a connection. It counts while that connection is
the newest of its member and open, and is never more than the master's own end. `confirmed` is what all of a set have;
classic pairs, where one slave is enough, count in progress.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ariane.replication.group.rules import ALL_RULES, Rules

CAUGHT_UP_REPORTS = 2
"""In a row: one may be luck."""


@dataclass(slots=True)
class MemberAcks:
    """A member's newest connection."""

    link: int
    member: int
    incarnation: str
    end: int = -1
    """-1 before the first report."""
    heard_at: float = 0.0
    caught_up_at: float = 0.0
    """When it last had everything that was in the log at the report before."""
    caught_up_reports: int = 0
    log_end_then: int = field(default=0)


class GroupAcks:
    """Of one epoch of a master."""

    def __init__(self, epoch: int, rules: Rules = ALL_RULES) -> None:
        self._epoch = epoch
        self._rules = rules
        self._by_link: dict[int, MemberAcks] = {}
        self._by_member: dict[int, MemberAcks] = {}

    def welcome(self, link: int, member: int, incarnation: str, now: float, log_end: int) -> int | None:
        """A slave introduced itself and gets the stream. The connection that it replaces, which has to be closed."""
        old = self._by_member.get(member)
        if old is not None and self._rules.ack_of_connection:
            self._by_link.pop(old.link, None)
        acks = MemberAcks(link, member, incarnation, heard_at=now, caught_up_at=now, log_end_then=log_end)
        if old is not None and not self._rules.ack_of_connection:
            acks.end = old.end
            self._by_link[old.link] = acks
        self._by_link[link] = self._by_member[member] = acks
        return None if old is None else old.link

    def report(self, link: int, epoch: int, end: int, now: float, log_end: int, confirmed: int) -> bool | None:
        """Whether it counts; None when its connection has to be closed."""
        acks = self._by_link.get(link)
        if acks is None:
            return False
        if epoch != self._epoch and self._rules.ack_of_epoch:
            return None
        if end > log_end and self._rules.ack_bounded:
            return None
        acks.heard_at = now
        acks.end = max(end, acks.end)
        if acks.end >= acks.log_end_then:
            acks.caught_up_at = now
        acks.log_end_then = log_end
        acks.caught_up_reports = acks.caught_up_reports + 1 if acks.end >= confirmed else 0
        return True

    def drop(self, link: int) -> MemberAcks | None:
        """Its connection is closed. Whose newest it was."""
        if not self._rules.ack_of_connection:
            return None
        acks = self._by_link.pop(link, None)
        if acks is not None and self._by_member.get(acks.member) is acks:
            del self._by_member[acks.member]
            return acks
        return None

    def of(self, member: int, incarnation: str) -> MemberAcks | None:
        acks = self._by_member.get(member)
        if acks is None or (acks.incarnation != incarnation and self._rules.incarnations):
            return None
        return acks

    def all(self) -> list[MemberAcks]:
        return list(self._by_member.values())

    def confirmed(self, own_end: int, needed: Iterable[tuple[int, str]]) -> int | None:
        """What this log and all of these have; None while one of them has said nothing."""
        least = own_end
        for member, incarnation in needed:
            acks = self.of(member, incarnation)
            if acks is None or acks.end < 0:
                return None
            least = min(least, acks.end)
        return least
