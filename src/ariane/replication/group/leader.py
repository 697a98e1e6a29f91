"""What a master of a group does: counts acknowledgements, keeps the in-sync set, stops when nobody vouches for it,
hands over. Part of the state machine (machine.py): no clock, no sockets.

It takes writes while its lease was renewed, or while every other in-sync member reported in this epoch, each within
the time of a lease; a master that is in sync alone cannot be replaced and goes on. So a complete loss of etcd stops
nothing while all members are well.
"""

from collections import deque
from typing import TYPE_CHECKING

from ariane.replication.acks import CAUGHT_UP_REPORTS, GroupAcks, MemberAcks
from ariane.replication.group import effects as do
from ariane.replication.group import events as on
from ariane.replication.group.state import State
from ariane.replication.record import Holder, Order

if TYPE_CHECKING:
    from ariane.replication.group.machine import Group

NEVER = float("inf")


class Leader:
    """Of one epoch."""

    def __init__(self, group: "Group", epoch: int) -> None:
        self._group = group
        self.epoch = epoch
        self._start = self._record_end = 0
        self._acks = GroupAcks(epoch, group.rules)
        self._boundaries: deque[int] = deque()
        """Ends of what was appended, not confirmed yet: slaves report also from inside a record."""
        self._away_since: dict[int, float] = {}
        self._is_begun = False
        self._writes: do.Effect | None = None
        self._draining_until = 0.0
        self._order: Order | None = None
        self._refused_orders: set[str] = set()

    def begin(self, start: int, end: int) -> None:
        self._start, self._record_end = start, end
        self._is_begun = True
        self._group.state = State.LEADING
        self.check()
        self.advance()

    def close(self, why: str) -> None:
        for acks in self._acks.all():
            self._group.emit(do.Close(acks.link, why))

    # --- links ---

    def hello(self, event: on.HelloArrived) -> None:
        group, log = self._group, self._group.log
        if event.epoch != self.epoch and group.rules.current_epoch:
            group.emit(do.Refuse(event.link, f"epoch {event.epoch} is not {self.epoch}"))
            if event.epoch > self.epoch:
                group.read()
            return
        point = log.epochs.consistent_point(log.end, event.epochs, event.end)
        if point is None and event.begin == event.end == log.begin:
            point = log.begin
        follows = point == event.end and event.end >= log.begin
        if not group.rules.truncate_first and event.end <= log.end:
            follows = True
        stream_from = event.end if follows else None
        group.emit(do.Welcome(event.link, self.epoch, log.begin, log.end, log.epochs, stream_from))
        if stream_from is None:
            return
        replaced = self._acks.welcome(event.link, event.member, event.incarnation, group.now, log.end)
        if replaced is not None:
            group.emit(do.Close(replaced, "the same member introduced itself again"))
        self._away_since.pop(event.member, None)
        self.check()

    def acked(self, event: on.Acked) -> None:
        group = self._group
        counts = self._acks.report(event.link, event.epoch, event.end, group.now, group.log.end, group.confirmed)
        if counts is None:
            self._lost(event.link)
            group.emit(do.Close(event.link, f"a report of epoch {event.epoch} with end {event.end}"))
        elif counts:
            self.advance()
            if group.proposal is None:
                self._grow()
        elif not group.rules.ack_of_known:
            self._believe_stranger(event)

    def _believe_stranger(self, event: on.Acked) -> None:
        """What happens without the rule: bytes on the port count for a member that is waited for."""
        for member, incarnation in self._needed():
            acks = self._acks.of(member, incarnation)
            if acks is None:
                self._acks.welcome(event.link, member, incarnation, self._group.now, self._group.log.end)
                acks = self._acks.of(member, incarnation)
            if acks is not None:
                acks.end = max(acks.end, min(event.end, self._group.log.end))
        self.advance()

    def link_closed(self, event: on.LinkClosed) -> None:
        self._lost(event.link)
        self.check()

    def _lost(self, link: int) -> None:
        acks = self._acks.drop(link)
        if acks is not None:
            self._away_since[acks.member] = self._group.now

    # --- confirming ---

    def appended(self, end: int) -> None:
        self._boundaries.append(end)
        self.advance()

    def _needed(self) -> set[tuple[int, str]]:
        """Who has to have it: the in-sync set, and the one that is proposed, until it is known which of them it is."""
        group, record = self._group, self._group.record
        assert record is not None
        needed = set(record.in_sync.items())
        proposal = group.proposal
        if proposal is not None and group.rules.union_of_sets:
            needed |= set(proposal.change.record.in_sync.items())
        return {(member, run) for member, run in needed if member != group.me.id}

    def advance(self) -> None:
        """Confirms what everybody has. Nothing of an epoch before its first record, which says that the others have cut
        their logs to this one."""
        group = self._group
        if not self._is_begun:
            return
        acknowledged = self._acks.confirmed(group.durable_end, self._needed())
        if acknowledged is not None and acknowledged >= self._record_end:
            to = self._record_end
            while self._boundaries and self._boundaries[0] <= acknowledged:
                to = self._boundaries.popleft()
            if to > group.confirmed:
                group.confirmed = to
                group.emit(do.Confirm(self.epoch, to))
        if self._order is not None:
            self._hand_over()

    # --- the in-sync set ---

    def _grow(self) -> None:
        group, record = self._group, self._group.record
        assert record is not None
        for acks in self._acks.all():
            holder = Holder(acks.member, acks.incarnation)
            if record.is_in_sync(holder) or acks.member not in record.members or not self._may_join(acks):
                continue
            present = group.snapshot.members.get(acks.member)
            if present is not None and (present.record.holder == holder or not group.rules.incarnations):
                group.propose(group.transactions.grow(group.snapshot, record, holder))
                return

    def _may_join(self, acks: MemberAcks) -> bool:
        """It has everything that is confirmed now; from now on it is waited for."""
        if acks.end < self._record_end and self._group.rules.join_past_start:
            return False
        return acks.end >= self._group.confirmed and acks.caught_up_reports >= CAUGHT_UP_REPORTS

    def _shrink(self) -> None:
        group, record, settings = self._group, self._group.record, self._group.settings
        assert record is not None
        gone = set()
        for member, run in record.in_sync.items():
            if member == group.me.id:
                continue
            acks = self._acks.of(member, run)
            if acks is None:
                since = self._away_since.setdefault(member, group.now)
                is_gone = group.now - since >= settings.lease_s
            else:
                is_gone = (
                    group.now - max(acks.caught_up_at, acks.heard_at - settings.not_caught_up_s)
                    >= (settings.not_caught_up_s)
                    or group.now - acks.heard_at >= settings.not_caught_up_s
                )
            if is_gone:
                gone.add(member)
        if gone and (len(record.in_sync) - len(gone) >= record.min_in_sync or not group.rules.keep_minimum):
            group.propose(group.transactions.shrink(group.snapshot, record, gone))

    # --- time, and who vouches ---

    def tick(self) -> None:
        if not self._is_begun:
            return
        for acks in self._acks.all():
            if self._group.now - acks.heard_at >= self._group.settings.link_silence_s:
                self._lost(acks.link)
                self._group.emit(do.Close(acks.link, "nothing arrived"))
        self.check()
        if self._group.proposal is None and self._order is None:
            self._grow()
        if self._group.proposal is None and self._order is None:
            self._shrink()
        self.advance()

    @property
    def vouched_until(self) -> float:
        """By the lease, or by all others that could replace this master."""
        group, record = self._group, self._group.record
        assert record is not None
        until = NEVER
        for member, run in self._needed():
            acks = self._acks.of(member, run)
            until = min(until, -NEVER if acks is None or acks.end < 0 else acks.heard_at + group.settings.lease_s)
        return max(until, group.lease_until)

    def check(self) -> None:
        """Whether writes are taken."""
        group, record = self._group, self._group.record
        if not self._is_begun or record is None:
            return
        if group.now >= self.vouched_until:
            if group.state is not State.FENCED:
                group.state = State.FENCED
                self._order = None
                if group.rules.fail_waiters:
                    group.emit(do.FailWaiters("neither etcd nor the other members vouch for this master"))
                group.emit(do.Register(None))
            self._set_writes(do.RefuseWrites("fenced: neither etcd nor the other members were heard for a lease"))
            return
        if group.state is State.FENCED:
            group.state = State.LEADING
            group.emit(do.Register(0))
        if self._order is not None:
            if group.now >= self._draining_until:
                self._end_drain("it took too long")
            return
        needed = min(record.min_in_sync, len(record.members))
        present = 1 + sum(
            self._acks.of(member, run) is not None for member, run in record.in_sync.items() if member != group.me.id
        )
        if min(present, len(record.in_sync)) >= record.min_in_sync:
            self._set_writes(do.AllowWrites())
        else:
            self._set_writes(do.RefuseWrites(f"{present} of {needed} members are in sync and connected"))

    def _set_writes(self, effect: do.Effect) -> None:
        if type(effect) is not type(self._writes) or effect != self._writes:  # tuples without fields are all equal
            self._writes = effect
            self._group.emit(effect)

    # --- planned switch ---

    def switch(self, order: Order) -> None:
        """Holds new sends; when all others have everything, hands over to the one that was named."""
        group, record = self._group, self._group.record
        assert record is not None
        if self._order is not None or order.nonce in self._refused_orders or group.state is not State.LEADING:
            return
        run = record.in_sync.get(order.member)
        refusal = None
        if order.epoch != self.epoch:
            refusal = f"it is for epoch {order.epoch}, and this is {self.epoch}"
        elif order.member == group.me.id:
            refusal = "that member is the master"
        elif run is None or self._acks.of(order.member, run) is None:
            refusal = f"member {order.member} is not in sync and connected"
        elif record.frozen is not None:
            refusal = "the group is frozen"
        if refusal is not None:
            self._refused_orders.add(order.nonce)
            group.note(f"switch refused: {refusal}", is_problem=True)
            return
        self._order = order
        self._draining_until = group.now + group.settings.drain_s
        group.state = State.DRAINING
        self._set_writes(do.HoldWrites())
        self._hand_over()

    def _hand_over(self) -> None:
        group, record, order = self._group, self._group.record, self._order
        assert record is not None
        assert order is not None
        run = record.in_sync.get(order.member)
        if run is None:
            self._end_drain(f"member {order.member} is no longer in sync")
        elif group.proposal is None and group.confirmed == group.log.end:
            to = Holder(order.member, run)
            group.propose(group.transactions.hand_over(group.snapshot, record, to, group.log.end, order.nonce))

    def _end_drain(self, why: str) -> None:
        """Writes go on. A hand-over that was sent may still be done: then the record says so."""
        group = self._group
        assert self._order is not None
        self._refused_orders.add(self._order.nonce)
        self._order = None
        group.state = State.LEADING
        group.note(f"the switch was given up: {why}", is_problem=True)
        self.check()
