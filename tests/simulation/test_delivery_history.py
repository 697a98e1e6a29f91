"""One good history, and for each rule a bad one that breaks this rule alone."""

import pytest

from tests.simulation.delivery_history import RULES, Acknowledged, Attempted, Committed, Delivered, Event, violations

QUEUE = ("orders", "broker-a", 0)


def sent(message: str, offset: int, producer: str = "p") -> list[Event]:
    return [Attempted(message), Acknowledged(message, QUEUE, offset, producer)]


def got(message: str, offset: int) -> Event:
    return Delivered(message, QUEUE, offset)


GOOD: list[Event] = [
    *sent("m0", 0),
    Attempted("m1"),  # its broker died: stored, and never acknowledged
    got("m0", 0),
    Committed(QUEUE, 1),
    got("m1", 1),
    *sent("m2", 2),
    got("m1", 1),  # the consumer died, or the broker: what was not committed comes again
    got("m2", 2),
    Committed(QUEUE, 3),
    Committed(QUEUE, 3),
]

BAD: dict[str, list[Event]] = {
    "lost": [*sent("m0", 0), *sent("m1", 1), got("m0", 0)],
    "invented": [*sent("m0", 0), got("m0", 0), got("ghost", 1)],
    "moved": [*sent("m0", 0), got("m0", 0), Attempted("m1"), got("m1", 0)],
    "disordered": [*sent("m0", 1), *sent("m1", 0), got("m1", 0), got("m0", 1)],
    "jumped": [*sent("m0", 0), *sent("m1", 1), *sent("m2", 2), got("m0", 0), got("m2", 2), got("m1", 1)],
    "repeated_after_commit": [
        *sent("m0", 0),
        got("m0", 0),
        Committed(QUEUE, 1),
        got("m0", 0),
    ],
    "went_back": [*sent("m0", 0), got("m0", 0), Committed(QUEUE, 1), Committed(QUEUE, 0)],
}


def test_a_history_with_deaths_in_it_may_be_good() -> None:
    assert violations(GOOD) == {}


def test_each_rule_has_its_bad_history() -> None:
    assert list(BAD) == [rule.__name__ for rule in RULES]


@pytest.mark.parametrize("rule", BAD)
def test_a_bad_history_breaks_its_rule_and_no_other(rule: str) -> None:
    assert list(violations(BAD[rule])) == [rule]


def test_a_violation_names_message_and_place() -> None:
    assert violations(BAD["lost"]) == {"lost": ["m1 was acknowledged at orders/broker-a/0@1 and never delivered"]}
