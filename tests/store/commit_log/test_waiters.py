"""Who waits until the log has reached an offset."""

import asyncio

import pytest

from ariane.errors import OutcomeUnknown
from ariane.store.commit_log.waiters import Done, OffsetWaiters, wait


def test_an_offset_that_is_reached_ends_the_wait_of_all_up_to_it() -> None:
    waiters, outcomes = OffsetWaiters(), list[object]()
    for offset in (10, 20, 20, 30):
        waiters.add(offset, outcomes.append, offset / 10)
    waiters.reached(9)
    assert (outcomes, waiters.deadline) == ([], 1.0)
    waiters.reached(20)
    assert (outcomes, waiters.deadline, len(waiters)) == ([None] * 3, 3.0, 1)


def test_those_who_have_waited_too_long_get_a_timeout_and_the_others_wait_on() -> None:
    waiters, outcomes = OffsetWaiters(), list[object]()
    waiters.add(10, outcomes.append, 1.0)
    waiters.add(20, outcomes.append)
    waiters.expired(5.0)
    assert [type(outcome) for outcome in outcomes] == [TimeoutError]
    assert len(waiters) == 1


def test_an_error_ends_the_wait_of_all_but_of_those_who_come_after_it() -> None:
    waiters, outcomes = OffsetWaiters(), list[object]()
    error = OutcomeUnknown("the role has ended")

    def wait_again(outcome: object) -> None:
        outcomes.append(outcome)
        waiters.add(10, outcomes.append)

    waiters.add(10, wait_again)
    waiters.fail(error)
    assert (outcomes, len(waiters)) == ([error], 1)


def test_one_who_cannot_take_its_outcome_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    waiters, outcomes = OffsetWaiters(), list[object]()

    def broken(outcome: object) -> None:
        raise RuntimeError("no room")

    waiters.add(10, broken)
    waiters.add(10, outcomes.append)
    waiters.reached(10)
    assert outcomes == [None]
    assert "cannot be answered" in caplog.text


async def test_a_future_has_the_outcome_and_may_be_cancelled_before() -> None:
    begun: list[Done] = []
    reached, failed, cancelled = wait(begun.append), wait(begun.append), wait(begun.append)
    cancelled.cancel()
    begun[0](None)
    begun[1](TimeoutError())
    begun[2](None)
    await reached
    with pytest.raises(TimeoutError):
        await failed
    with pytest.raises(asyncio.CancelledError):
        await cancelled
