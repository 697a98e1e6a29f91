"""Delivery of messages with a delay level, and helpers shared with the timer.

Each level has a queue of the schedule topic, which is in delivery order because all its messages have the same delay.
One job looks at the first entry of each level, delivers due messages in small batches, one batch per level in turn, and
sleeps until the next entry is due or an earlier one arrives. Nothing is delivered early by the wall clock; see
`Level.is_due` for a clock that was set back.

The offset of each level is saved every ten seconds and at the end (`config/delayOffset.json`, Apache's format), but
only after the delivered messages are durable in the log: after a power failure a message may be delivered twice, but
none is lost. After each batch the offsets are also written to `config/delayOffset.progress` (schedule/progress.py), so
that a kill of the process repeats one batch of a level at most.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from ariane.broker.json_table import JsonTable
from ariane.broker.schedule.progress import ProgressFile
from ariane.broker.writer import TIMER_OUT_MS, InboundMessage, MessageWriter, draft_of, inbound_message_of
from ariane.clock import Clock
from ariane.errors import MessageRefused, RecordError, SettingsError, StoreCorrupt, StoreError, WireError
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

# --- levels and their queues ---

_HOUR_MS = 3_600_000
_DELAY_UNKNOWN_MS = 1 << 60


@dataclass(slots=True)
class Level:
    """One delay level and its delivery offset."""

    number: int
    delay_ms: int
    offset: int = 0
    """The next entry to deliver."""
    retry_at_ms: int = 0
    """After a failure: no attempt before this time; 0 if the last attempt succeeded."""

    @property
    def queue_id(self) -> int:
        return self.number - 1

    def is_due(self, delivery_ms: int, now_ms: int) -> bool:
        """A time further ahead than the level's delay was written before the clock was set back: due, as in Apache. The
        message is then early by the amount that the clock was set back; waiting could take years."""
        return delivery_ms <= now_ms or delivery_ms > now_ms + self.delay_ms


class LevelQueues:
    """The queues of the schedule topic."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def of(self, level: Level) -> ConsumeQueue | None:
        """The level's queue, with `level.offset` corrected to be inside it; None if it was never used."""
        queue = self._store.components.queues.get(SCHEDULE, level.queue_id)
        if queue is not None and not queue.min_offset <= level.offset <= queue.max_offset:
            # Below: retention deleted the earlier entries. Above: the queue was recreated.
            level.offset = queue.min_offset
        return queue

    def due_count(self, level: Level, now_ms: int, count_max: int) -> IoSteps[int]:
        """The number of due entries from `level.offset` up to the first that is not due."""
        times = [] if level.retry_at_ms > now_ms else (yield from self._times(level, count_max))
        waiting = (index for index, time_ms in enumerate(times) if not level.is_due(time_ms, now_ms))
        return next(waiting, len(times))

    def next_ms(self, level: Level) -> IoSteps[int | None]:
        """When to check the level again; None if it is empty."""
        times = yield from self._times(level, 1)
        return max(times[0], level.retry_at_ms) if times else None

    def _times(self, level: Level, count_max: int) -> IoSteps[list[int]]:
        queue, times = self.of(level), list[int]()
        if queue is None:
            return times
        yield from queue.warm(level.offset, count_max)
        for _, _, tags_code in ENTRY.iter_unpack(queue.entries(level.offset, count_max)):
            has_time = tags_code > 0
            times.append(tags_code if has_time else (yield from self._by_store_time(queue, level, len(times))))
        return times

    def _by_store_time(self, queue: ConsumeQueue, level: Level, index: int) -> IoSteps[int]:
        """For an entry without a delivery time: Apache may have stored it in an extension file of the queue."""
        stored_ms = yield from self._store.lookup.store_time_steps(queue, level.offset + index)
        return (stored_ms or 0) + level.delay_ms


def levels_of(store: MessageStore, delays_ms: tuple[int, ...], offsets: dict[int, int]) -> list[Level]:
    """The configured levels, and levels of earlier settings that still have messages."""
    used = max((queue_id + 1 for queue_id in store.components.queues.of_topic(SCHEDULE)), default=0)
    removed = range(len(delays_ms) + 1, used + 1)
    levels = [*enumerate(delays_ms, 1), *((number, _DELAY_UNKNOWN_MS) for number in removed)]
    return [Level(number, delay_ms, offsets.get(number, 0)) for number, delay_ms in levels]


def check_levels(levels_ms: tuple[int, ...], retention_hours: int) -> None:
    """SettingsError for levels whose messages retention could delete before they are due."""
    for number, delay_ms in enumerate(levels_ms, 1):
        if delay_ms >= retention_hours * _HOUR_MS:
            raise SettingsError(
                f"messageDelayLevel: level {number} waits {delay_ms // 1000} s, but fileReservedTime keeps messages "
                f"only {retention_hours} h: raise fileReservedTime, shorten the level, or use a delivery time instead"
            )


# --- wake-up timer ---

CLOCK_CHECK_INTERVAL_S = 10.0
"""A sleep does not notice a change of the wall clock, so it is checked at this interval."""

_NEVER_MS = 1 << 62


class WakeupTimer:
    """Sleeps until a wall-clock time, or until an earlier time is announced. One waiter.

    Wake-ups are ignored while the waiter is not waiting: it checks everything before it waits again, and must not be
    suspended between that check and `wait`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._woken = asyncio.Event()
        self._at_ms = 0

    def wake_by(self, at_ms: int) -> None:
        """Something is due at `at_ms`: wakes the waiter if it would sleep longer."""
        if at_ms < self._at_ms:
            self._woken.set()

    async def wait(self, at_ms: int | None) -> None:
        """Returns at `at_ms` or earlier: the waiter checks the clock itself. None: only `wake_by` ends it."""
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


# --- durability of progress ---

log = logging.getLogger(__name__)


async def wait_log_durable(service: StoreService) -> bool:
    """Waits until the current end of the log is durable, and confirmed where that is asked for. False: progress must
    not be saved this time."""
    end = service.store.components.commit_log.max_offset
    try:
        await service.wait_safe([Appended(end, 0, 0, 0)])
    except (TimeoutError, StoreError) as error:
        log.warning("progress of delayed messages not saved", extra={"reason": str(error) or "the sync takes too long"})
        return False
    return True


# --- conversion of delayed messages ---

TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_CANCELS = "TIMER_DEL_UNIQKEY"

# The delay and the original topic and queue are obsolete after delivery. Apache leaves DELAY, REAL_TOPIC and REAL_QID
# on messages of a delay level; no client reads them there, and a remaining DELAY delays a copy of the message too.
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


def to_real_topic(message: InboundMessage) -> InboundMessage | None:
    """The message for its original topic; None if it must not be delivered. RecordError without a valid target."""
    topic = real_topic(message)
    if topic == TRANS_HALF:  # it would become a half message that no producer sent
        return None
    queue_id = message.properties.get(Property.REAL_QUEUE_ID, "")
    if not topic or not (queue_id.isascii() and queue_id.isdigit()):
        raise RecordError(f"REAL_TOPIC is {topic[:127]!r} and REAL_QID {queue_id[:20]!r}: cannot be delivered")
    properties = {name: value for name, value in message.properties.items() if name not in _REMOVED_PROPERTIES}
    if due := message.properties.get(TIMER_OUT_MS):
        properties[Property.TIMER_DELIVER_MS] = due  # in the past now; consumers show it as the delivery time
    properties[Property.WAIT] = "false"
    return replace(message, topic=topic, queue_id=int(queue_id), properties=properties)


def to_timer_topic(message: InboundMessage) -> InboundMessage:
    """The message to append again to the timer topic, so that retention does not delete it before it is due."""
    properties = {name: value for name, value in message.properties.items() if name not in _TRIGGERS}
    times = properties.get(TIMER_ROLL_TIMES, "")
    properties[TIMER_ROLL_TIMES] = str(int(times) + 1 if times.isascii() and times.isdigit() else 1)
    properties[Property.WAIT] = "false"
    return replace(message, topic=TIMER, queue_id=0, properties=properties)


def due_ms(properties: dict[str, str]) -> int:
    """When a message of the timer topic is due. Without a valid time it is due now: waiting would not help."""
    text = properties.get(TIMER_OUT_MS, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def real_topic(message: InboundMessage) -> str:
    return message.properties.get(Property.REAL_TOPIC, "")


class Cancellation(NamedTuple):
    topic: str
    """Of both messages: only who may send to a topic may cancel a message of it."""
    key: str
    at_ms: int


def cancellations_of(message: InboundMessage) -> tuple[Cancellation, Cancellation]:
    """What cancels this message: its unique key, alone or prefixed with the topic as in 5.3."""
    key, topic, at_ms = message.properties.get(Property.UNIQUE_KEY, ""), real_topic(message), due_ms(message.properties)
    return Cancellation(topic, key, at_ms), Cancellation(topic, f"{topic}_{key}", at_ms)


# --- delivery job ---

BATCH = 32
RETRY_MS = 1_000
"""Delay after a failed append, mostly because the disk is full. Apache waits ten seconds."""


class DelayedDelivery:
    """Create it with `open`, which runs its jobs. Use on the event loop only."""

    def __init__(self, service: StoreService, writer: MessageWriter, file: JsonTable, clock: Clock) -> None:
        settings = service.store.settings
        delays_ms = parse_levels(settings.message_delay_levels)
        check_levels(delays_ms, settings.retention_hours)
        self._service = service
        self._writer = writer
        self._file = file
        self._clock = clock
        self._wakeup = WakeupTimer(clock)
        self._queues = LevelQueues(service.store)
        self._progress = ProgressFile.of(service.store.components, file.path.with_suffix(".progress"))
        self._saved = _load(file)
        self._levels = levels_of(service.store, delays_ms, self._furthest_offsets())
        service.store.components.dispatcher.on_arrival(self._on_arrival, topic=SCHEDULE)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, service: StoreService, writer: MessageWriter, file: JsonTable, clock: Clock, save_interval_s: float = 10.0
    ) -> AsyncIterator["DelayedDelivery"]:
        """A slave delivers nothing: its master does, and says how far it is (`copy_offsets`)."""
        delivery = cls(service, writer, file, clock)
        if service.store.is_following:
            try:
                yield delivery
            finally:
                delivery.close()
            return
        saving = partial(every, clock, save_interval_s, delivery.save, save_interval_s)
        try:
            async with background(delivery.run, saving):
                yield delivery
        finally:
            await delivery.save()
            delivery.close()

    def close(self) -> None:
        if self._saved == self.offsets():
            self._progress.clear()
        self._progress.close()

    def _furthest_offsets(self) -> dict[int, int]:
        """By level: as saved, or as written after the last save."""
        written = self._progress.read() or ()
        return self._saved | {
            number: offset for number, offset in enumerate(written, 1) if offset > self._saved.get(number, 0)
        }

    def _on_arrival(self, topic: str, queue_id: int, queue_end: int, delivery_ms: int) -> None:
        self._wakeup.wake_by(delivery_ms)

    def offsets(self) -> dict[int, int]:
        """By level: the next entry to deliver; only levels that were ever used."""
        return {level.number: level.offset for level in self._levels if self._queues.of(level) is not None}

    def progress(self) -> dict[int, tuple[int, int]]:
        """By level: the next entry to deliver and the end of its queue (Apache's scheduleMessageOffset_<level>)."""
        queues = ((level, self._queues.of(level)) for level in self._levels)
        return {level.number: (level.offset, queue.visible_end) for level, queue in queues if queue is not None}

    # --- delivering -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        while True:
            await self.deliver_due()
            await self._wakeup.wait(await self._next_ms())

    async def _next_ms(self) -> int | None:
        """Reads twice: the second pass finds all entries in memory and does not suspend (see WakeupTimer)."""
        for level in self._levels:
            await self._service.run(self._queues.next_ms(level))
        times = [run_sync(self._queues.next_ms(level)) for level in self._levels]
        return min((ms for ms in times if ms is not None), default=None)

    async def deliver_due(self) -> None:
        """Delivers until nothing is due. Yields to the event loop after every round of batches."""
        busy = self._levels
        while busy:
            busy = [level for level in busy if await self._deliver_batch(level)]
            await asyncio.sleep(0)

    async def _deliver_batch(self, level: Level) -> bool:
        """Delivers one batch; returns whether there was one, and there may be more."""
        count = await self._service.run(self._queues.due_count(level, self._clock.now_ms(), BATCH))
        if not count:
            return False
        try:
            result = await self._service.read(SCHEDULE, level.queue_id, level.offset, count)
            for record in result.slices:
                self._deliver(level, record)
        except (StoreError, OSError) as error:
            self._schedule_retry(level, error)
            self._write_progress()
            return False
        level.offset = max(level.offset, result.next_offset)
        level.retry_at_ms = 0
        self._write_progress()
        return True

    def _write_progress(self) -> None:
        self._service.after_confirmed(partial(self._progress.write, [level.offset for level in self._levels]))

    def _deliver(self, level: Level, record: memoryview) -> None:
        """StoreError if the store cannot accept the message now: the level's offset stays."""
        view = verify(record)  # with the body checksum: the copy gets a new one, which would hide damage
        try:
            if not isinstance(view, RecordView):
                raise RecordError(f"not a valid record: {getattr(view, 'reason', 'blank')}")
            message = to_real_topic(inbound_message_of(record))
            if message is not None:
                self._writer.append(draft_of(message))
                self._writer.counters.level_deliveries[level.number] += 1
        except (MessageRefused, RecordError) as error:  # retrying would not help, and other messages wait behind it
            fields = {"level": level.number, "offset": level.offset, "reason": str(error)}
            log.error("delayed message dropped", extra=fields)  # noqa: TRY400
        if isinstance(view, RecordView):
            level.offset = max(level.offset, view.queue_offset + 1)

    def _schedule_retry(self, level: Level, error: Exception) -> None:
        if not level.retry_at_ms:
            fields = {"level": level.number, "offset": level.offset, "reason": str(error)}
            log.warning("delayed messages could not be delivered, retrying", extra=fields)
        level.retry_at_ms = self._clock.now_ms() + RETRY_MS

    async def copy_offsets(self, offsets: Mapping[int, int]) -> None:
        """Takes over the master's progress, at a slave, so that it can deliver on when it is made a master."""
        for level in self._levels:
            level.offset = offsets.get(level.number, level.offset)
        if dict(offsets) == self._saved:
            return
        try:
            await asyncio.to_thread(self._file.save, DelayOffsetTable(offset_table=dict(offsets)))
        except OSError as error:
            raise StoreError(f"{self._file.path} cannot be saved: {error.strerror}") from error
        self._saved = dict(offsets)
        self._progress.clear()

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
            f"{file.path}: {error}; correct it, or remove it, its .bak and its .progress: delayed messages that are "
            "still in the log are then delivered again"
        ) from error
