"""Progress of the timer that a slave has copied: as a master it loses nothing, and repeats nothing that it need not."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.broker.schedule.timer import TimerDelivery, TimerProgress
from ariane.model.system_topics import TIMER
from ariane.testing import FakeClock
from tests.broker.schedule_fixtures import ScheduleEnv, message, schedule_env
from tests.simulation.simulated_disk import SimulatedDisk

TIMER_FILES = Path("/store/timer")
HOUR_S = 3600


async def delivery_of(env: ScheduleEnv) -> TimerDelivery:
    return await TimerDelivery.restored(env.service, env.writer, env.clock, 256)


def disk_of_a_slave(env: ScheduleEnv) -> SimulatedDisk:
    """With the master's log, and nothing of its timer."""
    disk = env.disk.crash_process()
    for name in disk.names(TIMER_FILES):
        disk.remove(TIMER_FILES / name)
    return disk


async def copied(clock: FakeClock, disk: SimulatedDisk, progress: TimerProgress, **changes: Any) -> SimulatedDisk:
    """What a slave has on its disk when it is killed."""
    async with schedule_env(clock, disk, **changes) as env:
        delivery = await delivery_of(env)
        await delivery.copy_progress(progress)
        delivery.close()
        return env.disk.crash_process()


async def wait_for(env: ScheduleEnv, clock: FakeClock, seconds: int) -> None:
    delivery = await delivery_of(env)
    await delivery.run_until_idle()
    for _ in range(seconds // HOUR_S + 1):
        await clock.advance(HOUR_S)
        await delivery.run_until_idle()


async def test_what_the_master_delivered_is_not_delivered_again_and_what_waits_is_never_early() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = await delivery_of(env)
        for number, delay_s in enumerate((1, 2, 3, 100, 200)):
            env.writer.put(message(b"%d" % number, TIMER_DELAY_SEC=delay_s))
        await delivery.run_until_idle()
        await clock.advance(50)
        await delivery.run_until_idle()
        assert env.bodies() == [b"0", b"1", b"2"]
        progress, disk = delivery.progress(), disk_of_a_slave(env)
    disk = await copied(clock, disk, progress)
    async with schedule_env(clock, disk) as env:
        delivery = await delivery_of(env)
        await delivery.run_until_idle()
        assert env.bodies() == [b"0", b"1", b"2"]
        await clock.advance(49)
        await delivery.run_until_idle()
        assert env.bodies() == [b"0", b"1", b"2"]
        await clock.advance(2)
        await delivery.run_until_idle()
        assert env.bodies() == [b"0", b"1", b"2", b"3"]
        await clock.advance(200)
        await delivery.run_until_idle()
        assert env.bodies() == [b"0", b"1", b"2", b"3", b"4"]


async def test_without_progress_of_the_master_everything_is_delivered_again_and_nothing_lost() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = await delivery_of(env)
        assert delivery.progress().known_below == 0
        env.writer.put(message(b"m", TIMER_DELAY_SEC=1))
        await delivery.run_until_idle()
        await clock.advance(2)
        await delivery.run_until_idle()
        disk = disk_of_a_slave(env)
    disk = await copied(clock, disk, TimerProgress(0, 0, 0))
    async with schedule_env(clock, disk) as env:
        await wait_for(env, clock, 0)
        assert env.bodies() == [b"m", b"m"]


async def test_a_slave_that_was_a_master_forgets_its_own_timer() -> None:
    """Its own files say less than the master, and more than an empty timer."""
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = await delivery_of(env)
        for number in range(20):
            env.writer.put(message(b"%d" % number, TIMER_DELAY_SEC=10 + number))
        await delivery.run_until_idle()
        await clock.advance(15)
        await delivery.run_until_idle()
        await delivery.write_checkpoint()
        old = env.disk.crash_process()
        await clock.advance(10)
        await delivery.run_until_idle()
        delivered, progress, disk = len(env.bodies()), delivery.progress(), disk_of_a_slave(env)
        assert 5 < delivered < 20
    for name in old.names(TIMER_FILES):  # as they were before it became a slave
        path = TIMER_FILES / name
        size = old.size(path)
        assert size is not None
        if disk.size(path) is None:
            disk.create(path, size, allocated=size).write(old.open(path, writable=False).read(size, 0), 0)
    disk = await copied(clock, disk, progress)
    async with schedule_env(clock, disk) as env:
        assert len(env.bodies()) == delivered
        await wait_for(env, clock, 0)
        await wait_for(env, clock, HOUR_S)
        assert env.bodies() == [b"%d" % number for number in range(20)]


@settings(max_examples=25, deadline=None)
@given(
    delays_h=st.lists(st.integers(0, 40), min_size=1, max_size=12),
    steps_h=st.lists(st.integers(0, 7), min_size=1, max_size=8),
    master_hours=st.sampled_from([6, 12, 72]),
    slave_hours=st.sampled_from([6, 12, 72]),
)
async def test_whatever_the_settings_of_both_nothing_is_lost_or_early(
    delays_h: list[int], steps_h: list[int], master_hours: int, slave_hours: int
) -> None:
    """With two settings of fileReservedTime, the two roll messages at different times."""
    clock = FakeClock()
    async with schedule_env(clock, retention_hours=master_hours) as env:
        delivery = await delivery_of(env)
        due_ms = dict[bytes, int]()
        for number, delay_h in enumerate(delays_h):
            body = b"%d" % number
            due_ms[body] = clock.now_ms() + delay_h * HOUR_S * 1000 + 500
            env.writer.put(message(body, TIMER_DELIVER_MS=due_ms[body]))
        for hours in steps_h:
            await clock.advance(hours * HOUR_S + 1)
            await delivery.run_until_idle()
        progress, disk = delivery.progress(), disk_of_a_slave(env)
    disk = await copied(clock, disk, progress, retention_hours=slave_hours)
    async with schedule_env(clock, disk, retention_hours=slave_hours) as env:
        await wait_for(env, clock, 60 * HOUR_S)
        found = Counter(env.bodies())
        assert found.keys() == due_ms.keys()
        assert all(
            view.store_timestamp_ms >= due_ms[body] for view, body in zip(env.views(), env.bodies(), strict=True)
        )
        if master_hours == slave_hours:
            assert set(found.values()) == {1}, env.views(TIMER)


@pytest.mark.parametrize("progress", [TimerProgress(3, 5, 0), TimerProgress(2**62, 5, 0), TimerProgress(1, 2**62, 1)])
async def test_progress_that_cannot_be_right_does_not_stop_a_slave(progress: TimerProgress) -> None:
    clock = FakeClock()
    disk = await copied(clock, SimulatedDisk(clock), progress)
    async with schedule_env(clock, disk) as env:
        delivery = await delivery_of(env)
        env.writer.put(message(b"m", TIMER_DELAY_SEC=100))
        await delivery.run_until_idle()
        assert env.bodies() == []
