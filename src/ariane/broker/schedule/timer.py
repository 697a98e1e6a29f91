"""Messages with a delivery time of their own. docs/decisions/timer.md says why it is built so.

    timer topic ──TimerTake──▶ TimerWheel ──TimerDrain──▶ real topic
    (queue 0)                  slots in memory            or, when it waits longer than the roll window,
         ▲                     units in timer/            back to the end of the timer topic
         └──────────────────────────────────────────────────────┘

The order of notes makes a crash harmless at every step. A checkpoint is written when the commit log is durable with all
that was delivered, and the units are durable that stand for what was taken; units behind the checkpoint are forgotten
and taken again from the topic. So a message may come twice, none is missed, and none comes early.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from ariane.broker.intake import Intake
from ariane.broker.schedule.alarm import Alarm
from ariane.broker.schedule.durable import log_durable
from ariane.broker.schedule.timer_checkpoint import (
    TimerCheckpoint,
    read_apache_checkpoint,
    read_timer_checkpoint,
    write_timer_checkpoint,
)
from ariane.broker.schedule.timer_drain import TimerDrain
from ariane.broker.schedule.timer_log import FILE_BYTES, TimerLog
from ariane.broker.schedule.timer_out import TimerOut, roll_window_ms
from ariane.broker.schedule.timer_take import TimerTake
from ariane.broker.schedule.timer_wheel import TimerWheel
from ariane.broker.system_topics import TIMER
from ariane.clock import Clock
from ariane.errors import StoreCorrupt, StoreError, StoreMismatch
from ariane.lifecycle import background, every
from ariane.store.disk import Disk
from ariane.store.service import StoreService
from ariane.store.steps import Steps

log = logging.getLogger(__name__)

RETRY_MS = 1_000
CHECKPOINT_INTERVAL_S = 1.0


class TimerDelivery:
    """Made by `open`, which is its whole life. For the event loop alone."""

    def __init__(
        self, service: StoreService, intake: Intake, clock: Clock, wheel: TimerWheel, checkpoint: TimerCheckpoint
    ) -> None:
        parts = service.store.parts
        self._service = service
        self._clock = clock
        self._wheel = wheel
        self._alarm = Alarm(clock)
        self._held_until_ms = 0
        self._checkpoint = checkpoint
        self._out = TimerOut(intake)
        window_ms = roll_window_ms(service.store.settings.retention_hours)
        self._take = TimerTake(service, wheel, self._out, window_ms, checkpoint.queue_offset)
        self._take.known_below, self._take.known_ms = checkpoint.known_below, checkpoint.known_ms
        self._drain = TimerDrain(wheel, parts.commit_log, self._out)
        parts.dispatcher.on_arrival(self._arrived, topic=TIMER)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        service: StoreService,
        intake: Intake,
        clock: Clock,
        checkpoint_interval_s: float = CHECKPOINT_INTERVAL_S,
        file_bytes: int = FILE_BYTES,
    ) -> AsyncIterator["TimerDelivery"]:
        delivery = await cls.restored(service, intake, clock, file_bytes)
        noting = partial(every, clock, checkpoint_interval_s, delivery.note, checkpoint_interval_s)
        try:
            async with background(delivery.run, noting):
                yield delivery
        finally:
            await delivery.note()
            delivery.close()

    @classmethod
    async def restored(
        cls, service: StoreService, intake: Intake, clock: Clock, file_bytes: int = FILE_BYTES
    ) -> "TimerDelivery":
        """As the last checkpoint left it, without its jobs."""
        parts = service.store.parts
        end, now_ms = parts.commit_log.max_offset, clock.now_ms()
        wheel, checkpoint = await asyncio.to_thread(
            _restore, parts.disk, directory_of(service), parts.layout.config, end, now_ms, file_bytes
        )
        return cls(service, intake, clock, wheel, checkpoint)

    def close(self) -> None:
        self._wheel.log.close()

    @property
    def pending(self) -> int:
        """How many messages the wheel holds."""
        return self._wheel.pending

    @property
    def behind(self) -> int:
        """How many messages of the timer topic are still to be taken into the wheel."""
        queue = self._service.store.parts.queues.get(TIMER, 0)
        return 0 if queue is None else max(0, queue.max_offset - self._take.offset)

    @property
    def dropped(self) -> int:
        """How many could not be delivered since the start; each is told in the log."""
        return self._out.dropped

    def oldest_waiting(self) -> Steps[int | None]:
        """Where in the commit log the oldest message is that waits, in the wheel or on its way there; None for none."""
        found: list[int | None] = []
        since_ms = self._wheel.delivered_ms
        yield lambda: found.append(self._wheel.log.oldest_from(since_ms))
        queue = self._service.store.parts.queues.get(TIMER, 0)
        if queue is not None:
            found.append((yield from queue.finding_physical(max(self._take.offset, queue.min_offset))))
        return min((place for place in found if place is not None), default=None)

    # --- delivering -------------------------------------------------------------------------------------------------

    def _arrived(self, topic: str, queue_id: int, queue_end: int, tags_code: int) -> None:
        self._alarm.ring_by(self._held_until_ms)

    async def run(self) -> None:
        while True:
            await self.work()
            await self._alarm.wait(self._next_ms())

    def _next_ms(self) -> int | None:
        return self._held_until_ms or self._wheel.next_ms()

    async def work(self) -> None:
        """Delivers what is due and takes what is new until there is neither. Others get their turn after each batch.

        Slots that are over come first: while there are any, the ring must not be filled further."""
        if self._held_until_ms > self._clock.now_ms():
            return
        try:
            is_busy = True
            while is_busy:
                is_busy = await self._step()
                await asyncio.sleep(0)
        except (StoreError, OSError) as error:
            if not self._held_until_ms:
                log.warning("waiting messages not delivered yet", extra={"reason": str(error)})
            self._held_until_ms = self._clock.now_ms() + RETRY_MS
        else:
            self._held_until_ms = 0

    async def _step(self) -> bool:
        now_ms = self._clock.now_ms()
        dropping = self._wheel.log.drop_before(self._checkpoint.delivered_ms)
        await self._service.run(dropping)  # here, where no thread is reading the log
        return await self._drain.step(now_ms) or await self._take.step(now_ms)

    # --- noting -----------------------------------------------------------------------------------------------------

    async def note(self) -> None:
        """Writes a checkpoint, if there is news."""
        take, wheel = self._take, self._wheel
        checkpoint = TimerCheckpoint(wheel.delivered_ms, wheel.log.end, take.offset, take.known_below, take.known_ms)
        is_news = (checkpoint.log_end, checkpoint.queue_offset) != (
            self._checkpoint.log_end,
            self._checkpoint.queue_offset,
        ) or (checkpoint.delivered_ms != self._checkpoint.delivered_ms and checkpoint.log_end > 0)
        if not is_news or not await log_durable(self._service):
            return
        try:
            await asyncio.to_thread(wheel.log.sync_now)
        except OSError as error:  # what is on the disk is unknown: no checkpoint vouches for it, nor the store for more
            self._service.store.flusher.failed(error)
            return
        await self._write(checkpoint)

    async def _write(self, checkpoint: TimerCheckpoint) -> None:
        disk, path = self._service.store.parts.disk, checkpoint_path(directory_of(self._service))
        try:
            await asyncio.to_thread(write_timer_checkpoint, disk, path, checkpoint)
        except OSError as error:
            log.warning("timer checkpoint not written", extra={"reason": str(error)})
            return
        self._checkpoint = checkpoint


def directory_of(service: StoreService) -> Path:
    return service.store.parts.layout.root / "timer"


def checkpoint_path(directory: Path) -> Path:
    return directory / "checkpoint"


def _restore(
    disk: Disk, directory: Path, config: Path, commit_log_end: int, now_ms: int, file_bytes: int
) -> tuple[TimerWheel, TimerCheckpoint]:
    checkpoint = read_timer_checkpoint(disk, checkpoint_path(directory))
    if checkpoint is None:
        found = read_apache_checkpoint(disk, config / "timercheck")
        return TimerWheel(TimerLog.afresh(disk, directory, file_bytes), now_ms), found or TimerCheckpoint(now_ms, 0, 0)
    log_end, delivered_ms = checkpoint.log_end, checkpoint.delivered_ms
    try:
        return TimerWheel.restore(disk, directory, log_end, delivered_ms, commit_log_end, file_bytes), checkpoint
    except (StoreCorrupt, StoreMismatch) as error:
        log.error("timer log lost: the timer topic is read again", extra={"reason": str(error)})  # noqa: TRY400
        anew = TimerCheckpoint(delivered_ms, 0, 0, known_below=checkpoint.queue_offset, known_ms=delivered_ms)
        return TimerWheel(TimerLog.afresh(disk, directory, file_bytes), delivered_ms), anew
