"""Delay levels: never early, on time, and no message lost in a crash."""

import asyncio
import errno
import random

import pytest

from ariane.broker.admin.runtime import ScheduleHandlers
from ariane.broker.schedule.delay_levels import RETRY_MS, DelayedDelivery
from ariane.broker.schedule.timer import TimerDelivery
from ariane.broker.writer import draft_of
from ariane.errors import SettingsError, StoreCorrupt
from ariane.model.system_topics import SCHEDULE, TRANS_HALF
from ariane.rpc.handlers import HandlerTable
from ariane.store.disk import read_all
from ariane.testing import FakeClock
from ariane.wire.codes import RequestCode
from tests.broker.schedule_fixtures import DELAY_OFFSETS, Crashes, ScheduleEnv, arrival, message, schedule_env

FULL = OSError(errno.ENOSPC, "No space left on device")


def delivery_of(env: ScheduleEnv) -> DelayedDelivery:
    return DelayedDelivery(env.service, env.writer, env.delay_offsets, env.clock)


async def test_a_message_is_never_delivered_before_the_delay_of_its_level() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = delivery_of(env)
        env.writer.put(message(b"late", DELAY=1, KEYS="k"))
        await clock.advance(0.999)
        await delivery.deliver_due()
        assert env.bodies() == []
        await clock.advance(0.001)
        await delivery.deliver_due()
        assert env.bodies() == [b"late"]


async def test_a_delivered_message_is_as_it_was_sent() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = delivery_of(env)
        sent = message(b"late", queue_id=3, DELAY=1, KEYS="k", TAGS="t", UNIQ_KEY="u")
        sent.flag, sent.sys_flag, sent.reconsume_times = 7, 8, 2
        env.writer.put(sent)
        await clock.advance(1)
        await delivery.deliver_due()
        (view,) = env.views(queue_id=3)
        assert view.properties() == {"KEYS": "k", "TAGS": "t", "UNIQ_KEY": "u", "WAIT": "false"}
        assert (view.flag, view.sys_flag, view.reconsume_times) == (7, 8, 2)
        assert (view.born_timestamp_ms, view.born_host) == (1, sent.born_host)


async def test_the_job_wakes_when_the_first_is_due_though_a_later_one_came_first() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        env.writer.put(message(b"second", DELAY=2))
        async with DelayedDelivery.open(env.service, env.writer, env.delay_offsets, clock):
            await clock.advance(0.5)
            env.writer.put(message(b"first", DELAY=1))
            await clock.advance(0.75)
            assert env.bodies() == []
            await clock.advance(0.25)
            assert env.bodies() == [b"first"]
            await clock.advance(3.5)
            assert env.bodies() == [b"first", b"second"]


async def test_an_idle_job_is_woken_by_the_first_message_without_polling() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        async with DelayedDelivery.open(env.service, env.writer, env.delay_offsets, clock):
            await clock.advance(0)
            env.writer.put(message(b"m", DELAY=1))
            await clock.advance(1)
            assert env.bodies() == [b"m"]


async def test_a_clock_set_forward_is_noticed_within_seconds() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        async with DelayedDelivery.open(env.service, env.writer, env.delay_offsets, clock):
            env.writer.put(message(b"m", DELAY=18))
            await clock.advance(1)
            clock._start_ms += 7_200_000
            await clock.advance(10)
            assert env.bodies() == [b"m"]


async def test_after_the_clock_was_set_back_a_message_does_not_wait_for_years() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = delivery_of(env)
        env.writer.put(message(b"m", DELAY=1))
        clock._start_ms -= 3_600_000
        await delivery.deliver_due()
        assert env.bodies() == [b"m"]


async def test_many_due_messages_do_not_block_the_event_loop() -> None:
    clock = FakeClock()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with schedule_env(clock, segment_bytes=1 << 20) as env:
        delivery = delivery_of(env)
        for number in range(640):
            env.writer.put(message(b"%d" % number, DELAY=1))
        await clock.advance(1)
        other = asyncio.ensure_future(others())
        await delivery.deliver_due()
        other.cancel()
        assert env.bodies() == [b"%d" % number for number in range(640)]
        assert turns >= 640 // 32


async def test_a_full_disk_stops_a_level_at_its_offset() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = delivery_of(env)
        for number in range(3):
            env.writer.put(message(b"%d" % number, DELAY=1))
        await clock.advance(1)
        env.disk.fail_writes(FULL)
        await delivery.deliver_due()
        assert env.bodies() == []
        assert delivery.offsets() == {1: 0}
        env.disk.fail_writes(None)
        await delivery.deliver_due()
        assert env.bodies() == []  # not at once again
        await clock.advance(RETRY_MS / 1000)
        await delivery.deliver_due()
        assert env.bodies() == [b"0", b"1", b"2"]


async def test_a_message_for_a_topic_that_only_the_broker_may_write_is_dropped() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = delivery_of(env)
        env.writer.put(message(b"phantom", topic=TRANS_HALF, DELAY=1))
        env.writer.put(message(b"m", DELAY=1))
        await clock.advance(1)
        await delivery.deliver_due()
        assert env.bodies(TRANS_HALF) == []
        assert env.bodies() == [b"m"]


async def test_a_message_without_a_target_does_not_block_the_next_ones() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = delivery_of(env)
        env.writer.append(draft_of(message(b"lost", topic=SCHEDULE)))
        env.writer.put(message(b"m", DELAY=1))
        await clock.advance(1)
        await delivery.deliver_due()
        assert env.bodies() == [b"m"]


async def test_a_damaged_body_is_not_delivered_with_a_new_checksum() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = delivery_of(env)
        stored = env.writer.put(message(b"body", DELAY=1))
        record = env.service.store.lookup.record_at(stored.physical_offset)
        assert record is not None
        position = stored.physical_offset + bytes(record).index(b"body")
        (path,) = (segment.path for segment in env.service.store.components.commit_log.segments)
        env.disk.flip_bit(path, position, 0)
        await clock.advance(1)
        await delivery.deliver_due()
        assert env.bodies() == []


async def test_levels_that_the_settings_no_longer_name_are_still_delivered() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        env.writer.put(message(b"m", DELAY=5))
    async with schedule_env(clock, env.disk.crash_process(), message_delay_levels="1s 2s") as env:
        delivery = delivery_of(env)
        await delivery.deliver_due()
        assert env.bodies() == []
        await clock.advance(60)
        await delivery.deliver_due()
        assert env.bodies() == [b"m"]


async def test_progress_is_kept_in_the_form_of_apache() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        async with DelayedDelivery.open(env.service, env.writer, env.delay_offsets, clock):
            env.writer.put(message(DELAY=1))
            env.writer.put(message(DELAY=2))
            await clock.advance(1)
        assert (read_all(env.disk, DELAY_OFFSETS, 1000) or b"").endswith(b',"offsetTable":{1:1,2:0}}')


async def test_what_was_delivered_before_a_clean_stop_is_not_delivered_again() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        async with DelayedDelivery.open(env.service, env.writer, env.delay_offsets, clock):
            env.writer.put(message(b"1", DELAY=1))
            env.writer.put(message(b"2", DELAY=2))
            await clock.advance(1)
    async with schedule_env(clock, env.disk.crash_process()) as env:
        await clock.advance(60)
        async with DelayedDelivery.open(env.service, env.writer, env.delay_offsets, clock):
            await clock.advance(0)
            assert env.bodies() == [b"1", b"2"]


async def test_progress_is_saved_only_when_the_log_is_durable() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = delivery_of(env)
        env.writer.put(message(DELAY=1))
        await clock.advance(1)
        await delivery.deliver_due()
        env.disk.fail_syncs(OSError(errno.EIO, "Input/output error"))
        await delivery.save()
        assert env.disk.size(DELAY_OFFSETS) is None


@pytest.mark.parametrize("seed", range(3))
async def test_a_crash_at_any_moment_loses_nothing_and_brings_nothing_early(seed: int) -> None:
    clock = FakeClock()
    sent: list[tuple[bytes, int]] = []
    async with schedule_env(clock) as env:
        delivery = delivery_of(env)
        crashes = Crashes(env, seed)
        rng = random.Random(seed)
        acknowledged: list[list[tuple[bytes, int]]] = []
        for number in range(12):
            level = rng.choice((1, 2))
            stored = env.writer.put(message(b"%d" % number, DELAY=level))
            await env.writer.settled(stored)
            sent.append((b"%d" % number, clock.now_ms() + (1000, 5000)[level - 1]))
            before = len(crashes.disks)
            await clock.advance(rng.choice((0.0, 0.5, 2.0)))
            await crashes.during(delivery.deliver_due())
            await crashes.during(delivery.save())
            acknowledged += [list(sent)] * (len(crashes.disks) - before)
    for (disk, boot, now_ms), promised in zip(crashes.disks, acknowledged, strict=True):
        await _check_after_crash(disk, boot, now_ms, promised)


async def _check_after_crash(disk: object, boot: str, now_ms: int, promised: list[tuple[bytes, int]]) -> None:
    clock = FakeClock(now_ms)
    async with schedule_env(clock, disk, boot) as env:  # type: ignore[arg-type]
        delivery = delivery_of(env)
        await delivery.deliver_due()
        early = {body for body, due_ms in promised if due_ms > now_ms}
        assert not early.intersection(env.bodies())
        await clock.advance(10)
        await delivery.deliver_due()
        assert set(env.bodies()) == {body for body, _ in promised}


async def test_an_offset_below_the_queue_jumps_to_its_beginning() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        env.delay_offsets.save(b'{"offsetTable":{1:-5}}')
        env.writer.put(message(b"m", DELAY=1))
        delivery = delivery_of(env)
        await clock.advance(1)
        await delivery.deliver_due()
        assert env.bodies() == [b"m"]
        assert delivery.offsets() == {1: 1}


async def test_an_offset_beyond_the_queue_restarts_instead_of_waiting() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        env.delay_offsets.save(b'{"offsetTable":{1:500}}')
        env.writer.put(message(b"m", DELAY=1))
        delivery = delivery_of(env)
        await clock.advance(1)
        await delivery.deliver_due()
        assert env.bodies() == [b"m"]


async def test_a_damaged_progress_file_is_reported_with_a_hint() -> None:
    async with schedule_env(FakeClock()) as env:
        env.delay_offsets.save(b'{"offsetTable":{"one":"two"}}')
        with pytest.raises(StoreCorrupt, match=r"delayOffset\.json.*remove it"):
            delivery_of(env)


async def test_a_level_that_outlives_retention_is_refused() -> None:
    async with schedule_env(FakeClock(), message_delay_levels="1s 3d", retention_hours=72) as env:
        with pytest.raises(SettingsError, match=r"level 2 waits 259200 s.*fileReservedTime"):
            delivery_of(env)


async def test_delay_offsets_can_be_requested() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = delivery_of(env)
        env.writer.put(message(DELAY=3))
        timer = await TimerDelivery.restored(env.service, env.writer, env.clock)
        handlers = ScheduleHandlers(delivery, timer)
        route = HandlerTable.of(handlers).get(RequestCode.GET_ALL_DELAY_OFFSET)
        assert route is not None
        assert delivery.progress() == {3: (0, 1)}
        response = handlers.delay_offsets(None, None)  # type: ignore[arg-type]
        assert response.body.to_bytes() == b'{"offsetTable":{3:0}}'


async def test_cold_records_are_fetched_by_a_thread() -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        env.writer.put(message(b"m", DELAY=1))
        env.disk.is_cold = True
        async with DelayedDelivery.open(env.service, env.writer, env.delay_offsets, clock):
            waiting = asyncio.ensure_future(arrival(env))
            await clock.advance(1)
            await waiting
            assert env.bodies() == [b"m"]
