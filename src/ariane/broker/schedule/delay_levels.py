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
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from ariane.broker.json_table import JsonTable
from ariane.broker.writer import TIMER_OUT_MS, InboundMessage, MessageWriter, draft_of, incoming_of
from ariane.clock import Clock
from ariane.errors import MessageRefused, RecordError, SettingsError, StoreCorrupt, StoreError, StoreReadOnly, WireError
from ariane.lifecycle import TaskSet, background, every
from ariane.model.message import Property
from ariane.model.system_topics import SCHEDULE, TIMER, TRANS_HALF, parse_levels
from ariane.store.append.draft import Appended
from ariane.store.blocking_io import IoSteps, run_sync
from ariane.store.consume_queue.entry import ENTRY
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.message_store import MessageStore
from ariane.store.service import StoreService
from ariane.wire.json.coerce import coerce
from ariane.wire.record.read import RecordView, verify
from ariane.wire.requests.offsets import DelayOffsetTable

# --- level ---
#
# One delay level: how far its queue has been delivered, and what of it is due.

_HOUR_MS = 3_600_000
_DELAY_UNKNOWN_MS = 1 << 60


@dataclass(slots=True)
class Level:
    number: int
    delay_ms: int
    offset: int = 0
    """The next entry to deliver."""
    retry_at_ms: int = 0
    """After a failure: not before this; 0 when the last attempt went well."""

    @property
    def queue_id(self) -> int:
        return self.number - 1

    def is_due(self, delivery_ms: int, now_ms: int) -> bool:
        """A time further ahead than the level's own delay was written before the clock was set back: due, as Apache
        has it. The message then comes early by as much; waiting instead might take years."""
        return delivery_ms <= now_ms or delivery_ms > now_ms + self.delay_ms


class LevelQueues:
    """The queues of the schedule topic."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def of(self, level: Level) -> ConsumeQueue | None:
        """The level's queue, with `level.offset` inside it; None when nothing was ever put there."""
        queue = self._store.components.queues.get(SCHEDULE, level.queue_id)
        if queue is not None and not queue.min_offset <= level.offset <= queue.max_offset:
            # Below: retention took what came before. Above: this is another queue than the one that was followed.
            level.offset = queue.min_offset
        return queue

    def due_count(self, level: Level, now_ms: int, count_max: int) -> IoSteps[int]:
        """How many entries from `level.offset` on are due, up to the first that is not."""
        times = [] if level.retry_at_ms > now_ms else (yield from self._times(level, count_max))
        waiting = (index for index, time_ms in enumerate(times) if not level.is_due(time_ms, now_ms))
        return next(waiting, len(times))

    def next_ms(self, level: Level) -> IoSteps[int | None]:
        """When the level is to be looked at again; None when it is empty."""
        times = yield from self._times(level, 1)
        return max(times[0], level.retry_at_ms) if times else None

    def _times(self, level: Level, count_max: int) -> IoSteps[list[int]]:
        queue, times = self.of(level), list[int]()
        if queue is None:
            return times
        yield from queue.warm(level.offset, count_max)
        for _, _, tags_code in ENTRY.iter_unpack(queue.entries(level.offset, count_max)):
            own_ms = tags_code > 0
            times.append(tags_code if own_ms else (yield from self._by_store_time(queue, level, len(times))))
        return times

    def _by_store_time(self, queue: ConsumeQueue, level: Level, index: int) -> IoSteps[int]:
        """For an entry without a time of its own: Apache may have put it into a file beside the queue."""
        stored_ms = yield from self._store.lookup.store_time_steps(queue, level.offset + index)
        return (stored_ms or 0) + level.delay_ms


def levels_of(store: MessageStore, delays_ms: tuple[int, ...], offsets: dict[int, int]) -> list[Level]:
    """The levels as the settings have them, and those of earlier settings whose messages still wait."""
    used = max((queue_id + 1 for queue_id in store.components.queues.of_topic(SCHEDULE)), default=0)
    forgotten = range(len(delays_ms) + 1, used + 1)
    levels = [*enumerate(delays_ms, 1), *((number, _DELAY_UNKNOWN_MS) for number in forgotten)]
    return [Level(number, delay_ms, offsets.get(number, 0)) for number, delay_ms in levels]


def check_levels(levels_ms: tuple[int, ...], retention_hours: int) -> None:
    """Refuses levels whose messages retention may delete before they are due."""
    for number, delay_ms in enumerate(levels_ms, 1):
        if delay_ms >= retention_hours * _HOUR_MS:
            raise SettingsError(
                f"messageDelayLevel: level {number} waits {delay_ms // 1000} s, but fileReservedTime keeps messages "
                f"only {retention_hours} h: raise fileReservedTime, shorten the level, or send with a delivery time"
            )


# --- alarm ---
#
# Sleep until a wall time, or until somebody knows of an earlier one.

CLOCK_CHECK_INTERVAL_S = 10.0
"""A sleep counts its seconds and does not see that the wall clock was set: so often it is looked at."""

_NEVER_MS = 1 << 62


class WakeupTimer:
    """One waiter. While nobody waits, calls for a wake-up are ignored: the waiter looks at all there is before it waits
    again, and must not be suspended between that look and `wait`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._woken = asyncio.Event()
        self._at_ms = 0

    def wake_by(self, at_ms: int) -> None:
        """Something is due at `at_ms`: wakes the waiter if it means to sleep longer."""
        if at_ms < self._at_ms:
            self._woken.set()

    async def wait(self, at_ms: int | None) -> None:
        """Returns at `at_ms`, or earlier: the waiter looks at the clock itself. None: only `wake_by` ends it."""
        self._woken.clear()
        self._at_ms = _NEVER_MS if at_ms is None else at_ms
        sleep = TaskSet()
        if at_ms is not None:
            sleep.spawn(self._wake_after(min(max(at_ms - self._clock.now_ms(), 0) / 1000, CLOCK_CHECK_INTERVAL_S)))
        try:
            await self._woken.wait()
        finally:
            self._at_ms = 0
            sleep.cancel()

    async def _wake_after(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._woken.set()


# --- durable ---
#
# Progress may be noted only when what it rests on cannot be lost.

log = logging.getLogger(__name__)


async def wait_log_durable(service: StoreService) -> bool:
    """Waits until all that is in the log now is durable; whether it is. Not: nothing may be noted this time."""
    end = service.store.components.commit_log.max_offset
    try:
        await service.wait_durable([Appended(end, 0, 0, 0)])
    except (TimeoutError, StoreReadOnly) as error:
        log.warning("progress of waiting messages not noted", extra={"reason": str(error) or "the sync takes too long"})
        return False
    return True


# --- redelivery ---
#
# A message that waited, as it goes on: to the topic it was sent to, looking as if it had been sent just now.

TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_CANCELS = "TIMER_DEL_UNIQKEY"

# What made the message wait, and the way back, are done with. Apache leaves DELAY, REAL_TOPIC and REAL_QID behind on
# messages of a delay level; no client reads them there, and a DELAY that is left makes a copy of the message wait too.
_REMOVED_PROPERTIES = (
    Property.DELAY,
    Property.TIMER_DELAY_SEC,
    Property.TIMER_DELAY_MS,
    Property.REAL_TOPIC,
    Property.REAL_QUEUE_ID,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
)
_TRIGGERS = (Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS, Property.TIMER_DELIVER_MS)


def delivered(message: InboundMessage) -> InboundMessage | None:
    """The message for its real topic; None when it may not go there. RecordError when it does not say where."""
    topic = message.properties.get(Property.REAL_TOPIC, "")
    if topic == TRANS_HALF:  # it would be a half message that no producer prepared
        return None
    queue_id = message.properties.get(Property.REAL_QUEUE_ID, "")
    if not topic or not (queue_id.isascii() and queue_id.isdigit()):
        raise RecordError(f"REAL_TOPIC is {topic[:127]!r} and REAL_QID {queue_id[:20]!r}: no place to deliver to")
    properties = {name: value for name, value in message.properties.items() if name not in _REMOVED_PROPERTIES}
    if due := message.properties.get(TIMER_OUT_MS):
        properties[Property.TIMER_DELIVER_MS] = due  # in the past now: what consumers show as the delivery time
    properties[Property.WAIT] = "false"
    return replace(message, topic=topic, queue_id=int(queue_id), properties=properties)


def rolled(message: InboundMessage) -> InboundMessage:
    """The message for the end of the timer topic, so that retention does not reach it before its time."""
    properties = {name: value for name, value in message.properties.items() if name not in _TRIGGERS}
    times = properties.get(TIMER_ROLL_TIMES, "")
    properties[TIMER_ROLL_TIMES] = str(int(times) + 1 if times.isascii() and times.isdigit() else 1)
    properties[Property.WAIT] = "false"
    return replace(message, topic=TIMER, queue_id=0, properties=properties)


def due_ms(properties: dict[str, str]) -> int:
    """When a message of the timer topic is due. One that does not say is due now: nothing is gained by keeping it."""
    text = properties.get(TIMER_OUT_MS, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def cancellation_keys(message: InboundMessage) -> tuple[str, str]:
    """What another message must name to call this one off: its unique key, alone or behind the topic as 5.3 has it."""
    key = message.properties.get(Property.UNIQUE_KEY, "")
    return key, f"{message.properties.get(Property.REAL_TOPIC)}_{key}"


# ---

BATCH = 32
RETRY_MS = 1_000
"""After a put that failed, mostly because the disk is full. Apache waits ten seconds."""


class DelayedDelivery:
    """Made by `open`, which is its whole life. For the event loop alone."""

    def __init__(self, service: StoreService, intake: MessageWriter, file: JsonTable, clock: Clock) -> None:
        settings = service.store.settings
        delays_ms = parse_levels(settings.message_delay_levels)
        check_levels(delays_ms, settings.retention_hours)
        self._service = service
        self._intake = intake
        self._file = file
        self._clock = clock
        self._wakeup = WakeupTimer(clock)
        self._queues = LevelQueues(service.store)
        saved = _load(file)
        self._levels = levels_of(service.store, delays_ms, saved)
        self._saved = saved
        service.store.components.dispatcher.on_arrival(self._on_arrival, topic=SCHEDULE)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, service: StoreService, intake: MessageWriter, file: JsonTable, clock: Clock, save_interval_s: float = 10.0
    ) -> AsyncIterator["DelayedDelivery"]:
        delivery = cls(service, intake, file, clock)
        saving = partial(every, clock, save_interval_s, delivery.save, save_interval_s)
        try:
            async with background(delivery.run, saving):
                yield delivery
        finally:
            await delivery.save()

    def _on_arrival(self, topic: str, queue_id: int, queue_end: int, delivery_ms: int) -> None:
        self._wakeup.wake_by(delivery_ms)

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
            await self._wakeup.wait(await self._next_ms())

    async def _next_ms(self) -> int | None:
        """Looks twice: by the second time all is in memory, and nothing can arrive while it looks (alarm.py)."""
        for level in self._levels:
            await self._service.run(self._queues.next_ms(level))
        looked_at = [run_sync(self._queues.next_ms(level)) for level in self._levels]
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
            self._schedule_retry(level, error)
            return False
        level.offset = max(level.offset, result.next_offset)
        level.retry_at_ms = 0
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

    def _schedule_retry(self, level: Level, error: Exception) -> None:
        if not level.retry_at_ms:
            facts = {"level": level.number, "offset": level.offset, "reason": str(error)}
            log.warning("delayed messages not delivered yet", extra=facts)
        level.retry_at_ms = self._clock.now_ms() + RETRY_MS

    # --- saving -----------------------------------------------------------------------------------------------------

    async def save(self) -> None:
        offsets = self.offsets()
        if offsets == self._saved or not await wait_log_durable(self._service):
            return
        try:
            await asyncio.to_thread(self._file.save, DelayOffsetTable(offset_table=offsets))
        except (OSError, StoreError) as error:
            log.warning("delay offsets not saved", extra={"reason": str(error)})
        else:
            self._saved = offsets


def _load(file: JsonTable) -> dict[int, int]:
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


# --- __init__ ---
#
# Messages that wait: delay levels, and delivery times of their own.
