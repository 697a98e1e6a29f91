"""From the keys of a group to a snapshot, and what is refused."""

import pytest

from ariane.errors import MetaRecordInvalid
from ariane.replication.group.events import Present, Snapshot
from ariane.replication.group.snapshots import snapshot_of
from ariane.replication.meta import KeyValue, Reading
from ariane.replication.record import GroupKeys, GroupRecord, Holder, Known, MemberRecord, Order

KEYS = GroupKeys("c", "b")
RECORD = GroupRecord(epoch=1, master=Holder(2, "r"), in_sync={2: "r"}, min_in_sync=1, members={2: Known("d")})
MEMBER = MemberRecord(id=2, incarnation="r", store_id="d", address="a:1", ha="a:2")
ORDER = Order(do="freeze", nonce="n")


def test_the_keys_of_a_group_are_its_record_its_members_and_an_order() -> None:
    keys = (
        KeyValue(KEYS.history(1), b"{}", 5, 5),
        KeyValue(KEYS.member(2), MEMBER.to_bytes(), 4, 4, lease=77),
        KeyValue(KEYS.order, ORDER.to_bytes(), 9, 9, lease=78),
        KeyValue(KEYS.state, RECORD.to_bytes(), 5, 8),
    )
    assert snapshot_of(Reading(12, keys), KEYS) == Snapshot(12, RECORD, 8, {2: Present(MEMBER, 4, 77)}, ORDER)


def test_a_group_that_does_not_exist_has_no_record() -> None:
    assert snapshot_of(Reading(12, ()), KEYS) == Snapshot(12, None, 0, {})


@pytest.mark.parametrize(
    ("key", "value"),
    [(KEYS.state, b"{}"), (KEYS.member(2), b"[]"), (KEYS.member(3), MEMBER.to_bytes()), (KEYS.order, b"now")],
)
def test_a_key_with_something_else_is_refused(key: str, value: bytes) -> None:
    with pytest.raises(MetaRecordInvalid):
        snapshot_of(Reading(12, (KeyValue(key, value, 1, 1),)), KEYS)
