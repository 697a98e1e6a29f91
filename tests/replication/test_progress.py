"""Acknowledgements of slaves, and those who wait for them."""

from ariane.replication.progress import Acks, AckWaiters, Replicated

BEHIND = 1_000


def test_without_a_slave_nothing_is_worth_waiting_for() -> None:
    assert Acks[str]().outcome(10, 10, BEHIND) is Replicated.NOT_AVAILABLE


def test_one_slave_that_has_the_record_is_enough() -> None:
    acks = Acks[str]()
    acks.report("a", 100)
    acks.report("b", 50)
    assert acks.outcome(100, 200, BEHIND) is Replicated.YES
    assert acks.outcome(101, 200, BEHIND) is None
    assert (acks.best, acks.worst) == (100, 50)


def test_an_acknowledgement_goes_with_its_connection() -> None:
    acks = Acks[str]()
    acks.report("a", 100)
    acks.report("b", 50)
    acks.drop("a")
    assert acks.best == 50
    assert acks.outcome(100, 100, BEHIND) is None
    acks.drop("b")
    assert acks.best == -1
    assert acks.outcome(10, 100, BEHIND) is Replicated.NOT_AVAILABLE


def test_a_slave_that_is_too_far_behind_does_not_count() -> None:
    acks = Acks[str]()
    acks.report("a", 100)
    assert acks.outcome(100 + BEHIND, 100 + BEHIND, BEHIND) is Replicated.NOT_AVAILABLE
    assert acks.outcome(99 + BEHIND, 99 + BEHIND, BEHIND) is None


def test_a_report_that_goes_back_changes_nothing_but_a_new_connection_may_begin_lower() -> None:
    acks = Acks[str]()
    assert acks.report("a", 100)
    assert not acks.report("a", 90)
    assert acks.of("a") == 100
    acks.drop("a")
    acks.report("a again", 90)
    assert acks.best == 90


def test_waiters_are_released_in_the_order_of_their_records() -> None:
    waiters = AckWaiters[str]()
    for end, name in ((30, "third"), (10, "first"), (20, "second")):
        waiters.add(name, end, 5.0)
    assert waiters.acknowledged(9) == []
    assert waiters.acknowledged(20) == ["first", "second"]
    assert len(waiters) == 1
    assert waiters.next_deadline == 5.0
    assert waiters.acknowledged(30) == ["third"]
    assert waiters.next_deadline is None


def test_waiters_expire_in_the_order_of_their_arrival() -> None:
    waiters = AckWaiters[str]()
    waiters.add("a", 10, 1.0)
    waiters.add("b", 20, 2.0)
    waiters.add("c", 5, 3.0)
    assert waiters.expired(0.5) == []
    assert waiters.expired(2.0) == ["a", "b"]
    assert waiters.acknowledged(100) == ["c"], "one that has expired is not released, too"
    assert waiters.all() == []


def test_all_that_wait_can_be_taken_out() -> None:
    waiters = AckWaiters[str]()
    waiters.add("a", 10, 1.0)
    assert waiters.all() == ["a"]
    assert (len(waiters), waiters.next_deadline, waiters.acknowledged(99)) == (0, None, [])
