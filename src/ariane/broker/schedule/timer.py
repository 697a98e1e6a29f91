"""Delivery of messages with a delivery time (the timer). docs/decisions/timer.md has the design reasons.

    timer topic ──TimerEnqueuer──▶ TimerWheel ──TimerDrainer──▶ real topic
    (queue 0)                  slots in memory            or, when it waits longer than the roll window,
         ▲                     units in timer/            back to the end of the timer topic
         └──────────────────────────────────────────────────────┘

The order of writes makes a crash at any point safe. A checkpoint is written after the delivered messages are durable in
the commit log and the units of the enqueued messages are durable in the timer log. Units after the checkpoint are
discarded, and their messages are read from the topic again. So a message may be delivered twice, but none is lost and
none is early. After each batch the same state is also written to `timer/progress` (schedule/progress.py), so that a
kill of the process repeats one batch at most.

A message that is due in a week would be deleted by retention after three days. So a message that has waited for the
roll window, well below the retention time, is appended to the timer topic again.

A message that is due too far ahead (timerMaxDelaySec) never gets here: broker/writer.py refuses it (`deferred`).
"""

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ariane.broker.schedule.delay_levels import (
    TIMER_CANCELS,
    Cancellation,
    WakeupTimer,
    cancellations_of,
    due_ms,
    real_topic,
    to_real_topic,
    to_timer_topic,
    wait_log_durable,
)
from ariane.broker.schedule.progress import ProgressFile
from ariane.broker.schedule.timer_log import (
    FILE_BYTES,
    NO_UNIT,
    TimerCheckpoint,
    TimerLog,
    TimerUnit,
    read_apache_checkpoint,
    read_timer_checkpoint,
    write_timer_checkpoint,
)
from ariane.broker.schedule.timer_wheel import TimerWheel
from ariane.broker.writer import InboundMessage, MessageWriter, draft_of, inbound_message_of
from ariane.clock import Clock
from ariane.errors import MessageRefused, RecordError, SettingsError, StoreCorrupt, StoreError, StoreMismatch
from ariane.lifecycle import background, every
from ariane.model.system_topics import TIMER
from ariane.store.blocking_io import IoSteps, run_in_executor
from ariane.store.commit_log.log import CommitLog, Segment
from ariane.store.disk import Disk
from ariane.store.layout import offset_of
from ariane.store.service import StoreService
from ariane.wire.record.read import RecordView, verify

# --- deliver or roll ---

log = logging.getLogger(__name__)

_HOUR_MS = 3_600_000
ROLL_WINDOW_MS_MAX = 48 * _HOUR_MS


def roll_window_ms(retention_hours: int) -> int:
    """How long a message waits before it is appended again: two thirds of the retention time, at most two days."""
    if retention_hours < 1:
        raise SettingsError(
            "fileReservedTime = 0 would delete waiting messages: set it to 1 or more, or set timerWheelEnable=false"
        )
    return min(ROLL_WINDOW_MS_MAX, retention_hours * _HOUR_MS * 2 // 3)


class TimerDeliverer:
    """Handles a message at its wake-up time: delivers it if it is due, otherwise appends it to the timer topic."""

    def __init__(self, writer: MessageWriter) -> None:
        self._writer = writer
        self.dropped = 0
        """Messages that could not be delivered: deleted from the log, or without a valid target."""

    def read(self, record: bytes | memoryview | None, physical_offset: int) -> InboundMessage | None:
        """The message; None, counted and logged, if it is gone: retention on a full disk may have deleted it."""
        try:
            if record is None:
                raise RecordError("its record is no longer in the commit log, or is damaged")
            _check(record, physical_offset)
            return inbound_message_of(memoryview(record))
        except RecordError as error:
            self._drop(physical_offset, error)
            return None

    def deliver_or_roll(self, message: InboundMessage, physical_offset: int, now_ms: int) -> None:
        """Appends the message to its real topic or the timer topic. StoreError if the store cannot accept it: retry."""
        try:
            following = to_timer_topic(message) if due_ms(message.properties) > now_ms else _deliverable(message)
            if following is not None:
                self._writer.append(draft_of(following))
                self._writer.counters.timer_deliveries += following.topic != TIMER
        except (MessageRefused, RecordError) as error:
            self._drop(physical_offset, error)

    def _drop(self, physical_offset: int, error: Exception) -> None:
        self.dropped += 1
        log.error("waiting message dropped", extra={"offset": physical_offset, "reason": str(error)})


def _check(record: bytes | memoryview, physical_offset: int) -> None:
    """Verifies the record, with the body checksum: a copy gets a new one, which would hide damage."""
    view = verify(record)
    if not isinstance(view, RecordView):
        raise RecordError(f"not a valid record: {getattr(view, 'reason', 'blank')}")
    if view.physical_offset != physical_offset or view.topic != TIMER:
        raise RecordError(f"found a message of topic {view.topic} with offset {view.physical_offset} instead")


def _deliverable(message: InboundMessage) -> InboundMessage | None:
    return None if TIMER_CANCELS in message.properties else to_real_topic(message)


# --- from the timer topic to the wheel ---

BATCH = 32


class TimerEnqueuer:
    """Reads the timer topic in order and adds each message to the wheel."""

    def __init__(
        self, service: StoreService, wheel: TimerWheel, deliverer: TimerDeliverer, window_ms: int, offset: int
    ) -> None:
        self._service = service
        self._wheel = wheel
        self._deliverer = deliverer
        self._window_ms = window_ms
        self.offset = offset
        """The next message to enqueue."""
        self.known_below = 0
        self.known_ms = 0
        """When the topic is read again: messages before `known_below` with a time before this are already delivered."""
        self.known_window_ms = 0
        """The roll window of who delivered them; 0: ours."""

    async def step(self, now_ms: int) -> bool:
        """Enqueues one batch; returns whether there was one. StoreError if the store cannot accept more now."""
        queue = self._service.store.components.queues.get(TIMER, 0)
        if queue is None:
            return False
        if not queue.min_offset <= self.offset <= queue.max_offset:
            self.offset = queue.min_offset
        if self.offset >= queue.visible_end:
            return False
        if not self._wheel.log.has_room:
            self._wheel.log.adopt(await asyncio.to_thread(self._wheel.log.make_file))
        result = await self._service.read(TIMER, 0, self.offset, BATCH)
        for record in result.slices:
            if not self._wheel.log.has_room:
                return True
            view = verify(record, check_body_crc=False)
            if isinstance(view, RecordView):
                self._enqueue(record, view, now_ms)
                self.offset = max(self.offset, view.queue_offset + 1)
            else:
                log.error("waiting message dropped", extra={"queue_offset": self.offset, "reason": str(view)})
        self.offset = max(self.offset, result.next_offset)
        return True

    def _enqueue(self, record: memoryview, view: RecordView, now_ms: int) -> None:
        """Computes the wake-up time from the record alone, so that reading the topic again gives the same time."""
        due, stored = _due_ms(view), view.store_timestamp_ms
        if view.queue_offset < self.known_below:
            window_ms = self.known_window_ms or self._window_ms
            if min(due, stored + window_ms) < self.known_ms:
                return
        wake_ms = min(due, stored + self._window_ms)
        if wake_ms > now_ms:
            self._wheel.add(wake_ms, view.physical_offset, view.size)
        elif (message := self._deliverer.read(record, view.physical_offset)) is not None:
            # Not via the wheel: after a crash a unit with a time before the cursor would count as delivered.
            self._deliverer.deliver_or_roll(message, view.physical_offset, now_ms)


def _due_ms(view: RecordView) -> int:
    try:
        return due_ms(view.properties())
    except RecordError:  # reported when the whole message is decoded
        return 0


# --- from the wheel to the topics ---

CHUNK_UNITS = 256
CHUNK_BYTES = 4 * 1024 * 1024
CANCELLED_MAX = 10_000
"""Cancellations per slot (a tenth of a second); messages cancelled beyond that are delivered nevertheless."""


class TimerDrainer:
    """Delivers expired slots in chunks of bounded size; after a failed append it continues at the same message."""

    def __init__(self, wheel: TimerWheel, commit_log: CommitLog, deliverer: TimerDeliverer) -> None:
        self._wheel = wheel
        self._log = commit_log
        self._deliverer = deliverer
        self._position = NO_UNIT  # the rest of the current slot, newest first
        self._ready: list[tuple[TimerUnit, InboundMessage]] = []  # decoded, in reverse delivery order
        self._cancelled: set[Cancellation] = set()

    def place(self) -> tuple[int, int] | None:
        """Where in the slot at the cursor to continue: `popped_at` of the wheel, and the newest unit that is not
        delivered; NO_UNIT for both if the slot is to be delivered from its beginning. None while a chunk is half
        delivered: its place has no name.

        A slot with cancellations begins again, because what they cancel may be in its rest.
        """
        if self._ready:
            return None
        if self._wheel.popped_at == NO_UNIT or (self._cancelled and self._position != NO_UNIT):
            return NO_UNIT, NO_UNIT
        return self._wheel.popped_at, self._position

    async def step(self, now_ms: int) -> bool:
        """Delivers one chunk; returns whether there was one. StoreError if the store cannot accept more now."""
        if not self._ready:
            if self._position == NO_UNIT:
                self._position = self._wheel.pop_expired_slot(now_ms)
                self._cancelled.clear()
            if self._position == NO_UNIT:
                return False
            await self._read_chunk()
        while self._ready:
            unit, message = self._ready[-1]
            self._deliverer.deliver_or_roll(message, unit.physical_offset, now_ms)
            self._ready.pop()
        return True

    async def _read_chunk(self) -> None:
        """Reads in threads: old records are often not in the page cache."""
        units = await asyncio.to_thread(self._wheel.chunk, self._position, CHUNK_UNITS, CHUNK_BYTES)
        await run_in_executor(self._log.warm(sorted((unit.physical_offset, unit.size) for unit in units)))
        locations = [(self._segment_of(unit), unit) for unit in units]
        records = await asyncio.to_thread(_read, locations)
        self._position = units[-1].previous
        self._wheel.pending -= len(units)
        self._prepare(zip(units, records, strict=True))

    def _segment_of(self, unit: TimerUnit) -> Segment | None:
        """None when the record is gone, or when it may be damaged."""
        if self._log.withholds(unit.physical_offset, unit.size):
            return None
        return self._log.segments.find(unit.physical_offset)

    def _prepare(self, records: Iterable[tuple[TimerUnit, bytes | None]]) -> None:
        messages = [(unit, self._deliverer.read(record, unit.physical_offset)) for unit, record in records]
        present = [(unit, message) for unit, message in messages if message is not None]
        for _, message in present:
            if (key := message.properties.get(TIMER_CANCELS)) and len(self._cancelled) < CANCELLED_MAX:
                self._cancelled.add(Cancellation(real_topic(message), key, due_ms(message.properties)))
        active = [pair for pair in present if not self._is_cancelled(pair[1])]
        self._ready = active[::-1]  # in send order, which the stable sort keeps among equal times
        self._ready.sort(key=lambda pair: pair[0].wake_ms)
        self._ready.reverse()

    def _is_cancelled(self, message: InboundMessage) -> bool:
        """Whether a later message with its topic, key and delivery time cancels it. That message is in the same slot
        and was read before, because units are read newest first."""
        return not self._cancelled.isdisjoint(cancellations_of(message))


def _read(locations: list[tuple[Segment | None, TimerUnit]]) -> list[bytes | None]:
    return [None if segment is None else _record(segment, unit) for segment, unit in locations]


def _record(segment: Segment, unit: TimerUnit) -> bytes | None:
    try:
        return segment.file.read(unit.size, unit.physical_offset - segment.base)
    except OSError as error:
        if error.errno == errno.EBADF:  # retention has just closed the file
            return None
        raise


# --- the timer ---

RETRY_MS = 1_000
CHECKPOINT_INTERVAL_S = 1.0


class TimerProgress(NamedTuple):
    """What a slave copies from its master, so that it can deliver on when it is made a master: messages of the timer
    topic before `known_below` were delivered, or stored again, if they waited for a time before `known_ms`."""

    known_below: int
    known_ms: int
    window_ms: int
    """How long a message waits before it is stored again; 0: unknown, as long as here."""


class TimerDelivery:
    """Create it with `open`, which runs its jobs. Use on the event loop only."""

    def __init__(
        self,
        service: StoreService,
        writer: MessageWriter,
        clock: Clock,
        restored: "_Restored",
        file_bytes: int = FILE_BYTES,
    ) -> None:
        parts = service.store.components
        self._file_bytes = file_bytes
        wheel, state = restored.wheel, restored.state
        self._service = service
        self._clock = clock
        self._wheel = wheel
        self._wakeup = WakeupTimer(clock)
        self._retry_at_ms = 0
        self._checkpoint = restored.checkpoint
        self._progress = restored.progress
        self._deliverer = TimerDeliverer(writer)
        self._window_ms = roll_window_ms(service.store.settings.retention_hours)
        self._enqueuer = TimerEnqueuer(service, wheel, self._deliverer, self._window_ms, state.queue_offset)
        self._enqueuer.known_below, self._enqueuer.known_ms = state.known_below, state.known_ms
        self._enqueuer.known_window_ms = state.known_window_ms
        self._drainer = TimerDrainer(wheel, parts.commit_log, self._deliverer)
        parts.dispatcher.on_arrival(self._on_arrival, topic=TIMER)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        service: StoreService,
        writer: MessageWriter,
        clock: Clock,
        checkpoint_interval_s: float = CHECKPOINT_INTERVAL_S,
        file_bytes: int = FILE_BYTES,
    ) -> AsyncIterator["TimerDelivery"]:
        """A slave delivers nothing: its master does."""
        delivery = await cls.restored(service, writer, clock, file_bytes)
        if service.store.is_following:
            try:
                yield delivery
            finally:
                delivery.close()
            return
        checkpoints = partial(every, clock, checkpoint_interval_s, delivery.write_checkpoint, checkpoint_interval_s)
        try:
            async with background(delivery.run, checkpoints):
                yield delivery
        finally:
            await delivery.write_checkpoint()
            if delivery._checkpoint == delivery._state():
                delivery._progress.clear()
            delivery.close()

    @classmethod
    async def restored(
        cls, service: StoreService, writer: MessageWriter, clock: Clock, file_bytes: int = FILE_BYTES
    ) -> "TimerDelivery":
        """Restores the last state, without starting the jobs."""
        parts = service.store.components
        directory, end, now_ms = directory_of(service), parts.commit_log.max_offset, clock.now_ms()
        progress = ProgressFile.of(parts, directory / "progress")
        restored = await asyncio.to_thread(
            _restore, parts.disk, directory, parts.layout.config, progress, end, now_ms, file_bytes
        )
        return cls(service, writer, clock, restored, file_bytes)

    def close(self) -> None:
        self._wheel.log.close()
        self._progress.close()

    @property
    def pending(self) -> int:
        """Number of messages in the wheel."""
        return self._wheel.pending

    @property
    def behind(self) -> int:
        """Number of messages of the timer topic that are not yet in the wheel."""
        queue = self._service.store.components.queues.get(TIMER, 0)
        return 0 if queue is None else max(0, queue.visible_end - self._enqueuer.offset)

    @property
    def dropped(self) -> int:
        """Number of messages that could not be delivered since the start; each is logged."""
        return self._deliverer.dropped

    def oldest_waiting(self) -> IoSteps[int | None]:
        """Commit log offset of the oldest waiting message, in the wheel or not yet enqueued; None if there is none."""
        offsets: list[int | None] = []
        since_ms = self._wheel.delivered_ms
        yield lambda: offsets.append(self._wheel.log.oldest_from(since_ms))
        queue = self._service.store.components.queues.get(TIMER, 0)
        if queue is not None:
            offsets.append((yield from queue.physical_offset_steps(max(self._enqueuer.offset, queue.min_offset))))
        return min((offset for offset in offsets if offset is not None), default=None)

    # --- delivering -------------------------------------------------------------------------------------------------

    def _on_arrival(self, topic: str, queue_id: int, queue_end: int, tags_code: int) -> None:
        self._wakeup.wake_by(self._retry_at_ms)

    async def run(self) -> None:
        while True:
            await self.run_until_idle()
            await self._wakeup.wait(self._next_ms())

    def _next_ms(self) -> int | None:
        return self._retry_at_ms or self._wheel.next_ms()

    async def run_until_idle(self) -> None:
        """Delivers due messages and enqueues new ones until there are none. Yields to the event loop after each batch.

        Expired slots have priority: while there are any, the ring must not be filled further.
        """
        if self._retry_at_ms > self._clock.now_ms():
            return
        try:
            is_busy = True
            while is_busy:
                is_busy = await self._step()
                self._write_progress()
                await asyncio.sleep(0)
        except (StoreError, OSError) as error:
            if not self._retry_at_ms:
                log.warning("timer messages could not be delivered, retrying", extra={"reason": str(error)})
            self._retry_at_ms = self._clock.now_ms() + RETRY_MS
            self._write_progress()
        else:
            self._retry_at_ms = 0

    def _write_progress(self) -> None:
        """Only once messages were enqueued: the timer may never be used."""
        place = self._drainer.place()
        if place is not None and self._enqueuer.offset:
            self._service.after_confirmed(partial(self._progress.write, (*astuple(self._state()), *place)))

    def _state(self) -> TimerCheckpoint:
        enqueuer, wheel = self._enqueuer, self._wheel
        known = (enqueuer.known_below, enqueuer.known_ms, enqueuer.known_window_ms)
        return TimerCheckpoint(wheel.delivered_ms, wheel.log.end, enqueuer.offset, *known)

    async def _step(self) -> bool:
        now_ms = self._clock.now_ms()
        dropping = self._wheel.log.drop_before(self._checkpoint.delivered_ms)
        await self._service.run(dropping)  # at this point no thread reads the log
        return await self._drainer.step(now_ms) or await self._enqueuer.step(now_ms)

    # --- of a master, for its slaves --------------------------------------------------------------------------------

    def progress(self) -> TimerProgress:
        state = self._state().read_again()
        return TimerProgress(state.known_below, state.known_ms, state.known_window_ms or self._window_ms)

    async def copy_progress(self, progress: TimerProgress) -> None:
        """Takes over the master's progress, at a slave that has what the master delivered until then. What this broker
        knew itself, perhaps as an earlier master, does not count any more: the timer topic is read again."""
        known_below, known_ms, window_ms = progress
        copied = TimerCheckpoint(known_ms, 0, 0, known_below, known_ms, window_ms)
        if not known_below or copied == self._checkpoint:
            return
        parts, directory = self._service.store.components, directory_of(self._service)
        self._progress.clear()
        if self._wheel.log.end:
            try:
                empty = await asyncio.to_thread(TimerLog.create_empty, parts.disk, directory, self._file_bytes)
            except OSError as error:
                raise StoreError(f"{directory} cannot be emptied: {error.strerror}") from error
            self._wheel.log.close()
            self._wheel = TimerWheel(empty, known_ms)
        await self._write_checkpoint_file(copied)

    # --- checkpoint -------------------------------------------------------------------------------------------------

    async def write_checkpoint(self) -> None:
        """Writes a checkpoint if the state has changed."""
        checkpoint = self._state()
        has_changed = (checkpoint.log_end, checkpoint.queue_offset) != (
            self._checkpoint.log_end,
            self._checkpoint.queue_offset,
        ) or (checkpoint.delivered_ms != self._checkpoint.delivered_ms and checkpoint.log_end > 0)
        if not has_changed or not await wait_log_durable(self._service):
            return
        try:
            await asyncio.to_thread(self._wheel.log.sync_now)
        except OSError as error:  # the state on disk is unknown: write no checkpoint, and make the store read-only
            self._service.store.flusher.failed(error)
            return
        await self._write_checkpoint_file(checkpoint)

    async def _write_checkpoint_file(self, checkpoint: TimerCheckpoint) -> None:
        disk, path = self._service.store.components.disk, checkpoint_path(directory_of(self._service))
        try:
            await asyncio.to_thread(write_timer_checkpoint, disk, path, checkpoint)
        except OSError as error:
            log.warning("timer checkpoint not written", extra={"reason": str(error)})
            return
        self._checkpoint = checkpoint


def directory_of(service: StoreService) -> Path:
    return service.store.components.layout.root / "timer"


def checkpoint_path(directory: Path) -> Path:
    return directory / "checkpoint"


@dataclass(frozen=True, slots=True)
class _Restored:
    wheel: TimerWheel
    state: TimerCheckpoint
    """Of the wheel: after a kill of the process it may be ahead of the checkpoint."""
    checkpoint: TimerCheckpoint
    """As the file has it."""
    progress: ProgressFile


def _restore(
    disk: Disk, directory: Path, config: Path, progress: ProgressFile, log_end: int, now_ms: int, file_bytes: int
) -> _Restored:
    """`log_end` is the end of the commit log."""
    checkpoint = read_timer_checkpoint(disk, checkpoint_path(directory))
    saved = checkpoint or TimerCheckpoint(0, 0, 0)
    numbers = progress.read()
    state, place = checkpoint, (NO_UNIT, NO_UNIT)
    if numbers is not None and _is_ahead(written := TimerCheckpoint(*numbers[:-2]), saved):
        state, place = written, (numbers[-2], numbers[-1])
    if state is None:
        if any(offset_of(name) is not None for name in disk.names(directory)):
            log.error(
                "the timer's checkpoint is missing, reading the timer topic again: messages that were due are "
                "delivered again",
                extra={"file": str(checkpoint_path(directory))},
            )
        apache = read_apache_checkpoint(disk, config / "timercheck") or TimerCheckpoint(now_ms, 0, 0)
        return _Restored(
            TimerWheel(TimerLog.create_empty(disk, directory, file_bytes), now_ms), apache, apache, progress
        )
    try:
        wheel = TimerWheel.restore(disk, directory, state.log_end, state.delivered_ms, log_end, file_bytes, place)
    except (StoreCorrupt, StoreMismatch) as error:
        log.error("timer log is damaged or missing, reading the timer topic again", extra={"reason": str(error)})  # noqa: TRY400
        restart = state.read_again()
        wheel = TimerWheel(TimerLog.create_empty(disk, directory, file_bytes), state.delivered_ms)
        return _Restored(wheel, restart, restart, progress)
    return _Restored(wheel, state, saved, progress)


def _is_ahead(written: TimerCheckpoint, saved: TimerCheckpoint) -> bool:
    """Neither number ever becomes smaller, unless the timer log was lost and begun anew."""
    return written.queue_offset >= saved.queue_offset and written.log_end >= saved.log_end
