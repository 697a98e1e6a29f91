"""Every change that a member makes to the metadata store of its group, as a transaction. Values only.

A change of the record compares the record's revision, so it is a change of what was read and of nothing else. That also
makes it harmless to send the same transaction again when there was no answer: at most one of them is done.
"""

from dataclasses import dataclass

import msgspec

from ariane.replication.group.events import Snapshot
from ariane.replication.group.rules import ALL_RULES, Rules
from ariane.replication.meta import Compare, Delete, Field, Put, Transaction
from ariane.replication.record import (
    Frozen,
    GroupKeys,
    GroupRecord,
    HistoryRecord,
    Holder,
    Known,
    MemberRecord,
)

HISTORY_MAX = 1_000
"""Elections that are remembered."""


@dataclass(frozen=True, slots=True)
class Change:
    """A new record, and what must be so when it is written."""

    record: GroupRecord
    base: int
    """The revision of the record that it replaces."""
    compares: tuple[Compare, ...] = ()
    beside: tuple[Put | Delete, ...] = ()
    """What else is written with it."""


class Transactions:
    def __init__(self, keys: GroupKeys, me: MemberRecord, rules: Rules = ALL_RULES) -> None:
        self._keys = keys
        self._me = me
        self._rules = rules
        self._count = 0

    def announce(self, lease: int) -> Transaction:
        """This member's key: only if there is none, so that two processes cannot be the same member."""
        key = self._keys.member(self._me.id)
        return Transaction((Compare(key, Field.CREATED, 0),), (Put(key, self._me.to_bytes(), lease),))

    def as_transaction(self, change: Change, lease: int) -> Transaction:
        """With what holds for all changes: the record is the one that was read, and the writer is alive."""
        compares = (Compare(self._keys.member(self._me.id), Field.LEASE, lease), *change.compares)
        if self._rules.compare_revision:
            field = Field.MODIFIED if change.base else Field.CREATED
            compares = (Compare(self._keys.state, field, change.base), *compares)
        return Transaction(compares, (Put(self._keys.state, change.record.to_bytes()), *change.beside))

    # --- changes ---

    def found(self, min_in_sync: int, end: int) -> Change:
        me = self._me
        record = GroupRecord(
            epoch=1,
            master=me.holder,
            in_sync={me.id: me.incarnation},
            min_in_sync=min_in_sync,
            members={me.id: Known(me.store_id)},
            by=self._by(),
        )
        return Change(record, 0, beside=self._history(record, end, "founded"))

    def register(self, snapshot: Snapshot, record: GroupRecord, kept_all: bool) -> Change | None:
        """This run of the process instead of an earlier one. None when the record is as it should be."""
        me = self._me
        known, granted = record.members.get(me.id), record.in_sync.get(me.id)
        is_same_disk = known is not None and known.store_id in ("", me.store_id)
        keeps = (kept_all or not self._rules.unclean_leaves) and is_same_disk
        if known == Known(me.store_id) and (granted is None or granted == me.incarnation):
            return None
        in_sync, frozen = dict(record.in_sync), record.frozen
        if granted is not None and granted != me.incarnation:
            del in_sync[me.id]
            if keeps:
                in_sync[me.id] = me.incarnation
            elif not in_sync:
                text = f"member {me.id} was the last in sync, and may have lost what it acknowledged"
                frozen = Frozen("lost", text)
        members = {**record.members, me.id: Known(me.store_id)}
        return self._change(snapshot, record, in_sync=in_sync, members=members, frozen=frozen)

    def elect(self, snapshot: Snapshot, record: GroupRecord, end: int, why: str, *, by_lease: bool) -> Change:
        """This member instead of a master that is gone; all others of the in-sync set stay in it."""
        old = record.master
        compares = (self._as_seen(snapshot, old.id),) if by_lease and old.id != self._me.id else ()
        in_sync = {
            member: incarnation
            for member, incarnation in record.in_sync.items()
            if not (member == old.id and incarnation == old.incarnation)
        }
        in_sync[self._me.id] = self._me.incarnation
        new = self._change(
            snapshot, record, epoch=record.epoch + 1, master=self._me.holder, in_sync=in_sync, compares=compares
        )
        return self._with_history(new, end, why)

    def elect_unclean(self, snapshot: Snapshot, record: GroupRecord, end: int, nonce: str) -> Change:
        """This member with what it has; everybody else starts from that. Only by order of an operator."""
        new = self._change(
            snapshot,
            record,
            epoch=record.epoch + 1,
            master=self._me.holder,
            in_sync={self._me.id: self._me.incarnation},
            frozen=None,
            loss_epoch=record.epoch + 1,
            done=nonce,
            compares=tuple(self._as_seen(snapshot, member) for member in record.in_sync if member != self._me.id),
        )
        return self._with_history(new, end, "an operator accepted loss")

    def hand_over(self, snapshot: Snapshot, record: GroupRecord, to: Holder, end: int, nonce: str) -> Change:
        new = self._change(snapshot, record, epoch=record.epoch + 1, master=to, done=nonce)
        return self._with_history(new, end, f"switched from {self._me.id}")

    def grow(self, snapshot: Snapshot, record: GroupRecord, joiner: Holder) -> Change:
        compares = (self._as_seen(snapshot, joiner.id),) if self._rules.incarnations else ()
        in_sync = {**record.in_sync, joiner.id: joiner.incarnation}
        return self._change(snapshot, record, in_sync=in_sync, compares=compares)

    def shrink(self, snapshot: Snapshot, record: GroupRecord, gone: set[int]) -> Change:
        in_sync = {member: run for member, run in record.in_sync.items() if member not in gone}
        return self._change(snapshot, record, in_sync=in_sync)

    def freeze(self, snapshot: Snapshot, record: GroupRecord, frozen: Frozen | None, nonce: str) -> Change:
        return self._change(snapshot, record, frozen=frozen, done=nonce)

    def forget(self, snapshot: Snapshot, record: GroupRecord, member: int, nonce: str) -> Change:
        members = {number: known for number, known in record.members.items() if number != member}
        return self._change(snapshot, record, members=members, done=nonce)

    # --- parts ---

    def _change(
        self, snapshot: Snapshot, record: GroupRecord, compares: tuple[Compare, ...] = (), **changes: object
    ) -> Change:
        new = msgspec.structs.replace(record, by=self._by(), **changes)
        return Change(new, snapshot.record_revision, compares)

    def _by(self) -> str:
        self._count += 1
        return f"{self._me.id}/{self._me.incarnation}/{self._count}"

    def _as_seen(self, snapshot: Snapshot, member: int) -> Compare:
        """That a member's key is the one of the snapshot, or still not there."""
        present = snapshot.members.get(member)
        return Compare(self._keys.member(member), Field.CREATED, 0 if present is None else present.created)

    def _with_history(self, change: Change, end: int, why: str) -> Change:
        return Change(change.record, change.base, change.compares, self._history(change.record, end, why))

    def _history(self, record: GroupRecord, end: int, why: str) -> tuple[Put | Delete, ...]:
        """One more election; the oldest is forgotten."""
        entry = HistoryRecord(epoch=record.epoch, master=record.master.id, start=end, why=why)
        put = Put(self._keys.history(record.epoch), entry.to_bytes())
        oldest = record.epoch - HISTORY_MAX
        return (put, Delete(self._keys.history(oldest))) if oldest > 0 else (put,)
