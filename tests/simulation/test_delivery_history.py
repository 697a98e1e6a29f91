"""One good history, and for each rule a bad one that breaks this rule alone."""

import pytest

from tests.simulation.delivery_history import (
    COMMIT_S,
    RULES,
    SETTLED_S,
    Acknowledged,
    Attempted,
    Began,
    Committed,
    Delivered,
    Ended,
    Event,
    Fault,
    RolledBack,
    violations,
)

QUEUE = ("orders", "broker-a", 0)


def sent(message: str, offset: int, producer: str = "p") -> list[Event]:
    return [Attempted(message), Acknowledged(message, QUEUE, offset, producer)]


def got(message: str, offset: int, at_s: float = 0.0) -> Event:
    return Delivered(message, QUEUE, offset, at_s)


def handled(member: str, offset: int) -> list[Event]:
    return [Began(member, QUEUE, offset), Ended(member, QUEUE, offset)]


GOOD: list[Event] = [
    Attempted("withdrawn"),
    RolledBack("withdrawn"),
    *sent("m0", 0),
    Attempted("m1", due_s=1.0),  # its broker died: stored, and never acknowledged
    got("m0", 0),
    *handled("one", 0),
    Committed(QUEUE, 1),
    got("m1", 1, at_s=1.0),
    *handled("one", 1),
    *sent("m2", 2),
    Fault(2.0, 3.0),
    got("m1", 1, at_s=3.5),  # the consumer died, or the broker: what was not committed comes again
    *handled("two", 1),
    got("m2", 2, at_s=4.0),
    *handled("two", 2),
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
        Fault(0.0, 1.0),
        got("m0", 0),
    ],
    "went_back": [*sent("m0", 0), got("m0", 0), Committed(QUEUE, 1), Committed(QUEUE, 0)],
    "overlapped": [
        *sent("m0", 0),
        *sent("m1", 1),
        got("m0", 0),
        Began("one", QUEUE, 0),
        got("m1", 1),
        *handled("two", 1),
        Ended("one", QUEUE, 0),
    ],
    "repeated_outside_faults": [*sent("m0", 0), got("m0", 0, at_s=1.0), got("m0", 0, at_s=2.0)],
    "early": [Attempted("m0", due_s=5.0), got("m0", 0, at_s=4.9)],
    "shown_though_rolled_back": [Attempted("m0"), RolledBack("m0"), got("m0", 0)],
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


@pytest.mark.parametrize(
    ("first_s", "again_s"),
    [
        (100.0 - COMMIT_S - 0.1, 101.0),  # was committed before the fault
        (99.0, 99.5),  # before the fault
        (99.0, 110.0 + SETTLED_S + 0.1),  # long after it
        (111.0 + SETTLED_S, 112.0 + SETTLED_S),
    ],
)
def test_a_fault_does_not_explain_every_repetition(first_s: float, again_s: float) -> None:
    history = [*sent("m0", 0), Fault(100.0, 110.0), got("m0", 0, first_s), got("m0", 0, again_s)]
    assert list(violations(history)) == ["repeated_outside_faults"]


def test_a_member_that_handles_two_messages_of_a_queue_at_once_overlaps_with_itself() -> None:
    history = [Began("one", QUEUE, 0), Began("one", QUEUE, 1)]
    assert violations(history) == {"overlapped": ["one began orders/broker-a/0@1 while one had orders/broker-a/0@0"]}


def test_two_queues_do_not_overlap() -> None:
    assert violations([Began("one", QUEUE, 0), Began("two", ("orders", "broker-a", 1), 0)]) == {}


def test_a_handler_that_never_returned_overlaps_with_the_next() -> None:
    assert list(violations([Began("one", QUEUE, 0), *handled("two", 1)])) == ["overlapped"]


def test_faults_in_a_row_count_as_one() -> None:
    """The message was delivered before the first; each kill kept its consumer from committing."""
    faults = [Fault(100.0 + number * 10, 101.0 + number * 10) for number in range(5)]
    assert violations([*sent("m0", 0), *faults, got("m0", 0, 99.0), got("m0", 0, 141.0 + SETTLED_S)]) == {}
    gap = [Fault(100.0, 101.0), Fault(101.0 + COMMIT_S + SETTLED_S + 1, 130.0)]
    history = [*sent("m0", 0), *gap, got("m0", 0, 99.0), got("m0", 0, 130.0)]
    assert list(violations(history)) == ["repeated_outside_faults"]
