"""Queue allocation strategies, compared with the classes of Apache's client 4.9.8 for the same queues and members."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.client.consumer.allocation import (
    AVERAGELY,
    BY_CIRCLE,
    Allocation,
    HashRing,
    by_config,
    consistent_hash,
    machine_room,
)
from ariane.model.route import MessageQueue

GOLDEN = Path(__file__).parents[2] / "golden" / "allocation.jsonl"


def _queue(row: list[Any]) -> MessageQueue:
    topic, broker_name, queue_id = row
    return MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)


def _strategy(case: dict[str, Any]) -> Allocation:
    match case["strategy"]:
        case "CONSISTENT_HASH":
            return consistent_hash(case["parameter"])
        case "MACHINE_ROOM":
            return machine_room(case["parameter"])
        case "CONFIG":
            return by_config([_queue(row) for row in case["parameter"]])
        case name:
            return {"AVG": AVERAGELY, "AVG_BY_CIRCLE": BY_CIRCLE}[name]


def _cases() -> list[dict[str, Any]]:
    return [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM", "CONFIG"])
def test_each_member_gets_the_same_queues_as_with_apaches_class(name: str) -> None:
    cases = [case for case in _cases() if case["strategy"] == name]
    assert cases
    for case in cases:
        strategy, queues = _strategy(case), [_queue(row) for row in case["queues"]]
        for member, expected in case["shares"].items():
            assert strategy.queues_of(member, queues, case["members"]) == [_queue(row) for row in expected], case
        assert strategy.name == name


QUEUES = st.lists(
    st.builds(MessageQueue, topic=st.just("t"), broker_name=st.sampled_from("ab"), queue_id=st.integers(0, 40)),
    unique=True,
)
MEMBERS = st.lists(st.text("abc@1", min_size=1, max_size=6), min_size=1, max_size=9, unique=True)


@given(QUEUES, MEMBERS, st.sampled_from([AVERAGELY, BY_CIRCLE, consistent_hash()]))
def test_every_queue_has_exactly_one_owner(
    queues: list[MessageQueue], members: list[str], strategy: Allocation
) -> None:
    owned = [queue for member in members for queue in strategy.queues_of(member, queues, members)]
    assert sorted(owned) == sorted(queues)


@given(QUEUES, MEMBERS)
def test_the_even_strategies_differ_by_at_most_one_queue(queues: list[MessageQueue], members: list[str]) -> None:
    for strategy in (AVERAGELY, BY_CIRCLE):
        sizes = [len(strategy.queues_of(member, queues, members)) for member in members]
        assert max(sizes) - min(sizes) <= 1


def test_a_client_that_is_not_a_member_owns_nothing() -> None:
    queues = [MessageQueue(topic="t", broker_name="a", queue_id=0)]
    assert AVERAGELY.queues_of("stranger", queues, ["member"]) == []
    assert by_config(queues).queues_of("stranger", queues, ["member"]) == []


def test_an_empty_ring_owns_nothing() -> None:
    assert HashRing([]).owner_of("anything") is None
