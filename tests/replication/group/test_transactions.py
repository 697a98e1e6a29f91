"""Transactions of a group, carried out on a store: what they change, and when they do nothing."""

import pytest

from ariane.replication.group.events import Snapshot
from ariane.replication.group.snapshots import snapshot_of
from ariane.replication.group.transactions import HISTORY_MAX, Change, Transactions
from ariane.replication.meta import Delete, Put, Transaction
from ariane.replication.meta.memory import MemoryStore
from ariane.replication.record import Frozen, GroupKeys, GroupRecord, Holder, Known, MemberRecord

KEYS = GroupKeys("c", "b")


class Member:
    def __init__(self, store: MemoryStore, number: int, run: str = "r", disk: str = "") -> None:
        self.store = store
        self.record = MemberRecord(id=number, incarnation=run, store_id=disk or f"d{number}", address="a:1", ha="a:2")
        self.transactions = Transactions(KEYS, self.record)
        self.lease = store.grant(10, 0).id

    def announce(self) -> bool:
        return self.store.transact(self.transactions.announce(self.lease)).succeeded

    def write(self, change: Change | None) -> bool:
        assert change is not None
        return self.store.transact(self.transactions.as_transaction(change, self.lease)).succeeded

    def read(self) -> tuple[Snapshot, GroupRecord]:
        snapshot = snapshot_of(self.store.read(KEYS.prefix), KEYS)
        assert snapshot.record is not None
        return snapshot, snapshot.record

    def register(self, *, kept_all: bool = True) -> bool:
        change = self.transactions.register(*self.read(), kept_all)
        return change is not None and self.write(change)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def one(store: MemoryStore) -> Member:
    """The founder, alone in sync."""
    member = Member(store, 1)
    assert member.announce()
    assert member.write(member.transactions.found(2, 0))
    return member


@pytest.fixture
def two(store: MemoryStore, one: Member) -> Member:
    """In sync as well."""
    member = Member(store, 2)
    assert member.announce()
    assert member.register()
    assert one.write(one.transactions.grow(*one.read(), member.record.holder))
    return member


def test_a_group_is_founded_once(store: MemoryStore, one: Member) -> None:
    late = Member(store, 2)
    assert late.announce()
    assert not late.write(late.transactions.found(2, 0))
    assert one.read()[1].master == Holder(1, "r")


def test_a_member_announces_itself_once_and_under_its_lease(store: MemoryStore, one: Member) -> None:
    twin = Member(store, 1, "another run")
    assert not twin.announce()
    store.revoke(one.lease)
    assert twin.announce()


def test_nobody_changes_the_record_without_a_living_key(store: MemoryStore, one: Member) -> None:
    change = one.transactions.freeze(*one.read(), Frozen("operator"), "n")
    store.revoke(one.lease)
    assert not one.write(change)


def test_a_change_of_what_has_changed_since_does_nothing(one: Member, two: Member) -> None:
    old = one.transactions.shrink(*one.read(), {2})
    assert two.write(two.transactions.freeze(*two.read(), Frozen("operator"), "n"))
    assert not one.write(old)


def test_a_restarted_member_that_kept_everything_stays_in_sync(store: MemoryStore, one: Member, two: Member) -> None:
    store.revoke(two.lease)
    again = Member(store, 2, "later")
    assert again.announce()
    assert again.register()
    assert one.read()[1].in_sync == {1: "r", 2: "later"}
    assert again.transactions.register(*again.read(), True) is None


@pytest.mark.parametrize(("kept_all", "disk"), [(False, "d2"), (True, "an empty disk")])
def test_one_that_may_have_lost_something_leaves(
    store: MemoryStore, one: Member, two: Member, kept_all: bool, disk: str
) -> None:
    store.revoke(two.lease)
    again = Member(store, 2, "later", disk)
    assert again.announce()
    assert again.register(kept_all=kept_all)
    record = one.read()[1]
    assert record.in_sync == {1: "r"}
    assert record.members[2] == Known(disk)
    assert record.frozen is None


def test_the_last_one_that_may_have_lost_something_freezes_the_group(store: MemoryStore, one: Member) -> None:
    store.revoke(one.lease)
    again = Member(store, 1, "later")
    assert again.announce()
    assert again.register(kept_all=False)
    record = again.read()[1]
    assert record.in_sync == {}
    assert record.frozen is not None
    assert record.frozen.why == "lost"


def test_an_election_by_lease_needs_the_masters_key_to_be_gone(store: MemoryStore, one: Member, two: Member) -> None:
    snapshot, record = two.read()
    without_master = snapshot._replace(members={2: snapshot.members[2]})
    change = two.transactions.elect(without_master, record, 100, "its lease ended", by_lease=True)
    assert not two.write(change)
    store.revoke(one.lease)
    assert two.write(change)
    record = two.read()[1]
    assert (record.epoch, record.master, record.in_sync) == (2, Holder(2, "r"), {2: "r"})
    assert any(kv.key == KEYS.history(2) for kv in store.read(KEYS.prefix).keys)


def test_a_joiner_that_was_restarted_meanwhile_does_not_join(store: MemoryStore, one: Member) -> None:
    joiner = Member(store, 3)
    assert joiner.announce()
    assert joiner.register()
    change = one.transactions.grow(*one.read(), joiner.record.holder)
    store.revoke(joiner.lease)
    again = Member(store, 3, "later")
    assert again.announce()
    assert not one.write(change)


def test_a_hand_over_keeps_the_set(one: Member, two: Member) -> None:
    assert one.write(one.transactions.hand_over(*one.read(), two.record.holder, 100, "n"))
    record = one.read()[1]
    assert (record.epoch, record.master.id, record.in_sync, record.done) == (2, 2, {1: "r", 2: "r"}, "n")


def test_only_the_newest_elections_are_remembered(one: Member) -> None:
    snapshot, record = one.read()
    for epoch, deleted in ((HISTORY_MAX - 1, None), (HISTORY_MAX, 1)):
        late = GroupRecord(
            epoch=epoch, master=record.master, in_sync=record.in_sync, min_in_sync=2, members=record.members
        )
        change = one.transactions.elect(snapshot, late, 0, "test", by_lease=False)
        transaction: Transaction = one.transactions.as_transaction(change, one.lease)
        keys = {item.key: type(item) for item in transaction.changes}
        assert keys[KEYS.history(epoch + 1)] is Put
        assert (keys.get(KEYS.history(1)) is Delete) is (deleted == 1)
