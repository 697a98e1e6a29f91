"""A store on a simulated disk with a message writer and a fake clock, for tests of delay levels and timer.

It ends without being closed, as after kill -9: to continue, take a disk from `crash_process` or `cut_power`.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ariane.broker.json_table import JsonTable
from ariane.broker.settings import BrokerSettings
from ariane.broker.writer import InboundMessage, MessageWriter
from ariane.store.consume_queue.gate import Gate
from ariane.store.maintenance.group_commit import GroupCommit
from ariane.store.service import StoreService
from ariane.testing import FakeClock
from ariane.wire.record.read import RecordView, verify
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import HOST, bodies, opened, opened_gated

DELAY_OFFSETS = Path("/store/config/delayOffset.json")


@dataclass
class ScheduleEnv:
    disk: SimulatedDisk
    clock: FakeClock
    service: StoreService
    writer: MessageWriter
    settings: BrokerSettings

    @property
    def delay_offsets(self) -> JsonTable:
        return JsonTable(self.disk, DELAY_OFFSETS)

    @property
    def gate(self) -> Gate:
        assert self.service.store.gate is not None
        return self.service.store.gate

    def confirm(self, epoch: int = 1) -> None:
        """All that is stored; in the first epoch, unless the test begins another."""
        gate = self.gate
        if gate.epoch < epoch:
            gate.begin_epoch(epoch)
        gate.confirm(self.service.store.components.commit_log.max_offset, epoch)

    def bodies(self, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
        return bodies(self.service.store, topic, queue_id)

    def views(self, topic: str = "orders", queue_id: int = 0) -> list[RecordView]:
        slices = self.service.store.reader.read(topic, queue_id, 0, 32).slices
        return [view for record in slices if isinstance(view := verify(record), RecordView)]


@asynccontextmanager
async def schedule_env(
    clock: FakeClock,
    disk: SimulatedDisk | None = None,
    boot: str = "boot-1",
    *,
    gated: bool = False,
    **changes: object,
) -> AsyncIterator[ScheduleEnv]:
    disk = disk if disk is not None else SimulatedDisk(clock)
    store = (opened_gated if gated else opened)(disk, clock, boot, **changes)
    settings = BrokerSettings(name="b", store=store.settings)
    with ThreadPoolExecutor(max_workers=1) as executor:
        async with GroupCommit.running(store.flusher, store.settings) as group_commit:
            service = StoreService(store, group_commit, executor)
            yield ScheduleEnv(disk, clock, service, MessageWriter(service, settings, clock), settings)


def message(body: bytes = b"m", topic: str = "orders", queue_id: int = 0, **properties: str | int) -> InboundMessage:
    return InboundMessage(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties={name: str(value) for name, value in properties.items()},
        born_timestamp_ms=1,
        born_host=HOST,
    )


async def arrival(env: ScheduleEnv, topic: str = "orders") -> None:
    """Waits until the next message reaches `topic`."""
    arrived = asyncio.Event()
    env.service.store.components.dispatcher.on_arrival(lambda name, *_: arrived.set() if name == topic else None)
    async with asyncio.timeout(30):
        await arrived.wait()


@dataclass
class Crashes:
    """Takes what a crash would leave, by a kill and by a power cut, whenever the disk was touched."""

    env: ScheduleEnv
    seed: int
    disks: list[tuple[SimulatedDisk, str, int]] = field(default_factory=list)
    """Each with the boot id to open it with, and the wall time of the crash."""
    _seen: int = -1

    def take(self) -> None:
        if self.env.disk.operations != self._seen:
            self._seen = self.env.disk.operations
            now_ms = self.env.clock.now_ms()
            rng = random.Random(self.seed * 1000 + len(self.disks))
            self.disks.append((self.env.disk.crash_process(), "boot-1", now_ms))
            self.disks.append((self.env.disk.cut_power(rng), "boot-2", now_ms))

    async def during(self, work: Coroutine[None, None, None]) -> None:
        """Runs `work`, with a crash at every event-loop iteration that changed the disk."""
        task = asyncio.ensure_future(work)
        while not task.done():
            self.take()
            await asyncio.sleep(0)
        await task
        self.take()
