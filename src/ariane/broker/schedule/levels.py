"""Delay levels: each has a queue of the schedule topic, in the order of delivery because its delay is one for all.

One job looks at the heads of all levels, delivers what is due in small batches, a batch of each level in turn, and
sleeps until the next head is due or an earlier one arrives. Nothing is delivered early by the wall clock; see
`Level.is_due` for a clock that was set back.

How far each level has come is saved every ten seconds and at the end (`config/delayOffset.json`, as Apache's), but only
after the log is durable up to the messages that this accounts for: after a power cut a message may come twice, and none
is missed.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from ariane.broker.incoming import draft_of, incoming_of
from ariane.broker.intake import Intake
from ariane.broker.schedule.alarm import Alarm
from ariane.broker.schedule.durable import log_durable
from ariane.broker.schedule.level import Level, LevelQueues, check_levels, levels_of
from ariane.broker.schedule.redelivery import delivered
from ariane.broker.system_topics import SCHEDULE
from ariane.broker.tables import TableFile
from ariane.clock import Clock
from ariane.errors import MessageRefused, RecordError, StoreCorrupt, StoreError, WireError
from ariane.lifecycle import background, every
from ariane.store.delay_levels import parse_levels
from ariane.store.service import StoreService
from ariane.store.steps import at_once
from ariane.wire.coerce import coerce
from ariane.wire.record_view import RecordView, verify
from ariane.wire.requests.offsets import DelayOffsetTable

log = logging.getLogger(__name__)

BATCH = 32
RETRY_MS = 1_000
"""After a put that failed, mostly because the disk is full. Apache waits ten seconds."""


class DelayedDelivery:
    """Made by `open`, which is its whole life. For the event loop alone."""

    def __init__(self, service: StoreService, intake: Intake, file: TableFile, clock: Clock) -> None:
        settings = service.store.settings
        delays_ms = parse_levels(settings.message_delay_levels)
        check_levels(delays_ms, settings.retention_hours)
        self._service = service
        self._intake = intake
        self._file = file
        self._clock = clock
        self._alarm = Alarm(clock)
        self._queues = LevelQueues(service.store)
        saved = _load(file)
        self._levels = levels_of(service.store, delays_ms, saved)
        self._saved = saved
        service.store.parts.dispatcher.on_arrival(self._arrived, topic=SCHEDULE)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, service: StoreService, intake: Intake, file: TableFile, clock: Clock, save_interval_s: float = 10.0
    ) -> AsyncIterator["DelayedDelivery"]:
        delivery = cls(service, intake, file, clock)
        saving = partial(every, clock, save_interval_s, delivery.save, save_interval_s)
        try:
            async with background(delivery.run, saving):
                yield delivery
        finally:
            await delivery.save()

    def _arrived(self, topic: str, queue_id: int, queue_end: int, delivery_ms: int) -> None:
        self._alarm.ring_by(delivery_ms)

    def offsets(self) -> dict[int, int]:
        """By level, the next entry to deliver; only of levels that were ever used."""
        return {level.number: level.offset for level in self._levels if self._queues.of(level) is not None}

    def progress(self) -> dict[int, tuple[int, int]]:
        """By level, the next entry to deliver and where its queue ends: Apache's scheduleMessageOffset_<level>."""
        queues = ((level, self._queues.of(level)) for level in self._levels)
        return {level.number: (level.offset, queue.max_offset) for level, queue in queues if queue is not None}

    # --- delivering -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        while True:
            await self.deliver_due()
            await self._alarm.wait(await self._next_ms())

    async def _next_ms(self) -> int | None:
        """Looks twice: by the second time all is in memory, and nothing can arrive while it looks (alarm.py)."""
        for level in self._levels:
            await self._service.run(self._queues.next_ms(level))
        looked_at = [at_once(self._queues.next_ms(level)) for level in self._levels]
        return min((ms for ms in looked_at if ms is not None), default=None)

    async def deliver_due(self) -> None:
        """Delivers until nothing is due. Others get their turn after every batch."""
        busy = self._levels
        while busy:
            busy = [level for level in busy if await self._deliver_batch(level)]
            await asyncio.sleep(0)

    async def _deliver_batch(self, level: Level) -> bool:
        """Whether the level had something due, and may have more."""
        count = await self._service.run(self._queues.due_count(level, self._clock.now_ms(), BATCH))
        if not count:
            return False
        try:
            result = await self._service.read(SCHEDULE, level.queue_id, level.offset, count)
            for record in result.slices:
                self._deliver(level, record)
        except (StoreError, OSError) as error:
            self._hold(level, error)
            return False
        level.offset = max(level.offset, result.next_offset)
        level.held_until_ms = 0
        return True

    def _deliver(self, level: Level, record: memoryview) -> None:
        """A StoreError when the store cannot take the message now: the level stays where it is."""
        view = verify(record)  # with the body's checksum: the copy gets a new one, which would cover damage up
        try:
            if not isinstance(view, RecordView):
                raise RecordError(f"no record any more: {getattr(view, 'reason', 'a blank one')}")
            message = delivered(incoming_of(record))
            if message is not None:
                self._intake.take(draft_of(message))
                self._intake.counters.level_deliveries[level.number] += 1
        except (MessageRefused, RecordError) as error:  # it will never be possible, and others wait behind it
            facts = {"level": level.number, "offset": level.offset, "reason": str(error)}
            log.error("delayed message dropped", extra=facts)  # noqa: TRY400
        if isinstance(view, RecordView):
            level.offset = max(level.offset, view.queue_offset + 1)

    def _hold(self, level: Level, error: Exception) -> None:
        if not level.held_until_ms:
            facts = {"level": level.number, "offset": level.offset, "reason": str(error)}
            log.warning("delayed messages not delivered yet", extra=facts)
        level.held_until_ms = self._clock.now_ms() + RETRY_MS

    # --- saving -----------------------------------------------------------------------------------------------------

    async def save(self) -> None:
        offsets = self.offsets()
        if offsets == self._saved or not await log_durable(self._service):
            return
        try:
            await asyncio.to_thread(self._file.save, DelayOffsetTable(offset_table=offsets))
        except (OSError, StoreError) as error:
            log.warning("delay offsets not saved", extra={"reason": str(error)})
        else:
            self._saved = offsets


def _load(file: TableFile) -> dict[int, int]:
    content = file.load()
    if content is None:
        return {}
    try:
        return coerce(DelayOffsetTable, content).offset_table
    except WireError as error:
        raise StoreCorrupt(
            f"{file.path}: {error}; mend it, or remove it and its .bak: delayed messages that are still in the log are "
            "then delivered once more"
        ) from error
