"""From the timer topic into the wheel: every message once, in the order of its queue."""

import asyncio
import logging

from ariane.broker.schedule.redelivery import due_ms
from ariane.broker.schedule.timer_out import TimerOut
from ariane.broker.schedule.timer_wheel import TimerWheel
from ariane.broker.system_topics import TIMER
from ariane.errors import RecordError
from ariane.store.service import StoreService
from ariane.wire.record_view import RecordView, verify

log = logging.getLogger(__name__)

BATCH = 32


class TimerTake:
    def __init__(self, service: StoreService, wheel: TimerWheel, out: TimerOut, window_ms: int, offset: int) -> None:
        self._service = service
        self._wheel = wheel
        self._out = out
        self._window_ms = window_ms
        self.offset = offset
        """The next message to take."""
        self.known_below = 0
        self.known_ms = 0
        """When the topic is read again: messages before `known_below` that were for a time before this are done."""

    async def step(self, now_ms: int) -> bool:
        """One batch; whether there was one. A StoreError says that the store cannot take more now."""
        queue = self._service.store.parts.queues.get(TIMER, 0)
        if queue is None:
            return False
        if not queue.min_offset <= self.offset <= queue.max_offset:
            self.offset = queue.min_offset
        if self.offset == queue.max_offset:
            return False
        if not self._wheel.log.has_room:
            self._wheel.log.adopt(await asyncio.to_thread(self._wheel.log.make_file))
        result = await self._service.read(TIMER, 0, self.offset, BATCH)
        for record in result.slices:
            if not self._wheel.log.has_room:
                return True
            view = verify(record, check_body_crc=False)
            if isinstance(view, RecordView):
                self._take(record, view, now_ms)
                self.offset = max(self.offset, view.queue_offset + 1)
            else:
                log.error("waiting message dropped", extra={"queue_offset": self.offset, "reason": str(view)})
        self.offset = max(self.offset, result.next_offset)
        return True

    def _take(self, record: memoryview, view: RecordView, now_ms: int) -> None:
        """Worked out from the record alone, so that reading the topic again finds the same time."""
        wake_ms = min(_due_ms(view), view.store_timestamp_ms + self._window_ms)
        if view.queue_offset < self.known_below and wake_ms < self.known_ms:
            return
        if wake_ms > now_ms:
            self._wheel.place(wake_ms, view.physical_offset, view.size)
        elif (message := self._out.read(record, view.physical_offset)) is not None:
            # Not through the wheel: a unit for a time before the cursor would count as delivered after a crash.
            self._out.settle(message, view.physical_offset, now_ms)


def _due_ms(view: RecordView) -> int:
    try:
        return due_ms(view.properties())
    except RecordError:  # told when it is read as a whole
        return 0
