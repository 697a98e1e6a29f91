"""Calls in flight: answered, given up, or out of time, with one timer for all."""

import asyncio

import pytest

from ariane.errors import ConnectionLost
from ariane.transport.connection import PendingCalls
from tests.transport.peers import PATIENCE_S


async def within_patience(waiter: "asyncio.Future[str]") -> str:
    async with asyncio.timeout(PATIENCE_S):
        return await waiter


async def test_an_answer_finds_who_waits_for_it() -> None:
    waiters: PendingCalls[str] = PendingCalls()
    first, second = waiters.add(1, 60.0), waiters.add(2, 60.0)
    assert waiters.settle(2, "two")
    assert waiters.settle(1, "one")
    assert (await first, await second, len(waiters)) == ("one", "two", 0)


async def test_an_answer_that_nobody_waits_for_is_told_so() -> None:
    waiters: PendingCalls[str] = PendingCalls()
    gone = waiters.add(1, 60.0)
    waiters.drop(1, gone)
    assert gone.cancelled()
    assert not waiters.settle(1, "late")


async def test_calls_end_each_in_its_own_time() -> None:
    """The later one is added first: the timer must be set anew for the earlier, and again behind it."""
    waiters: PendingCalls[str] = PendingCalls()
    long, later, sooner = waiters.add(1, 3600.0), waiters.add(2, 0.05), waiters.add(3, 0.01)
    with pytest.raises(TimeoutError):
        await within_patience(sooner)
    with pytest.raises(TimeoutError):
        await within_patience(later)
    assert not long.done()
    assert 1 in waiters
    assert len(waiters) == 1
    waiters.drop(1, long)


async def test_a_call_that_was_answered_does_not_keep_the_timer_from_others() -> None:
    waiters: PendingCalls[str] = PendingCalls()
    waiters.add(1, 0.01)
    waiters.settle(1, "one")
    with pytest.raises(TimeoutError):
        await within_patience(waiters.add(2, 0.02))


async def test_a_lost_connection_fails_all() -> None:
    waiters: PendingCalls[str] = PendingCalls()
    calls = [waiters.add(number, 60.0) for number in range(3)]
    waiters.fail_all(ConnectionLost("gone"))
    for call in calls:
        with pytest.raises(ConnectionLost):
            await call
    assert len(waiters) == 0


async def test_a_failure_that_nobody_looks_at_is_not_reported_as_lost() -> None:
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    waiters: PendingCalls[str] = PendingCalls()
    call = waiters.add(1, 60.0)
    waiters.fail_all(ConnectionLost("gone"))
    waiters.drop(1, call)
    del call
    assert told == []
