"""Messages with a delivery time: never early, and none lost in a crash or by retention."""

import asyncio
import errno
import random
import struct
from pathlib import Path

import pytest

from ariane.broker.schedule.timer import RETRY_MS, TimerDelivery
from ariane.broker.schedule.timer_log import TimerCheckpoint, copy_of, read_timer_checkpoint, write_timer_checkpoint
from ariane.broker.schedule.timer_wheel import SLOT_MS
from ariane.broker.writer import draft_of
from ariane.errors import SettingsError, StoreCorrupt
from ariane.model.system_topics import TIMER
from ariane.store.blocking_io import run_sync
from ariane.store.disk import replace_all
from ariane.testing import FakeClock
from tests.broker.schedule_fixtures import Crashes, ScheduleEnv, arrival, message, schedule_env
from tests.simulation.simulated_disk import SimulatedDisk

TIMER_FILES = Path("/store/timer")
CHECKPOINT = TIMER_FILES / "checkpoint"
UNITS_PER_FILE = 8
HOUR_S = 3600
FULL = OSError(errno.ENOSPC, "No space left on device")


async def delivery_of(env: ScheduleEnv) -> TimerDelivery:
    return await TimerDelivery.restored(env.service, env.writer, env.clock, UNITS_PER_FILE * 32)


async def test_a_message_is_delivered_in_the_tenth_of_a_second_after_its_time() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = await delivery_of(env)
        env.writer.put(message(b"m", TIMER_DELIVER_MS=clock.now_ms() + 1050))
        await delivery.run_until_idle()
        assert delivery.pending == 1
        await clock.advance(1.0625)
        await delivery.run_until_idle()
        assert env.bodies() == []
        await clock.advance((SLOT_MS - 12.5) / 1000)
        await delivery.run_until_idle()
        assert env.bodies() == [b"m"]
        assert delivery.pending == 0


async def test_a_delivered_message_is_as_it_was_sent_and_contains_its_delivery_time() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = await delivery_of(env)
        due_ms = clock.now_ms() + 5000
        env.writer.put(message(b"m", queue_id=2, TIMER_DELAY_SEC=5, KEYS="k"))
        await delivery.run_until_idle()
        await clock.advance(6)
        await delivery.run_until_idle()
        (view,) = env.views(queue_id=2)
        assert view.properties() == {"KEYS": "k", "TIMER_DELIVER_MS": str(due_ms), "WAIT": "false"}


async def test_the_job_is_woken_by_a_message_and_by_its_time() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        async with TimerDelivery.open(env.service, env.writer, clock, file_bytes=UNITS_PER_FILE * 32):
            await clock.advance(0)
            env.writer.put(message(b"m", TIMER_DELAY_MS=400))
            await clock.advance(0)
            arriving = asyncio.ensure_future(arrival(env))
            while not arriving.done():
                await clock.advance(0.0625)
            assert env.bodies() == [b"m"]
            assert env.views()[0].store_timestamp_ms >= int(env.views()[0].properties()["TIMER_DELIVER_MS"])


async def test_messages_of_one_slot_are_delivered_by_time_and_send_order() -> None:
    clock = FakeClock(1_700_000_000_000)
    async with schedule_env(clock) as env:
        delivery = await delivery_of(env)
        for body, delay_ms in ((b"3", 1060), (b"1", 1010), (b"4", 1060), (b"2", 1020), (b"5", 1200)):
            env.writer.put(message(body, TIMER_DELAY_MS=delay_ms))
        await delivery.run_until_idle()
        await clock.advance(2)
        await delivery.run_until_idle()
        assert env.bodies() == [b"1", b"2", b"3", b"4", b"5"]


async def test_a_message_that_came_due_while_the_broker_was_down_is_delivered_at_once() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = await delivery_of(env)
        env.writer.put(message(b"placed", TIMER_DELAY_SEC=60))
        await delivery.run_until_idle()
        await delivery.write_checkpoint()
        env.writer.put(message(b"not even read", TIMER_DELAY_SEC=60))
        delivery.close()
    await clock.advance(9 * 24 * HOUR_S)
    async with schedule_env(clock, env.disk.crash_process()) as env:
        delivery = await delivery_of(env)
        await delivery.run_until_idle()
        assert env.bodies() == [b"placed", b"not even read"]


async def test_a_clean_stop_remembers_what_was_delivered_and_what_waits() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        async with TimerDelivery.open(env.service, env.writer, clock, file_bytes=UNITS_PER_FILE * 32) as delivery:
            env.writer.put(message(b"1", TIMER_DELAY_SEC=1))
            env.writer.put(message(b"2", TIMER_DELAY_SEC=100))
            arriving = asyncio.ensure_future(arrival(env))
            for _ in range(8):
                await clock.advance(0.25)
            while not arriving.done():  # threads may take longer, but the second message must not come due
                await asyncio.sleep(0.01)
                await clock.advance(0)
    async with schedule_env(clock, env.disk.crash_process()) as env:
        delivery = await delivery_of(env)
        await delivery.run_until_idle()
        assert delivery.pending == 1
        await clock.advance(100)
        await delivery.run_until_idle()
        assert env.bodies() == [b"1", b"2"]


@pytest.mark.parametrize("seed", range(4))
async def test_a_crash_at_any_moment_loses_nothing_and_brings_nothing_early(seed: int) -> None:
    clock = FakeClock()
    rng = random.Random(seed)
    sent: list[tuple[bytes, int]] = []
    promised: list[list[tuple[bytes, int]]] = []
    async with schedule_env(clock) as env:
        delivery = await delivery_of(env)
        crashes = Crashes(env, seed)
        for number in range(14):
            due_ms = clock.now_ms() + rng.choice((50, 300, 1000, 4000))
            stored = env.writer.put(message(b"%d" % number, TIMER_DELIVER_MS=due_ms))
            await env.writer.settled(stored)
            sent.append((b"%d" % number, due_ms))
            before = len(crashes.disks)
            await crashes.during(delivery.run_until_idle())
            await clock.advance(rng.choice((0.0, 0.25, 2.0)))
            await crashes.during(delivery.run_until_idle())
            if rng.random() < 0.7:
                await crashes.during(delivery.write_checkpoint())
            promised += [list(sent)] * (len(crashes.disks) - before)
    for (disk, boot, now_ms), messages in zip(crashes.disks, promised, strict=True):
        await _check_after_crash(disk, boot, now_ms, messages)


async def _check_after_crash(disk: SimulatedDisk, boot: str, now_ms: int, promised: list[tuple[bytes, int]]) -> None:
    clock = FakeClock(now_ms)
    async with schedule_env(clock, disk, boot) as env:
        delivery = await delivery_of(env)
        await delivery.run_until_idle()
        early = {body for body, due_ms in promised if due_ms > now_ms}
        assert not early.intersection(env.bodies())
        await delivery.write_checkpoint()
        await clock.advance(10)
        await delivery.run_until_idle()
        assert set(env.bodies()) == {body for body, _ in promised}
        assert delivery.dropped == 0
        delivery.close()


async def test_a_full_disk_delays_messages_but_loses_none() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = await delivery_of(env)
        for number in range(4):
            env.writer.put(message(b"%d" % number, TIMER_DELAY_SEC=1))
        env.disk.fail_writes(FULL)
        await delivery.run_until_idle()
        assert delivery.pending == 0
        env.disk.fail_writes(None)
        await clock.advance(RETRY_MS / 1000 - 0.5)
        await delivery.run_until_idle()
        assert delivery.pending == 0  # not at once again
        await clock.advance(0.5)
        await delivery.run_until_idle()
        env.disk.fail_writes(FULL)
        await clock.advance(1)
        await delivery.run_until_idle()
        env.disk.fail_writes(None)
        await clock.advance(RETRY_MS / 1000)
        await delivery.run_until_idle()
        assert env.bodies() == [b"%d" % number for number in range(4)]


async def test_a_message_for_next_week_is_appended_again_before_retention_deletes_it() -> None:
    clock = FakeClock()
    async with schedule_env(clock, retention_hours=72, delete_when="00;01;02;03;04;05;06;07;08;09;10;11;12;13") as env:
        delivery = await delivery_of(env)
        due_ms = clock.now_ms() + 7 * 24 * HOUR_S * 1000
        env.writer.put(message(b"far", TIMER_DELIVER_MS=due_ms))
        files = 0
        for _ in range(7 * 24 - 1):
            for filler in range(3):
                env.writer.put(message(b"%d" % filler * 900, topic="filler"))
            await delivery.run_until_idle()
            env.service.store.make_durable()
            files += env.service.store.clean(manual=True).files
            await clock.advance(HOUR_S)
        assert files > 10  # the record that was sent is long gone
        assert env.bodies() == []
        await clock.advance(HOUR_S + 1)
        await delivery.run_until_idle()
        assert env.bodies() == [b"far"]
        assert delivery.dropped == 0
        queue = env.service.store.components.queues.get(TIMER, 0)
        assert queue is not None
        assert queue.max_offset == 4  # sent, and written anew every two days


async def test_the_oldest_waiting_message_is_found_in_the_wheel_and_in_the_topic() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = await delivery_of(env)
        assert run_sync(delivery.oldest_waiting()) is None
        now_ms = clock.now_ms()
        soon, late, latest = (
            env.writer.put(message(body, TIMER_DELIVER_MS=now_ms + after_ms)).physical_offset
            for body, after_ms in ((b"soon", 5_000), (b"late", 60_000), (b"latest", 90_000))
        )
        assert run_sync(delivery.oldest_waiting()) == soon, "not in the wheel yet"
        await delivery.run_until_idle()
        assert run_sync(delivery.oldest_waiting()) == soon
        await clock.advance(6)
        await delivery.run_until_idle()
        assert run_sync(delivery.oldest_waiting()) == late
        await clock.advance(60)
        await delivery.run_until_idle()
        assert run_sync(delivery.oldest_waiting()) == latest
        await clock.advance(60)
        await delivery.run_until_idle()
        assert run_sync(delivery.oldest_waiting()) is None
        assert env.bodies() == [b"soon", b"late", b"latest"]


async def test_a_retention_of_zero_hours_is_rejected() -> None:
    async with schedule_env(FakeClock(), retention_hours=0) as env:
        with pytest.raises(SettingsError, match="fileReservedTime"):
            await delivery_of(env)


async def test_log_files_are_deleted_when_all_their_messages_are_delivered() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = await delivery_of(env)
        for _ in range(6):
            for _ in range(UNITS_PER_FILE):
                env.writer.put(message(TIMER_DELAY_SEC=1))
            await delivery.run_until_idle()
            await clock.advance(2)
            await delivery.run_until_idle()
            await delivery.write_checkpoint()
        await delivery.run_until_idle()
        assert len(env.bodies()) == 6 * UNITS_PER_FILE
        assert len([name for name in env.disk.names(TIMER_FILES) if not name.startswith("checkpoint")]) <= 2


async def test_a_damaged_timer_log_is_rebuilt_from_the_topic() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = await delivery_of(env)
        env.writer.put(message(b"done", TIMER_DELAY_SEC=1))
        env.writer.put(message(b"waits", TIMER_DELAY_SEC=100))
        await delivery.run_until_idle()
        await clock.advance(2)
        await delivery.run_until_idle()
        await delivery.write_checkpoint()
    disk = env.disk.crash_process()
    disk.flip_bit(TIMER_FILES / ("0" * 20), 40, 3)
    async with schedule_env(clock, disk) as env:
        delivery = await delivery_of(env)
        await delivery.run_until_idle()
        assert delivery.pending == 1
        await clock.advance(100)
        await delivery.run_until_idle()
        assert env.bodies() == [b"done", b"waits"]


async def test_a_damaged_checkpoint_is_reported_with_a_hint() -> None:
    disk = SimulatedDisk()
    disk.make_directory(TIMER_FILES)
    write_timer_checkpoint(disk, CHECKPOINT, TimerCheckpoint(1, 2, 3, 4, 5))
    assert read_timer_checkpoint(disk, CHECKPOINT) == TimerCheckpoint(1, 2, 3, 4, 5)
    for path in (CHECKPOINT, copy_of(CHECKPOINT)):
        disk.flip_bit(path, 20, 0)
    with pytest.raises(StoreCorrupt, match=r"remove it, checkpoint\.bak and `progress` beside it"):
        read_timer_checkpoint(disk, CHECKPOINT)


async def test_delivery_continues_where_apache_5_stopped() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        for body, delay_s in ((b"by apache", 10), (b"while down", 200), (b"later", 1000)):
            env.writer.put(message(body, TIMER_DELAY_SEC=delay_s))
        config = Path("/store/config")
        env.disk.make_directory(config)
        numbers = (clock.now_ms() + 100_000, 0, 3, 3, 0, 0, 0)  # read up to, log, queue offset and four of no matter
        replace_all(env.disk, config / "timercheck", struct.pack(">7q", *numbers))
        await clock.advance(300)
        delivery = await delivery_of(env)
        await delivery.run_until_idle()
        assert env.bodies() == [b"while down"]
        assert delivery.pending == 1


async def test_a_failed_sync_writes_no_checkpoint_and_closes_the_store() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = await delivery_of(env)
        stored = env.writer.put(message(TIMER_DELAY_SEC=1))
        await env.writer.settled(stored)
        await delivery.run_until_idle()
        env.disk.fail_syncs(OSError(errno.EIO, "Input/output error"))
        await delivery.write_checkpoint()
        assert env.disk.size(CHECKPOINT) is None
        assert env.service.store.write_error is not None


async def test_a_message_is_cancelled_by_its_unique_key() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = await delivery_of(env)
        due_ms = clock.now_ms() + 1000
        for body, key in ((b"kept", "A"), (b"called off", "B"), (b"called off too", "C")):
            env.writer.put(message(body, TIMER_DELIVER_MS=due_ms, UNIQ_KEY=key))
        env.writer.put(message(b"-", TIMER_DELIVER_MS=due_ms, TIMER_DEL_UNIQKEY="B"))
        env.writer.put(message(b"-", TIMER_DELIVER_MS=due_ms, TIMER_DEL_UNIQKEY="orders_C"))
        await delivery.run_until_idle()
        await clock.advance(2)
        await delivery.run_until_idle()
        assert env.bodies() == [b"kept"]


async def test_a_message_is_not_cancelled_from_another_topic() -> None:
    """An account that may not send to the topic could otherwise take its messages back."""
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = await delivery_of(env)
        due_ms = clock.now_ms() + 1000
        env.writer.put(message(b"kept", TIMER_DELIVER_MS=due_ms, UNIQ_KEY="A"))
        for key in ("A", "orders_A"):
            env.writer.put(message(b"-", topic="returns", TIMER_DELIVER_MS=due_ms, TIMER_DEL_UNIQKEY=key))
        await delivery.run_until_idle()
        await clock.advance(2)
        await delivery.run_until_idle()
        assert env.bodies() == [b"kept"]


async def test_a_damaged_record_is_dropped_and_logged_and_others_are_delivered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = await delivery_of(env)
        stored = env.writer.put(message(b"flipped", TIMER_DELAY_SEC=1))
        env.writer.put(message(b"whole", TIMER_DELAY_SEC=1))
        await delivery.run_until_idle()
        record = env.service.store.lookup.record_at(stored.physical_offset)
        assert record is not None
        (path,) = (segment.path for segment in env.service.store.components.commit_log.segments)
        env.disk.flip_bit(path, stored.physical_offset + bytes(record).index(b"flipped"), 0)
        await clock.advance(2)
        await delivery.run_until_idle()
        assert env.bodies() == [b"whole"]
        assert delivery.dropped == 1
        assert "waiting message dropped" in caplog.text


async def test_a_message_without_a_time_is_due_now() -> None:
    async with schedule_env(FakeClock()) as env:
        delivery = await delivery_of(env)
        env.writer.append(draft_of(message(b"m", topic=TIMER, REAL_TOPIC="orders", REAL_QID=0, TIMER_OUT_MS="soon")))
        await delivery.run_until_idle()
        assert env.bodies() == [b"m"]


async def test_after_the_clock_was_set_back_new_messages_come_at_their_new_time() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = await delivery_of(env)
        env.writer.put(message(b"before", TIMER_DELAY_SEC=1))
        await delivery.run_until_idle()
        await clock.advance(2)
        await delivery.run_until_idle()
        clock._start_ms -= HOUR_S * 1000
        env.writer.put(message(b"after", TIMER_DELAY_SEC=1))
        await delivery.run_until_idle()
        assert env.bodies() == [b"before"]
        await clock.advance(2)
        await delivery.run_until_idle()
        assert env.bodies() == [b"before", b"after"]
