"""Very many timer messages for one or many times: they take disk space, not memory, and do not block the event loop."""

import asyncio
import gc
import sys
from pathlib import Path

from ariane.broker.schedule.timer import CHUNK_UNITS, TimerDelivery
from ariane.broker.settings import BrokerSettings
from ariane.broker.writer import MessageWriter
from ariane.model.system_topics import TIMER
from ariane.store.service import StoreService
from ariane.store.settings import FlushDiskType, StoreSettings
from ariane.testing import FakeClock
from tests.broker.schedule_fixtures import message, schedule_env
from tests.store.stores import HOST

CROWD = 100_000


async def test_a_hundred_thousand_waiting_messages_take_no_memory(tmp_path: Path) -> None:
    clock = FakeClock()
    store = StoreSettings(root=tmp_path / "store", segment_bytes=64 << 20, flush_disk_type=FlushDiskType.ASYNC)
    async with StoreService.open(store, clock, HOST) as service:
        writer = MessageWriter(service, BrokerSettings(name="b", store=store), clock)
        delivery = await TimerDelivery.restored(service, writer, clock)
        for number in range(CROWD):
            writer.put(message(b"m", TIMER_DELAY_MS=1 + number * 5_000))
        service.store.derived.write()
        gc.collect()
        blocks = sys.getallocatedblocks()
        await delivery.run_until_idle()
        gc.collect()
        assert delivery.pending == CROWD
        assert sys.getallocatedblocks() - blocks < CROWD // 20
        await delivery.write_checkpoint()
        delivery.close()
        again = await TimerDelivery.restored(service, writer, clock)
        assert again.pending == CROWD
        again.close()


async def test_many_messages_for_one_slot_are_delivered_in_chunks() -> None:
    clock = FakeClock()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with schedule_env(clock, segment_bytes=1 << 20) as env:
        delivery = await TimerDelivery.restored(env.service, env.writer, clock, 32 * 1024)
        crowd = 5 * CHUNK_UNITS
        for number in range(crowd):
            env.writer.put(message(b"%d" % number, TIMER_DELAY_SEC=1))
        await delivery.run_until_idle()
        await clock.advance(2)
        other = asyncio.ensure_future(others())
        await delivery.run_until_idle()
        other.cancel()
        assert sorted(env.bodies(), key=int) == [b"%d" % number for number in range(crowd)]
        assert turns >= 5
        assert env.bodies(TIMER) != []
