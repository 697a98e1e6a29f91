"""Group: one member of a group as a state machine. Events in, effects out; no clock, socket or task.

    JOINING ── registered ──► FOLLOWING ── elected ──► PROMOTING ── epoch written ──► LEADING ◄──► FENCED, DRAINING
       ▲                          │ history differs                                      │ higher epoch read
       └──── Opened ───────── REOPENING ◄────────────────────────────────────────────────┘
    QUARANTINED: its disk failed, or it would lose what was acknowledged. It leaves the group and needs an operator.

Roles come from the record of the group alone: who finds itself there as master of a new epoch, with this run of its
process, leads. How the record was changed, and whether an answer ever came, does not matter. Safety rests on
acknowledgements alone: a master confirms what every member that could be elected has in its own epoch, and a member
that knows a higher epoch acknowledges nothing to it. Leases only say when somebody may try.

Carry the effects out in order and before the next event. The owner of the two roles is this class; what they do is in
follower.py and leader.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ariane.replication.epochs import EpochMap
from ariane.replication.group import effects as do
from ariane.replication.group import events as on
from ariane.replication.group.follower import Follower
from ariane.replication.group.leader import Leader
from ariane.replication.group.rules import ALL_RULES, GroupSettings, Rules
from ariane.replication.group.state import State
from ariane.replication.group.transactions import Change, Transactions
from ariane.replication.meta import Transaction
from ariane.replication.record import Frozen, GroupKeys, GroupRecord, MemberRecord, Order

_NOTHING = on.Snapshot(0, None, 0, {})


@dataclass(slots=True)
class Proposal:
    """A change of the record whose outcome is not known yet."""

    token: int
    change: Change
    transaction: Transaction
    sent_at: float
    refused_at: int | None = None
    """The store's revision when a comparison failed. Perhaps because an earlier try was done: a record that was read
    since then says which."""

    def is_decided_by(self, snapshot: on.Snapshot) -> bool:
        """Done, or never to be done: the record was changed, or it was not and a comparison fails for good."""
        if snapshot.record_revision > self.change.base:
            return True
        return self.refused_at is not None and snapshot.revision >= self.refused_at


class Log:
    """What the machine knows of its member's log."""

    def __init__(self) -> None:
        self.begin = self.end = self.flushed = 0
        self.epochs = EpochMap()
        self.kept_all = True


class Group:
    def __init__(
        self, me: MemberRecord, keys: GroupKeys, settings: GroupSettings | None = None, rules: Rules = ALL_RULES
    ) -> None:
        self.me = me
        self.keys = keys
        self.settings = GroupSettings() if settings is None else settings
        self.rules = rules
        self.transactions = Transactions(keys, me, rules)
        self.state = State.JOINING
        self.now = 0.0
        self.epoch = 0
        """The newest that was read."""
        self.log = Log()
        self.confirmed = 0
        """As far as this member knows it, in this run."""
        self.snapshot = _NOTHING
        self.proposal: Proposal | None = None
        self.lease: int | None = None
        self.lease_until = 0.0
        self.started_at: float | None = None
        self._is_open = False
        self._ticked_at: float | None = None
        self._granting_until = self._read_at = self._keep_alive_at = self._announcing_until = 0.0
        self._serial = 0
        self._loss_epoch = 0
        self._notes: set[str] = set()
        self._effects: list[do.Effect] = []
        self.follower = Follower(self)
        self.leader: Leader | None = None
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            on.Opened: self._opened,
            on.Tick: self._tick,
            on.Snapshot: self._read,
            on.LeaseGranted: self._lease_granted,
            on.LeaseRenewed: self._lease_renewed,
            on.LeaseLost: self._lease_lost,
            on.Swapped: self._swapped,
            on.HelloArrived: self._hello,
            on.Acked: self._acked,
            on.LinkClosed: self._link_closed,
            on.EpochWritten: self._epoch_written,
            on.Appended: self._appended,
            on.Flushed: self._flushed,
            on.Welcomed: self.follower.welcomed,
            on.FrameArrived: self.follower.frame,
            on.LinkLost: self.follower.link_lost,
            on.EpochSeen: self.follower.epoch_seen,
            on.DiskFailed: lambda event: self.quarantine(event.why),
            on.Stop: self._stop,
        }

    def handle(self, event: on.Event, now: float) -> list[do.Effect]:
        """`now` is monotonic time; it may stand still, and jump forward after a pause."""
        self.now = max(now, self.now)
        if self.state is not State.STOPPED:
            self._handlers[type(event)](event)
        effects, self._effects = self._effects, []
        return effects

    # --- for follower and leader ---

    def emit(self, *effects: do.Effect) -> None:
        self._effects.extend(effects)

    def note(self, text: str, *, is_problem: bool = False) -> None:
        if text not in self._notes:
            if len(self._notes) > 1000:
                self._notes.clear()
            self._notes.add(text)
            self.emit(do.Note(text, is_problem))

    def serial(self) -> int:
        self._serial += 1
        return self._serial

    @property
    def record(self) -> GroupRecord | None:
        return self.snapshot.record

    def is_in_sync(self, record: GroupRecord) -> bool:
        if not self.rules.incarnations:
            return self.me.id in record.in_sync
        return record.is_in_sync(self.me.holder)

    @property
    def durable_end(self) -> int:
        """What counts as this member's own."""
        return self.log.flushed if self.settings.sync_flush else self.log.end

    def propose(self, change: Change) -> None:
        """One at a time; nothing without a lease, because a transaction says that its writer is alive."""
        if self.proposal is not None or self.lease is None:
            return
        transaction = self.transactions.as_transaction(change, self.lease)
        self.proposal = Proposal(self.serial(), change, transaction, self.now)
        self.emit(do.Swap(self.proposal.token, transaction))

    def reopen(self, how: do.Truncate | do.Wipe | do.Reopen) -> None:
        self.follower.close("the store is opened again")
        self.state = State.REOPENING
        self._is_open = False
        self.emit(how)

    def quarantine(self, why: str) -> None:
        if self.leader is not None:
            self._end_leading(f"quarantined: {why}")
        self.follower.close("quarantined")
        self.state = State.QUARANTINED
        self.emit(do.Register(None))
        self.note(f"quarantined: {why}", is_problem=True)
        self._leave()

    # --- the store ---

    def _opened(self, event: on.Opened) -> None:
        log = self.log
        log.begin, log.end, log.flushed, log.epochs = event.begin, event.end, event.flushed, event.epochs
        log.kept_all = event.kept_all
        self.confirmed = min(self.confirmed, event.end)
        if self.started_at is None:
            self.started_at = self.now
        if self.state is State.QUARANTINED:
            return
        self._is_open = True
        self.state = State.JOINING
        if not self.rules.keep_mark:
            self.emit(do.RegistrationDone())
        self._consider()

    def _appended(self, event: on.Appended) -> None:
        self.log.end = max(self.log.end, event.end)
        if self.leader is not None:
            self.leader.appended(event.end)

    def _flushed(self, event: on.Flushed) -> None:
        self.log.flushed = max(self.log.flushed, min(event.end, self.log.end))
        if self.leader is not None:
            self.leader.advance()
        elif self.settings.sync_flush:
            self.follower.report()

    # --- time ---

    def _tick(self, _: on.Tick) -> None:
        paused = self._ticked_at is not None and self.now - self._ticked_at > self.settings.pause_s
        self._ticked_at = self.now
        if paused or self.now >= self._read_at:
            self.read()
        self._keep_lease()
        self._resend()
        if self.leader is not None:
            self.leader.tick()
        elif self.state is State.FOLLOWING:
            self.follower.tick()
        elif self.state is State.QUARANTINED:
            self._leave()
        elif self.state is State.JOINING:
            self._consider()
        self._carry_out_order()

    def read(self) -> None:
        self._read_at = self.now + self.settings.read_s
        self.emit(do.Read())

    def _keep_lease(self) -> None:
        if self.state is State.QUARANTINED:
            return
        if self.lease is None:
            if self.now >= self._granting_until:
                self._granting_until = self.now + self.settings.retry_s
                self.emit(do.Grant(self.settings.lease_s))
        elif self.now >= self._keep_alive_at:
            self._keep_alive_at = self.now + self.settings.keep_alive_s
            self.emit(do.KeepAlive(self.lease))

    def _resend(self) -> None:
        """The same transaction, so at most one of them is done: after an answer to it, or a newer record, all is
        clear. Until then it may still be done at any moment."""
        proposal = self.proposal
        if proposal is not None and self.now >= proposal.sent_at + self.settings.retry_s:
            proposal.sent_at = self.now
            self.emit(do.Swap(proposal.token, proposal.transaction))

    # --- the lease ---

    def _lease_granted(self, event: on.LeaseGranted) -> None:
        if self.lease is not None or self.state is State.QUARANTINED:
            self.emit(do.Revoke(event.lease))
            return
        self.lease = event.lease
        self._keep_alive_at = event.sent_at + self.settings.keep_alive_s
        self._announcing_until = 0.0
        self._consider()

    def _lease_renewed(self, event: on.LeaseRenewed) -> None:
        if event.lease == self.lease and self.has_key:
            self.lease_until = max(self.lease_until, event.sent_at + min(event.ttl_s, self.settings.lease_s))
            if self.leader is not None:
                self.leader.check()

    def _lease_lost(self, event: on.LeaseLost) -> None:
        if event.lease == self.lease:
            self.lease = None
            self._granting_until = 0.0
            self._keep_lease()

    @property
    def has_key(self) -> bool:
        """Whether the group saw this run of the process alive, under the lease that it has now."""
        present = self.snapshot.members.get(self.me.id)
        return present is not None and present.record.incarnation == self.me.incarnation and present.lease == self.lease

    def _announce(self) -> None:
        """Makes this member's key. Of an earlier run of this member on this disk we are the successor: its lease goes
        now, instead of in three seconds."""
        present = self.snapshot.members.get(self.me.id)
        if self.lease is None or self.now < self._announcing_until or not self.snapshot.revision:
            return
        if present is not None:
            if present.record.store_id == self.me.store_id:
                self._announcing_until = self.now + self.settings.retry_s
                self.emit(do.Revoke(present.lease))
                self.read()
            else:
                self.note(f"another process is member {self.me.id}, at {present.record.address}", is_problem=True)
            return
        self._announcing_until = self.now + self.settings.retry_s
        self.emit(do.Swap(self.serial(), self.transactions.announce(self.lease)))

    # --- the record ---

    def _read(self, event: on.Snapshot) -> None:
        if event.revision < self.snapshot.revision:
            return  # an answer that was overtaken
        self.snapshot = event
        self._decide()
        self._consider()
        self._carry_out_order()

    def _decide(self) -> None:
        if self.proposal is not None and self.proposal.is_decided_by(self.snapshot):
            self.proposal = None

    def _swapped(self, event: on.Swapped) -> None:
        proposal = self.proposal
        if proposal is not None and event.token == proposal.token:
            if event.done is False:
                proposal.refused_at = event.revision
                self._decide()
            elif not self.rules.keep_proposal and event.done is None:
                self.proposal = None
        self.read()

    def _consider(self) -> None:
        """What the record and the own key mean, after either has changed."""
        record = self.record
        if self.state is State.QUARANTINED:
            self._leave()
            return
        if not self.has_key:
            self._announce()
        if record is not None and record.loss_epoch > self._loss_epoch:
            self._loss_epoch, self.confirmed = record.loss_epoch, 0  # what was confirmed before may be gone
        if self.leader is not None:
            if self._is_still_master(record):
                self.leader.check()
                return
            self._step_down()
        if not self._is_open:
            return
        if self.state is State.JOINING:
            self._join(record)
        elif self.state is State.FOLLOWING and record is not None:
            self._take_role(record)

    def _is_still_master(self, record: GroupRecord | None) -> bool:
        if record is None or not self.rules.step_down_first:
            return True
        return record.epoch == self.epoch and record.master == self.me.holder

    def _join(self, record: GroupRecord | None) -> None:
        if not self.has_key or not self.snapshot.revision:
            return
        if record is None:
            self._found()
            return
        change = self.transactions.register(self.snapshot, record, self.log.kept_all)
        if change is not None and not self._resumes(record):
            self.propose(change)
            return
        self.log.kept_all = True  # the group knows of it
        self.emit(do.RegistrationDone())
        self.state = State.FOLLOWING
        self._take_role(record)

    def _resumes(self, record: GroupRecord) -> bool:
        return not self.rules.grant_to_run and record.master.id == self.me.id

    def _found(self) -> None:
        if self.log.end > self.log.begin and not self.settings.adopt:
            self.note("the group does not exist, and this store has messages: found it with --adopt", is_problem=True)
            return
        self.propose(self.transactions.found(self.settings.min_in_sync, self.log.end))

    def _take_role(self, record: GroupRecord) -> None:
        has_role = record.epoch == self.epoch and self.follower.is_following
        if has_role:
            self.follower.tick()
            return
        is_new = record.epoch > self.epoch
        self.epoch = max(self.epoch, record.epoch)
        if record.master == self.me.holder or self._resumes(record):
            self.follower.close("this member was elected")
            self._promote(record.epoch)
        else:
            if is_new and self.rules.current_epoch:
                self.follower.close("a new epoch")
            self.follower.follow()

    # --- leading ---

    def _promote(self, epoch: int) -> None:
        start = self.log.epochs.start_of(epoch)
        if start is not None and self.rules.grant_to_run:
            # Granted to this run and written by it, and the store was opened again since: it has to be elected anew.
            self.follower.follow()
            return
        self.state = State.PROMOTING
        self.leader = Leader(self, epoch)
        self.emit(do.Note(f"promoted to master of epoch {epoch}"))
        if start is not None:
            self.emit(do.Register(0))
            self.leader.begin(start, start + 1)
        else:
            self.emit(do.BecomeMaster(epoch))

    def _epoch_written(self, event: on.EpochWritten) -> None:
        if self.leader is not None and event.epoch == self.leader.epoch and self.state is State.PROMOTING:
            self.log.epochs = self.log.epochs.add(event.epoch, event.start)
            self.log.end = event.end
            self.emit(do.Register(0))
            self.leader.begin(event.start, event.end)

    def _end_leading(self, why: str) -> None:
        assert self.leader is not None
        if self.rules.fail_waiters:
            self.emit(do.FailWaiters(why))
        self.emit(do.RefuseWrites(why))
        self.leader.close(why)
        self.leader = None

    def _step_down(self) -> None:
        record = self.record
        why = "no record" if record is None else f"member {record.master.id} is master of epoch {record.epoch}"
        self._end_leading(why)
        self.emit(do.Register(None), do.Note(f"stepped down: {why}"))
        self.reopen(do.Reopen())

    def _hello(self, event: on.HelloArrived) -> None:
        if self.leader is None or self.state is State.PROMOTING:
            self.emit(do.Refuse(event.link, "this member is not the master"))
        else:
            self.leader.hello(event)

    def _acked(self, event: on.Acked) -> None:
        if self.leader is not None:
            self.leader.acked(event)

    def _link_closed(self, event: on.LinkClosed) -> None:
        if self.leader is not None:
            self.leader.link_closed(event)

    # --- leaving ---

    def _leave(self) -> None:
        """Out of the in-sync set if another one is in it, then without a lease."""
        record = self.record
        if record is not None and record.master != self.me.holder and self.is_in_sync(record):
            if len(record.in_sync) > 1:
                self.propose(self.transactions.shrink(self.snapshot, record, {self.me.id}))
            return
        if self.lease is not None and self.proposal is None:
            self.emit(do.Revoke(self.lease))
            self.lease = None

    def _stop(self, _: on.Stop) -> None:
        if self.leader is not None:
            self._end_leading("stopped")
        self.follower.close("stopped")
        if self.lease is not None:
            self.emit(do.Revoke(self.lease))
        self.emit(do.Register(None))
        self.state = State.STOPPED

    # --- orders ---

    def _carry_out_order(self) -> None:
        order, record = self.snapshot.order, self.record
        if order is None or record is None or record.done == order.nonce or self.proposal is not None:
            return
        if not self.has_key or self.state in (State.REOPENING, State.QUARANTINED, State.JOINING):
            return
        if order.do == "switch":
            if self.leader is not None:
                self.leader.switch(order)
        elif order.do == "unclean":
            self._elect_unclean(order, record)
        elif self._is_first():
            self._administer(order, record)

    def _is_first(self) -> bool:
        """The master, or without one the member with the smallest number. Two at once do no harm."""
        record = self.record
        assert record is not None
        master = self.snapshot.members.get(record.master.id)
        if master is not None and master.record.holder == record.master:
            return record.master == self.me.holder
        return self.me.id == min(self.snapshot.members, default=0)

    def _administer(self, order: Order, record: GroupRecord) -> None:
        snapshot, transactions = self.snapshot, self.transactions
        if order.do == "freeze" and record.frozen is None:
            frozen = Frozen("operator", order.by)
            self.propose(transactions.freeze(snapshot, record, frozen, order.nonce))
        elif order.do == "thaw":
            if record.frozen is not None and record.frozen.why == "lost":
                self.note("thaw refused: the last in-sync member may have lost messages; only `elect` helps")
            elif record.frozen is not None:
                self.propose(transactions.freeze(snapshot, record, None, order.nonce))
        elif order.do == "forget":
            is_used = order.member in record.in_sync or order.member in (record.master.id, *snapshot.members)
            if is_used or order.member not in record.members:
                self.note(f"forget refused: member {order.member} is alive, in sync, or not known")
            else:
                self.propose(transactions.forget(snapshot, record, order.member, order.nonce))

    def _elect_unclean(self, order: Order, record: GroupRecord) -> None:
        if order.member != self.me.id or order.epoch != record.epoch or self.state is not State.FOLLOWING:
            return
        if order.accept_loss != self.keys.broker_name:
            self.note(f"election refused: the order has to name the group, {self.keys.broker_name}")
            return
        alive = [
            member
            for member, run in record.in_sync.items()
            if (present := self.snapshot.members.get(member)) is not None and present.record.incarnation == run
        ]
        if alive and record.frozen is None:
            self.note(f"election refused: member {alive[0]} is alive and in sync, and has everything")
            return
        self.propose(self.transactions.elect_unclean(self.snapshot, record, self.log.end, order.nonce))
