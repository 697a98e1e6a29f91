"""The introduction of members of a group: what is refused before the group decides anything."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.errors import FrameError
from ariane.replication.epochs import EPOCHS_MAX, EpochMap
from ariane.replication.frames import HELLO_BYTES_MAX, OFFSET_MAX
from ariane.replication.group.link.introduction import (
    GROUP_VERSION,
    GroupHello,
    GroupMember,
    GroupWelcome,
    check_version,
    hello_refusal,
    log_of,
    new_hello,
)
from ariane.replication.hello import VERSION, Hello, decoded, new_challenge

MASTER = GroupMember(
    cluster="c", group="b", file_size=1024, member=1, incarnation="run-1", store_id="disk-1", sync_flush=True
)
SLAVE = msgspec.structs.replace(MASTER, member=2, incarnation="run-2", store_id="disk-2", sync_flush=False)
EPOCHS = EpochMap.of(((1, 0), (3, 500)))


def a_hello() -> GroupHello:
    return new_hello(SLAVE, 3, 0, 700, EPOCHS)


def changed(**fields: Any) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(a_hello().to_bytes()), **fields})


def test_a_hello_has_all_that_the_group_needs_under_the_names_of_the_protocol() -> None:
    fields = msgspec.json.decode(a_hello().to_bytes())
    del fields["challenge"]
    assert fields == {
        "cluster": "c",
        "group": "b",
        "member": 2,
        "incarnation": "run-2",
        "storeId": "disk-2",
        "epoch": 3,
        "min": 0,
        "end": 700,
        "epochs": [[1, 0], [3, 500]],
        "fileSize": 1024,
        "flush": "ASYNC",
        "version": GROUP_VERSION,
    }
    assert log_of(decoded(GroupHello, a_hello().to_bytes())) == EPOCHS
    assert hello_refusal(a_hello(), MASTER) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"member": 0},
        {"member": 10},
        {"incarnation": ""},
        {"incarnation": "x" * 65},
        {"storeId": "x" * 65},
        {"epoch": 0},
        {"epoch": 2**31},
        {"end": -1},
        {"end": OFFSET_MAX + 1},
        {"epochs": [[1, 0, 5]]},
        {"epochs": [[number, number] for number in range(1, EPOCHS_MAX + 2)]},
        {"flush": "MAYBE"},
        {"fileSize": -1},
        {"challenge": "short"},
        {"cluster": "x" * 256},
        {"group": None},
    ],
)
def test_a_hello_with_a_field_out_of_its_range_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(FrameError):
        decoded(GroupHello, changed(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"min": 701},
        {"epochs": [[3, 0], [1, 500]]},
        {"epochs": [[1, 500], [3, 0]]},
        {"epochs": [[1, 700]]},
        {"epochs": [[2**31, 0]]},
    ],
)
def test_epochs_that_do_not_fit_the_log_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(FrameError):
        log_of(decoded(GroupHello, changed(**fields)))


def test_as_many_epochs_as_a_log_can_have_fit_into_an_introduction() -> None:
    first, start = 2**31 - EPOCHS_MAX, OFFSET_MAX - 2 * EPOCHS_MAX
    epochs = EpochMap.of((first + number, start + number) for number in range(EPOCHS_MAX))
    hello = new_hello(SLAVE, 2**31 - 1, 0, OFFSET_MAX, epochs).to_bytes()
    welcome = GroupWelcome(epoch=2**31 - 1, incarnation="i", end=OFFSET_MAX, epochs=epochs.pairs(), begin=OFFSET_MAX)
    assert max(len(hello), len(welcome.to_bytes())) <= HELLO_BYTES_MAX
    assert log_of(decoded(GroupHello, hello)) == log_of(decoded(GroupWelcome, welcome.to_bytes())) == epochs


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"cluster": "other"}, "cluster other, the master to c"),
        ({"group": "other"}, "brokerName other, the master b"),
        ({"member": 1}, "member 1, as the master"),
        ({"storeId": "disk-1"}, "a copy of the master's store"),
        ({"fileSize": 2048}, "2048 bytes, the master's 1024"),
    ],
)
def test_a_peer_of_something_else_is_refused_with_the_reason(fields: dict[str, Any], reason: str) -> None:
    refusal = hello_refusal(decoded(GroupHello, changed(**fields)), MASTER)
    assert refusal is not None
    assert reason in refusal


def test_a_slave_of_a_pair_and_a_member_of_a_group_do_not_take_each_other() -> None:
    pair = Hello(cluster="c", group="b", member=1, file_size=1024, min=0, end=5, tail=(5, 7), challenge=new_challenge())
    with pytest.raises(FrameError, match=f"speaks version {VERSION} of the replication protocol"):
        check_version(pair.to_bytes())
    with pytest.raises(FrameError, match="tail"):
        decoded(Hello, a_hello().to_bytes())
    check_version(a_hello().to_bytes())


@given(st.binary(max_size=300))
def test_any_bytes_are_an_introduction_or_refused(data: bytes) -> None:
    for kind in (GroupHello, GroupWelcome):
        try:
            message = decoded(kind, data)
        except FrameError:
            continue
        assert message.to_bytes()
