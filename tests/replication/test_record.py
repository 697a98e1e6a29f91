"""Records of a group in its metadata store: round trips, and what is refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.errors import MetaRecordInvalid
from ariane.replication.record import (
    VALUE_BYTES_MAX,
    Frozen,
    GroupKeys,
    GroupRecord,
    HistoryRecord,
    Holder,
    Known,
    MemberRecord,
    Order,
)

RECORD = GroupRecord(
    epoch=7,
    master=Holder(2, "9f3c"),
    in_sync={2: "9f3c", 3: "41d0"},
    min_in_sync=2,
    members={1: Known("disk-1"), 2: Known(), 3: Known()},
    by="2/9f3c/118",
)
MEMBER = MemberRecord(id=2, incarnation="9f3c", store_id="d", address="10.0.0.2:10911", ha="10.0.0.2:10912")
ORDER = Order(do="switch", nonce="n", member=3, epoch=7)


def test_the_record_of_a_group_is_the_json_of_the_documentation() -> None:
    text = msgspec.json.decode(RECORD.to_bytes())
    assert text == {
        "epoch": 7,
        "master": {"id": 2, "incarnation": "9f3c"},
        "inSync": {"2": "9f3c", "3": "41d0"},
        "minInSync": 2,
        "members": {"1": {"storeId": "disk-1"}, "2": {}, "3": {}},
        "frozen": None,
        "lossEpoch": 0,
        "done": "",
        "by": "2/9f3c/118",
        "v": 1,
    }
    assert GroupRecord.from_bytes(RECORD.to_bytes()) == RECORD


@pytest.mark.parametrize(
    "record",
    [
        RECORD,
        msgspec.structs.replace(RECORD, frozen=Frozen("lost", "member 2"), loss_epoch=7, done="n"),
        MEMBER,
        ORDER,
        Order(do="thaw", nonce="n"),
        HistoryRecord(epoch=7, master=3, start=912384, why="lease of 1 ended"),
    ],
)
def test_a_record_survives_the_round_trip(record: GroupRecord | MemberRecord | Order | HistoryRecord) -> None:
    assert type(record).from_bytes(record.to_bytes()) == record


def test_a_member_is_in_sync_with_its_incarnation_only() -> None:
    assert RECORD.is_in_sync(Holder(3, "41d0"))
    assert not RECORD.is_in_sync(Holder(3, "41d1"))
    assert not RECORD.is_in_sync(Holder(1, "41d0"))


def _changed(**changes: object) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(RECORD.to_bytes()), **changes})


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 60_000,
        b" " * (VALUE_BYTES_MAX + 1),
        _changed(v=2),
        _changed(v=None),
        _changed(epoch=0),
        _changed(epoch=2**31),
        _changed(epoch="7"),
        _changed(epoch=7.5),
        _changed(master={"id": 10, "incarnation": "a"}),
        _changed(master={"id": 2, "incarnation": ""}),
        _changed(master={"id": 4, "incarnation": "a"}),
        _changed(inSync={"0": "a"}),
        _changed(inSync={"x": "a"}),
        _changed(inSync={"4": "a"}),
        _changed(inSync={"2": "a" * 65}),
        _changed(inSync={"2": None}),
        _changed(minInSync=0),
        _changed(frozen={"why": "tired"}),
        _changed(lossEpoch=8),
    ],
)
def test_a_value_that_is_no_record_of_a_group_is_refused(value: bytes) -> None:
    with pytest.raises(MetaRecordInvalid):
        GroupRecord.from_bytes(value)


@given(st.binary(max_size=300))
def test_whatever_the_bytes_only_one_error_comes_of_them(value: bytes) -> None:
    for kind in (GroupRecord, MemberRecord, Order, HistoryRecord):
        with pytest.raises(MetaRecordInvalid):
            kind.from_bytes(value)


@pytest.mark.parametrize("do", ["switch", "forget", "unclean"])
def test_an_order_that_concerns_a_member_names_it(do: str) -> None:
    with pytest.raises(MetaRecordInvalid, match="names no member"):
        Order.from_bytes(msgspec.json.encode({"v": 1, "do": do, "nonce": "n", "epoch": 3}))


@pytest.mark.parametrize("do", ["switch", "unclean"])
def test_an_order_for_a_new_master_names_the_epoch_that_the_operator_saw(do: str) -> None:
    with pytest.raises(MetaRecordInvalid, match="names no epoch"):
        Order.from_bytes(msgspec.json.encode({"v": 1, "do": do, "nonce": "n", "member": 3}))


def test_keys_lie_under_cluster_and_broker_name() -> None:
    keys = GroupKeys("prod", "broker-a")
    assert keys.state == "/ariane/v1/prod/broker-a/state"
    assert keys.member(3).startswith(keys.members)
    assert keys.history(7) < keys.history(10)
    with pytest.raises(MetaRecordInvalid):
        GroupKeys("prod", "a/b")
