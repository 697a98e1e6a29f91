"""The introduction of masters and slaves of Ariane: who is refused, and what a proof proves."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.errors import FrameError
from ariane.replication.hello import (
    Challenge,
    Hello,
    Identity,
    Welcome,
    decoded,
    is_proof,
    master_proof,
    new_challenge,
    refusal,
    slave_proof,
)

MASTER = Identity("DefaultCluster", "broker-a", 65_536)


def a_hello(**changes: Any) -> Hello:
    fields = {
        "cluster": "DefaultCluster",
        "group": "broker-a",
        "member": 1,
        "file_size": 65_536,
        "min": 0,
        "end": 500,
        "tail": (100, 7),
        "challenge": new_challenge(),
    }
    return Hello(**{**fields, **changes})


def test_a_slave_of_the_same_broker_is_welcome() -> None:
    assert refusal(a_hello(), MASTER, 0, 1_000) is None
    assert refusal(a_hello(min=65_536, end=65_536), MASTER, 131_072, 200_000) is None, "an empty one begins anywhere"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cluster": "other"}, "cluster other, the master to DefaultCluster"),
        ({"group": "broker-b"}, "brokerName broker-b, the master broker-a"),
        ({"file_size": 1024}, "1024 bytes, the master's 65536"),
        ({"member": 0}, "brokerId 0"),
        ({"end": 1_001}, "beyond the master's at 1000"),
        ({"end": 99}, "begins at 100"),
        ({"version": 1}, "version 1"),
    ],
)
def test_another_slave_is_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    assert reason in str(refusal(a_hello(**changes), MASTER, 100, 1_000))


def test_messages_are_read_as_they_were_written() -> None:
    for message in (a_hello(), Challenge(challenge=new_challenge()), Welcome(begin=7), Welcome(refused="no")):
        assert decoded(type(message), message.to_bytes()) == message
    assert b'"from":7' in Welcome(begin=7).to_bytes()


@given(data=st.binary(max_size=300))
def test_other_bytes_are_an_error(data: bytes) -> None:
    for kind in (Hello, Challenge):
        with pytest.raises(FrameError):
            decoded(kind, data)


def test_a_short_challenge_is_an_error() -> None:
    with pytest.raises(FrameError):
        decoded(Challenge, b'{"challenge":"abc"}')


def test_a_proof_needs_the_secret_and_belongs_to_one_side_and_one_introduction() -> None:
    hello, challenge = a_hello().to_bytes(), Challenge(challenge=new_challenge()).to_bytes()
    proof = slave_proof(b"secret", hello, challenge)
    assert is_proof(proof, slave_proof(b"secret", hello, challenge))
    assert not is_proof(proof, slave_proof(b"another", hello, challenge))
    assert not is_proof(proof, master_proof(b"secret", hello, challenge)), "an echo proves nothing"
    assert not is_proof(proof, slave_proof(b"secret", hello, Challenge(challenge=new_challenge()).to_bytes()))
    assert not is_proof(b"", proof)
    assert is_proof(b"", slave_proof(None, hello, challenge)), "without a secret there is nothing to prove"
