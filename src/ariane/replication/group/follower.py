"""What a slave of a group does: it follows its master's frames, cuts its log where histories part, and stands for
election when the master is gone. Part of the state machine (machine.py): no clock, no sockets.

It stands if it is in sync with this run of its process, nothing is frozen, and
    by lease    the master's key is gone and no frame of it arrived for a second: a master that is still heard has lost
                etcd, not us; or
    at once     its connection closed and a new one is refused, so its process is dead; a partition would time out.
A wrong guess is harmless: the record decides.
"""

from typing import TYPE_CHECKING

from ariane.replication.group import effects as do
from ariane.replication.group import events as on
from ariane.replication.record import GroupRecord

if TYPE_CHECKING:
    from ariane.replication.group.machine import Group


class Follower:
    def __init__(self, group: "Group") -> None:
        self._group = group
        self.is_following = False
        self._link: int | None = None
        self._link_epoch = 0
        self._linked_at = 0.0
        self._is_welcome = False
        self._connect_at = 0.0
        self._heard_at = 0.0
        self._is_refused = False
        self._stand_at: float | None = None

    # --- the connection ---

    def follow(self) -> None:
        """The master of the current epoch, whose member may not be there yet."""
        group = self._group
        self.is_following = True
        self._heard_at = group.now
        self._connect_at = group.now
        self._is_refused = False
        self._stand_at = None
        group.emit(do.Register(group.me.id))
        self._connect()

    def close(self, why: str) -> None:
        if self._link is not None:
            self._group.emit(do.Close(self._link, why))
        self._link = None
        self._is_welcome = self.is_following = False

    def _connect(self) -> None:
        group, record = self._group, self._group.record
        if self._link is not None or record is None or group.now < self._connect_at:
            return
        present = group.snapshot.members.get(record.master.id)
        if present is None or present.record.holder != record.master or record.master == group.me.holder:
            return
        self._connect_at = group.now + group.settings.reconnect_s
        self._link, self._link_epoch, self._is_welcome = group.serial(), group.epoch, False
        self._linked_at = group.now
        log = group.log
        group.emit(do.Connect(self._link, present.record.ha, group.epoch, log.begin, log.end, log.epochs))

    def link_lost(self, event: on.LinkLost) -> None:
        if event.link != self._link:
            return
        self._link = None
        self._is_refused = event.is_refused
        self._connect_at = self._group.now + (self._group.settings.reconnect_s if event.is_refused else 0.0)
        self.tick()

    def _drop(self, why: str) -> None:
        """Breaks with the master, and introduces this member again."""
        if self._link is not None:
            self._group.emit(do.Close(self._link, why))
        self._link, self._is_welcome = None, False

    def welcomed(self, event: on.Welcomed) -> None:
        group, log = self._group, self._group.log
        if event.link != self._link:
            return
        if event.epoch != group.epoch and group.rules.current_epoch:
            self._drop(f"the master is of epoch {event.epoch}, the group of {group.epoch}")
            return
        self._heard_at, self._is_refused = group.now, False
        point = log.epochs.consistent_point(log.end, event.epochs, event.end)
        is_empty = log.begin == log.end
        if point is None and is_empty:
            if log.end != event.begin:
                group.reopen(do.Wipe(event.begin))
                return
            point = event.begin
        elif point is None or point < event.begin or point < log.begin:
            if group.settings.allow_wipe or (point is not None and group.confirmed <= event.begin):
                group.reopen(do.Wipe(event.begin))
            else:
                self._drop("no common history")
                group.note("this log shares no history with the master's: begin with an empty store", is_problem=True)
            return
        if point < log.end and group.rules.truncate_first:
            if point < group.confirmed:
                group.quarantine(f"the master's log parts from this one at {point}, and {group.confirmed} is confirmed")
            else:
                group.note(f"cutting the log from {log.end} to {point}: the rest was never confirmed")
                group.reopen(do.Truncate(point))
            return
        self._is_welcome = True
        self.report()

    def frame(self, event: on.FrameArrived) -> None:
        group, log = self._group, self._group.log
        if event.link != self._link or not self._is_welcome:
            return
        if event.epoch != group.epoch and group.rules.current_epoch:
            self._drop(f"a frame of epoch {event.epoch} in epoch {group.epoch}")
            return
        if event.offset != log.end:
            self._drop(f"a frame for offset {event.offset}, and the log ends at {log.end}")
            return
        self._heard_at = group.now
        if event.size:
            log.end += event.size
            group.emit(do.Append(event.link, event.offset, event.size))
        group.confirmed = max(group.confirmed, min(event.confirmed, log.end))
        if event.size == 0 or not group.settings.sync_flush:
            self.report()

    def epoch_seen(self, event: on.EpochSeen) -> None:
        log = self._group.log
        if log.epochs.last is None or event.epoch > log.epochs.last.number:
            log.epochs = log.epochs.add(event.epoch, event.start)

    def report(self) -> None:
        if self._link is not None and self._is_welcome and self.is_following:
            epoch = self._group.epoch if self._group.rules.current_epoch else self._link_epoch
            self._group.emit(do.Report(self._link, epoch, self._group.durable_end))

    # --- election ---

    def tick(self) -> None:
        record = self._group.record
        if record is None or not self.is_following:
            return
        if self._group.now - max(self._linked_at, self._heard_at) >= self._group.settings.link_silence_s:
            self._drop("nothing arrived")
        self._connect()
        why = self._reason_to_stand(record)
        if why is None:
            self._stand_at = None
            return
        group = self._group
        if self._stand_at is None:
            self._stand_at = group.now + self._rank(record) * group.settings.rank_wait_s
        if group.now >= self._stand_at and group.has_key:
            by_lease = why != "refused"
            text = f"the lease of member {record.master.id} ended" if by_lease else "the master's process is dead"
            change = group.transactions.elect(group.snapshot, record, group.log.end, text, by_lease=by_lease)
            group.propose(change)

    def _reason_to_stand(self, record: GroupRecord) -> str | None:
        group = self._group
        if record.frozen is not None or record.epoch != group.epoch:
            return None
        if not group.is_in_sync(record) and group.rules.elect_in_sync:
            return None
        present = group.snapshot.members.get(record.master.id)
        is_present = present is not None and present.record.holder == record.master
        if not is_present and group.now - self._heard_at >= group.settings.silence_s:
            return "lease"
        started_at = group.started_at or 0.0
        if self._is_refused and self._link is None and group.now - started_at >= group.settings.start_s:
            return "refused"
        return None

    def _rank(self, record: GroupRecord) -> int:
        others = sorted(member for member in record.in_sync if member != record.master.id)
        return others.index(self._group.me.id) if self._group.me.id in others else len(others)
