"""Progress of delayed delivery: a kill repeats at most the batch in flight; a machine's crash loses nothing."""

import asyncio
import errno
from collections import Counter
from pathlib import Path

import pytest

from ariane.broker.schedule.delay_levels import BATCH, DelayedDelivery
from ariane.broker.schedule.progress import COUNT_MAX, ProgressFile
from ariane.broker.schedule.timer import CHUNK_UNITS, TimerDelivery
from ariane.testing import FakeClock
from tests.broker.schedule_fixtures import Crashes, ScheduleEnv, message, schedule_env
from tests.simulation.simulated_disk import SimulatedDisk
from tests.transport.peers import until

PATH = Path("/store/config/some.progress")
MESSAGES = 100
KILLS = 6


def disk_with_directory() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(PATH.parent)
    return disk


# --- the file ---


def test_the_last_numbers_are_read_after_a_kill() -> None:
    disk = disk_with_directory()
    progress = ProgressFile(disk, PATH, "boot-1")
    for number in range(5):
        progress.write([number, -1, 1 << 60])
    again = ProgressFile(disk.crash_process(), PATH, "boot-1")
    assert again.read() == (4, -1, 1 << 60)


def test_writes_go_on_after_a_kill_although_nothing_was_read() -> None:
    disk = disk_with_directory()
    for number in range(5):
        disk = disk.crash_process()
        ProgressFile(disk, PATH, "boot-1").write([number])
        assert ProgressFile(disk, PATH, "boot-1").read() == (number,)


@pytest.mark.parametrize("damaged", [0, 1])
def test_a_damaged_slot_is_reported_and_leaves_the_one_before_it(
    damaged: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = disk_with_directory()
    progress = ProgressFile(disk, PATH, "boot-1")
    progress.write([1])
    progress.write([2])
    disk.open(PATH, writable=True).write(b"\xff", damaged * 4096 + 60)
    assert ProgressFile(disk, PATH, "boot-1").read() == ((1,) if damaged == 0 else (2,))
    assert "progress of delayed messages is damaged" in caplog.text


def test_it_is_not_read_after_another_boot_without_one_or_when_the_store_had_a_failed_sync() -> None:
    disk = disk_with_directory()
    ProgressFile(disk, PATH, "boot-1").write([1])
    assert ProgressFile(disk, PATH, "boot-2").read() is None
    assert ProgressFile(disk, PATH, "").read() is None
    assert ProgressFile(disk, PATH, "boot-1", has_page_cache=False).read() is None


def test_once_cleared_it_says_nothing() -> None:
    disk = disk_with_directory()
    progress = ProgressFile(disk, PATH, "boot-1")
    progress.clear()
    assert disk.names(PATH.parent) == []
    progress.write([1])
    progress.clear()
    assert ProgressFile(disk, PATH, "boot-1").read() is None


def test_a_write_that_fails_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    disk = disk_with_directory()
    progress = ProgressFile(disk, PATH, "boot-1")
    progress.write([1])
    disk.fail_writes(OSError(errno.EIO, "Input/output error"))
    progress.write([2])
    progress.write([3])
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "progress of delayed messages not recorded"
    ]
    disk.fail_writes(None)
    progress.write([4])
    assert ProgressFile(disk, PATH, "boot-1").read() == (4,)


def test_as_many_numbers_as_fit_are_read_back() -> None:
    disk = disk_with_directory()
    ProgressFile(disk, PATH, "boot-1").write(range(COUNT_MAX))
    assert ProgressFile(disk, PATH, "boot-1").read() == tuple(range(COUNT_MAX))


# --- delay levels ---


def level_delivery(env: ScheduleEnv) -> DelayedDelivery:
    return DelayedDelivery(env.service, env.writer, env.delay_offsets, env.clock)


def counts(env: ScheduleEnv) -> Counter[bytes]:
    return Counter(env.bodies())


async def test_a_broker_that_is_killed_again_and_again_delivers_each_delayed_message_once() -> None:
    clock = FakeClock()
    async with schedule_env(clock, segment_bytes=1 << 20) as env:
        for number in range(MESSAGES):
            env.writer.put(message(b"%d" % number, DELAY=1 + number % 2))
        disk = env.disk
    await clock.advance(5)
    for _ in range(KILLS):
        async with schedule_env(clock, disk.crash_process(), segment_bytes=1 << 20) as env:
            await level_delivery(env).deliver_due()
            disk = env.disk
            assert set(counts(env).values()) == {1}
            assert len(counts(env)) == MESSAGES


async def test_a_kill_in_any_batch_repeats_no_other_and_the_next_start_goes_on() -> None:
    clock = FakeClock()
    async with schedule_env(clock, segment_bytes=1 << 20) as env:
        for number in range(MESSAGES):
            env.writer.put(message(b"%d" % number, DELAY=1))
        await clock.advance(1)
        crashes = Crashes(env, seed=1)
        await crashes.during(level_delivery(env).deliver_due())
    kills = [disk for disk, boot, _ in crashes.disks if boot == "boot-1"]
    assert len(kills) > MESSAGES // BATCH
    for disk in kills:
        async with schedule_env(clock, disk, segment_bytes=1 << 20) as env:
            await level_delivery(env).deliver_due()
            assert len(counts(env)) == MESSAGES
            assert counts(env).total() <= MESSAGES + BATCH


async def test_after_a_clean_stop_the_file_of_apache_says_all() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        async with DelayedDelivery.open(env.service, env.writer, env.delay_offsets, clock):
            env.writer.put(message(b"m", DELAY=1))
            await clock.advance(1)
        env.delay_offsets.save(b'{"offsetTable":{1:0}}')  # an operator wants them delivered again
        assert level_delivery(env).offsets() == {1: 0}


# --- timer ---


async def timer_delivery(env: ScheduleEnv) -> TimerDelivery:
    return await TimerDelivery.restored(env.service, env.writer, env.clock)


async def test_a_timer_that_is_killed_again_and_again_delivers_each_message_once() -> None:
    clock = FakeClock()
    async with schedule_env(clock, segment_bytes=1 << 20) as env:
        due_ms = clock.now_ms() + 2_000
        for number in range(MESSAGES):
            env.writer.put(message(b"%d" % number, TIMER_DELIVER_MS=due_ms + number * 20))
        disk = env.disk
    for _ in range(KILLS):
        async with schedule_env(clock, disk.crash_process(), segment_bytes=1 << 20) as env:
            delivery = await timer_delivery(env)
            await delivery.run_until_idle()
            delivery.close()
            await clock.advance(1)
            disk = env.disk
            assert set(counts(env).values()) <= {1}
    assert len(counts(env)) == MESSAGES


async def test_a_kill_within_a_slot_of_the_timer_repeats_one_chunk_at_most() -> None:
    clock = FakeClock()
    messages = 3 * CHUNK_UNITS
    async with schedule_env(clock, segment_bytes=1 << 20) as env:
        due_ms = clock.now_ms() + 2_000
        for number in range(messages):
            env.writer.put(message(b"%d" % number, TIMER_DELIVER_MS=due_ms))
        delivery = await timer_delivery(env)
        await delivery.run_until_idle()
        assert delivery.pending == messages
        await clock.advance(3)
        crashes = Crashes(env, seed=1)
        await crashes.during(delivery.run_until_idle())
        delivery.close()
    kills = [disk for disk, boot, _ in crashes.disks if boot == "boot-1"]
    assert len(kills) > messages // CHUNK_UNITS
    for disk in kills:
        async with schedule_env(clock, disk, segment_bytes=1 << 20) as env:
            delivery = await timer_delivery(env)
            await delivery.run_until_idle()
            assert delivery.pending == 0
            delivery.close()
            assert len(counts(env)) == messages
            assert counts(env).total() <= messages + CHUNK_UNITS


async def test_a_kill_between_a_cancellation_and_the_rest_of_its_slot_delivers_nothing_cancelled() -> None:
    clock = FakeClock()
    messages = 2 * CHUNK_UNITS
    async with schedule_env(clock, segment_bytes=1 << 20) as env:
        due_ms = clock.now_ms() + 2_000
        for number in range(messages):
            env.writer.put(message(b"%d" % number, TIMER_DELIVER_MS=due_ms, UNIQ_KEY=f"k{number}"))
        env.writer.put(message(b"", TIMER_DELIVER_MS=due_ms, TIMER_DEL_UNIQKEY="k0"))
        delivery = await timer_delivery(env)
        await delivery.run_until_idle()
        await clock.advance(3)
        crashes = Crashes(env, seed=1)
        await crashes.during(delivery.run_until_idle())
        delivery.close()
    for disk in [disk for disk, boot, _ in crashes.disks if boot == "boot-1"]:
        async with schedule_env(clock, disk, segment_bytes=1 << 20) as env:
            delivery = await timer_delivery(env)
            await delivery.run_until_idle()
            delivery.close()
            assert set(counts(env)) == {b"%d" % number for number in range(1, messages)}


# --- where messages have to be confirmed ---


async def delivered(env: ScheduleEnv) -> DelayedDelivery:
    """One message, which is not confirmed in its own topic."""
    delivery = level_delivery(env)
    env.writer.put(message(b"m", DELAY=1))
    env.confirm()
    await env.clock.advance(1)
    await delivery.deliver_due()
    return delivery


async def test_progress_of_levels_is_written_when_the_delivered_messages_are_confirmed() -> None:
    clock = FakeClock()
    async with schedule_env(clock, gated=True) as env:
        delivery = await delivered(env)
        assert delivery.offsets() == {1: 1}
        async with schedule_env(clock, env.disk.crash_process(), gated=True) as unconfirmed:
            assert level_delivery(unconfirmed).offsets() == {1: 0}
        env.confirm()
        async with schedule_env(clock, env.disk.crash_process(), gated=True) as confirmed:
            assert level_delivery(confirmed).offsets() == {1: 1}


async def test_progress_of_an_epoch_that_has_ended_is_not_written() -> None:
    clock = FakeClock()
    async with schedule_env(clock, gated=True) as env:
        await delivered(env)
        env.confirm(epoch=2)
        async with schedule_env(clock, env.disk.crash_process(), gated=True) as later:
            assert level_delivery(later).offsets() == {1: 0}


async def test_offsets_of_levels_are_saved_when_all_that_was_delivered_is_confirmed() -> None:
    clock = FakeClock()
    async with schedule_env(clock, gated=True) as env:
        delivery = await delivered(env)
        saving = asyncio.ensure_future(delivery.save())
        await until(lambda: len(env.gate.waiters) == 1)
        assert env.delay_offsets.load() is None
        env.confirm()
        await saving
        assert env.delay_offsets.load() == {"offsetTable": {1: 1}}


async def test_the_timer_delivers_what_is_confirmed_and_notes_it_when_the_delivered_message_is() -> None:
    clock = FakeClock()
    async with schedule_env(clock, gated=True) as env:
        delivery = await timer_delivery(env)
        env.writer.put(message(b"m", TIMER_DELIVER_MS=clock.now_ms() + 1000))
        await delivery.run_until_idle()
        assert (delivery.pending, delivery.behind) == (0, 0)
        env.confirm()
        assert delivery.behind == 1
        await delivery.run_until_idle()
        assert delivery.pending == 1
        await clock.advance(2)
        await delivery.run_until_idle()
        assert delivery.pending == 0
        checkpoint = asyncio.ensure_future(delivery.write_checkpoint())
        await until(lambda: len(env.gate.waiters) == 1)
        assert env.bodies() == []
        async with schedule_env(clock, env.disk.crash_process(), gated=True) as unconfirmed:
            again = await timer_delivery(unconfirmed)
            unconfirmed.confirm()
            await again.run_until_idle()
            assert unconfirmed.service.store.components.queues.by_topic["orders"][0].max_offset == 2
            again.close()
        env.confirm()
        await checkpoint
        assert env.bodies() == [b"m"]
        async with schedule_env(clock, env.disk.crash_process(), gated=True) as confirmed:
            again = await timer_delivery(confirmed)
            confirmed.confirm()
            await again.run_until_idle()
            assert confirmed.bodies() == [b"m"]
            again.close()
        delivery.close()


async def test_a_late_confirmation_does_not_open_a_closed_file() -> None:
    disk = disk_with_directory()
    progress = ProgressFile(disk, PATH, "boot-1")
    progress.write([1])
    progress.close()
    progress.write([2])
    assert ProgressFile(disk, PATH, "boot-1").read() == (1,)


async def cut_at(env: ScheduleEnv, to: int) -> SimulatedDisk:
    """As a member does whose master's log parts from its own: the store is closed, and the next start cuts it."""
    store = env.service.store
    await env.service.run(store.request_truncation_steps(to, epoch=2))
    store.close()
    return env.disk


async def test_what_a_level_delivered_is_delivered_again_when_the_log_lost_it_by_a_cut() -> None:
    clock = FakeClock()
    async with schedule_env(clock, gated=True) as env:
        delivery = level_delivery(env)
        env.writer.put(message(b"m", DELAY=1))
        env.confirm()
        confirmed_to = env.gate.confirmed_to
        await clock.advance(1)
        await delivery.deliver_due()
        assert delivery.offsets() == {1: 1}
        env.writer.put(message(b"lost", DELAY=1))
        disk = await cut_at(env, confirmed_to)
    async with schedule_env(clock, disk, gated=True) as again:
        delivery = level_delivery(again)
        again.confirm(epoch=2)
        assert (again.bodies(), delivery.offsets()) == ([], {1: 0})
        await clock.advance(2)
        await delivery.deliver_due()
        again.confirm(epoch=2)
        assert (again.bodies(), delivery.offsets()) == ([b"m"], {1: 1})


async def test_what_the_timer_delivered_is_delivered_again_when_the_log_lost_it_by_a_cut() -> None:
    clock = FakeClock()
    async with schedule_env(clock, gated=True) as env:
        env.confirm()
        delivery = await timer_delivery(env)
        env.writer.put(message(b"m", TIMER_DELAY_SEC=1))
        env.confirm()
        confirmed_to = env.gate.confirmed_to
        await delivery.run_until_idle()
        await clock.advance(2)
        await delivery.run_until_idle()
        env.writer.put(message(b"lost", TIMER_DELAY_SEC=1))
        delivery.close()
        disk = await cut_at(env, confirmed_to)
    async with schedule_env(clock, disk, gated=True) as again:
        delivery = await timer_delivery(again)
        again.confirm(epoch=2)
        assert again.bodies() == []
        await clock.advance(2)
        await delivery.run_until_idle()
        again.confirm(epoch=2)
        assert (again.bodies(), delivery.pending) == ([b"m"], 0)
        delivery.close()
