"""From the wheel to the topics: slots that are over, a bounded chunk of messages at a time."""

import asyncio
import errno
from collections.abc import Iterable

from ariane.broker.incoming import Incoming
from ariane.broker.schedule.redelivery import TIMER_CANCELS, cancelled_by, due_ms
from ariane.broker.schedule.timer_out import TimerOut
from ariane.broker.schedule.timer_unit import NO_UNIT, TimerUnit
from ariane.broker.schedule.timer_wheel import TimerWheel
from ariane.store.commit_log import CommitLog
from ariane.store.segments import Segment

CHUNK_UNITS = 256
CHUNK_BYTES = 4 * 1024 * 1024
CANCELLED_MAX = 10_000
"""Of one tenth of a second; what is called off beyond that is delivered all the same."""


class TimerDrain:
    """Takes a slot off the wheel and works through it; a put that fails is tried again from the same message."""

    def __init__(self, wheel: TimerWheel, commit_log: CommitLog, out: TimerOut) -> None:
        self._wheel = wheel
        self._log = commit_log
        self._out = out
        self._position = NO_UNIT  # the rest of the slot in hand, newest first
        self._ready: list[tuple[TimerUnit, Incoming]] = []  # read, in the order of delivery, the next one last
        self._cancelled: set[tuple[str, int]] = set()

    async def step(self, now_ms: int) -> bool:
        """One chunk; whether there was one. A StoreError says that the store cannot take more now."""
        if not self._ready:
            if self._position == NO_UNIT:
                self._position = self._wheel.take_over(now_ms)
                self._cancelled.clear()
            if self._position == NO_UNIT:
                return False
            await self._read_chunk()
        while self._ready:
            unit, message = self._ready[-1]
            self._out.settle(message, unit.physical_offset, now_ms)
            self._ready.pop()
        return True

    async def _read_chunk(self) -> None:
        """Reads in threads: these records were written long ago, and may have to come from the disk."""
        units = await asyncio.to_thread(self._wheel.chunk, self._position, CHUNK_UNITS, CHUNK_BYTES)
        places = [(self._log.segments.find(unit.physical_offset), unit) for unit in units]
        records = await asyncio.to_thread(_read, places)
        self._position = units[-1].previous
        self._wheel.pending -= len(units)
        self._prepare(zip(units, records, strict=True))

    def _prepare(self, found: Iterable[tuple[TimerUnit, bytes | None]]) -> None:
        messages = [(unit, self._out.read(record, unit.physical_offset)) for unit, record in found]
        present = [(unit, message) for unit, message in messages if message is not None]
        for _, message in present:
            if (key := message.properties.get(TIMER_CANCELS)) and len(self._cancelled) < CANCELLED_MAX:
                self._cancelled.add((key, due_ms(message.properties)))
        wanted = [pair for pair in present if not self._is_cancelled(pair[1])]
        self._ready = wanted[::-1]  # sent first, delivered first; sort keeps that among equals
        self._ready.sort(key=lambda pair: pair[0].wake_ms)
        self._ready.reverse()

    def _is_cancelled(self, message: Incoming) -> bool:
        """A message is called off by a later one with its key and its delivery time: in the same slot, and read first,
        because the newest are."""
        at_ms = due_ms(message.properties)
        return any((key, at_ms) in self._cancelled for key in cancelled_by(message))


def _read(places: list[tuple[Segment | None, TimerUnit]]) -> list[bytes | None]:
    return [None if segment is None else _record(segment, unit) for segment, unit in places]


def _record(segment: Segment, unit: TimerUnit) -> bytes | None:
    try:
        return segment.file.read(unit.size, unit.physical_offset - segment.base)
    except OSError as error:
        if error.errno == errno.EBADF:  # retention has just closed the file
            return None
        raise
