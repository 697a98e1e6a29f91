"""PendingCalls: calls that are answered, abandoned or time out, with one timer for all."""

import asyncio

import pytest

from ariane.errors import ConnectionLost
from ariane.transport.pending_calls import PendingCalls
from tests.transport.peers import PATIENCE_S


async def within_patience(future: "asyncio.Future[str]") -> str:
    async with asyncio.timeout(PATIENCE_S):
        return await future


async def test_a_response_resolves_its_call() -> None:
    pending: PendingCalls[str] = PendingCalls()
    first, second = pending.add(1, 60.0), pending.add(2, 60.0)
    assert pending.resolve(2, "two")
    assert pending.resolve(1, "one")
    assert (await first, await second, len(pending)) == ("one", "two", 0)


async def test_a_response_without_a_pending_call_is_reported() -> None:
    pending: PendingCalls[str] = PendingCalls()
    abandoned = pending.add(1, 60.0)
    pending.discard(1, abandoned)
    assert abandoned.cancelled()
    assert not pending.resolve(1, "late")


async def test_each_call_times_out_at_its_own_deadline() -> None:
    """The later deadline is added first: the timer must be reset for the earlier one, and again after it."""
    pending: PendingCalls[str] = PendingCalls()
    long, later, sooner = pending.add(1, 3600.0), pending.add(2, 0.05), pending.add(3, 0.01)
    with pytest.raises(TimeoutError):
        await within_patience(sooner)
    with pytest.raises(TimeoutError):
        await within_patience(later)
    assert not long.done()
    assert 1 in pending
    assert len(pending) == 1
    pending.discard(1, long)


async def test_a_call_that_was_answered_does_not_stop_the_timer_for_others() -> None:
    pending: PendingCalls[str] = PendingCalls()
    pending.add(1, 0.01)
    pending.resolve(1, "one")
    with pytest.raises(TimeoutError):
        await within_patience(pending.add(2, 0.02))


async def test_a_lost_connection_fails_all_calls() -> None:
    pending: PendingCalls[str] = PendingCalls()
    calls = [pending.add(number, 60.0) for number in range(3)]
    pending.fail_all(ConnectionLost("gone"))
    for call in calls:
        with pytest.raises(ConnectionLost):
            await call
    assert len(pending) == 0


async def test_the_exception_of_a_discarded_call_is_not_logged_as_never_retrieved() -> None:
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    pending: PendingCalls[str] = PendingCalls()
    call = pending.add(1, 60.0)
    pending.fail_all(ConnectionLost("gone"))
    pending.discard(1, call)
    del call
    assert reported == []
