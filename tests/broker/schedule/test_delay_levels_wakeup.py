"""The wake-up timer wakes its waiter at a time, or when an earlier time is announced."""

import asyncio

from ariane.broker.schedule.delay_levels import CLOCK_CHECK_INTERVAL_S, WakeupTimer
from ariane.testing import FakeClock


async def test_it_wakes_at_its_time() -> None:
    clock = FakeClock()
    waiting = asyncio.ensure_future(WakeupTimer(clock).wait(clock.now_ms() + 1000))
    await clock.advance(0.5)
    assert not waiting.done()
    await clock.advance(0.5)
    assert waiting.done()


async def test_an_earlier_time_wakes_and_a_later_one_does_not() -> None:
    clock = FakeClock()
    alarm = WakeupTimer(clock)
    waiting = asyncio.ensure_future(alarm.wait(clock.now_ms() + 5000))
    await clock.advance(0)
    alarm.wake_by(clock.now_ms() + 5000)
    await clock.advance(0)
    assert not waiting.done()
    alarm.wake_by(clock.now_ms() + 4999)
    await clock.advance(0)
    assert waiting.done()


async def test_without_a_time_only_a_wake_up_ends_the_wait() -> None:
    clock = FakeClock()
    alarm = WakeupTimer(clock)
    waiting = asyncio.ensure_future(alarm.wait(None))
    await clock.advance(1_000_000)
    assert not waiting.done()
    alarm.wake_by(1)
    await waiting


async def test_a_far_time_is_checked_repeatedly_because_the_clock_may_change() -> None:
    clock = FakeClock()
    waiting = asyncio.ensure_future(WakeupTimer(clock).wait(clock.now_ms() + 10**9))
    await clock.advance(CLOCK_CHECK_INTERVAL_S)
    assert waiting.done()


async def test_a_wake_up_without_a_waiter_is_ignored() -> None:
    clock = FakeClock()
    alarm = WakeupTimer(clock)
    alarm.wake_by(1)
    waiting = asyncio.ensure_future(alarm.wait(None))
    await clock.advance(1)
    assert not waiting.done()
    waiting.cancel()
