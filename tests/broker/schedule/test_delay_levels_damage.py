"""A damaged record of a waiting message is not copied to its topic, where its damage would be hidden."""

import pytest

from ariane.broker.schedule.delay_levels import DelayedDelivery
from ariane.broker.schedule.timer import TimerDelivery
from ariane.store.append.draft import Appended
from ariane.testing import FakeClock
from tests.broker.schedule_fixtures import ScheduleEnv, message, schedule_env


def flip_property(env: ScheduleEnv, stored: Appended) -> None:
    (segment,) = env.service.store.components.commit_log.segments
    env.disk.flip_bit(segment.path, bytes(segment.file.view()).index(b"Nantes", stored.physical_offset), 0)


async def test_a_delay_level_passes_over_a_damaged_message(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = DelayedDelivery(env.service, env.writer, env.delay_offsets, env.clock)
        stored = env.writer.put(message(b"flipped", DELAY=1, city="Nantes"))
        env.writer.put(message(bytes(2000), DELAY=1))
        env.writer.put(message(b"whole", DELAY=1))
        env.service.store.make_durable()
        flip_property(env, stored)
        await clock.advance(2)
        await delivery.deliver_due()
        assert env.bodies()[-1] == b"whole"
        assert b"flipped" not in env.bodies()
        assert "the commit log is damaged" in caplog.text


async def test_the_timer_passes_over_a_damaged_message(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    async with schedule_env(clock) as env:
        delivery = await TimerDelivery.restored(env.service, env.writer, env.clock, 256)
        stored = env.writer.put(message(b"flipped", TIMER_DELAY_SEC=1, city="Nantes"))
        env.writer.put(message(bytes(2000), TIMER_DELAY_SEC=1))
        env.writer.put(message(b"whole", TIMER_DELAY_SEC=1))
        await delivery.run_until_idle()
        env.service.store.make_durable()
        flip_property(env, stored)
        await clock.advance(2)
        await delivery.run_until_idle()
        assert env.bodies()[-1] == b"whole"
        assert b"flipped" not in env.bodies()
        assert any("or is damaged" in str(vars(record).get("reason")) for record in caplog.records)
