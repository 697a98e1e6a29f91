"""Concurrent consumption: any handler may take any message; what fails goes back to the broker."""

import asyncio
import logging
from dataclasses import dataclass, field
from itertools import groupby

from ariane.client.handler_calls import HandlerCalls, batch_key
from ariane.client.held_queue import HeldQueue
from ariane.client.instance import Instance
from ariane.client.offsets import OffsetTable
from ariane.client.process_queue import ProcessQueue
from ariane.client.received import Received, next_attempt
from ariane.client.send_back import SendBacks
from ariane.lifecycle import Job, TaskSet

log = logging.getLogger(__name__)

_KEPT_BACK_S = 5.0  # before the next attempt at a message that no broker took back


@dataclass(slots=True)
class _Batch:
    held: HeldQueue
    process: ProcessQueue
    messages: list[Received]


@dataclass(slots=True, kw_only=True)
class Concurrently:
    instance: Instance
    calls: HandlerCalls
    offsets: OffsetTable
    send_backs: SendBacks | None
    """None in broadcasting: there nobody else could be given the message, so it is dropped."""
    concurrency: int
    # Bounded by what the flow limits let each queue bring in.
    _ready: asyncio.Queue[_Batch] = field(default_factory=asyncio.Queue)
    _kept_back: TaskSet = field(default_factory=TaskSet)

    def arrived(self, held: HeldQueue) -> None:
        process = held.process
        self.offsets.advance(held.queue, process.commit_offset)
        for _, group in groupby(process.take(process.waiting), key=batch_key):
            messages = list(group)
            for start in range(0, len(messages), self.calls.batch):
                self._ready.put_nowait(_Batch(held, process, messages[start : start + self.calls.batch]))

    def jobs(self) -> list[Job]:
        return [self._work] * self.concurrency

    async def drain(self) -> None:
        """Returns when every message in hand has been handled."""
        await self._ready.join()

    def close(self) -> None:
        self._kept_back.cancel()

    async def _work(self) -> None:
        while True:
            batch = await self._ready.get()
            try:
                if not batch.process.dropped:
                    await self._consume(batch)
            finally:
                self._ready.task_done()

    async def _consume(self, batch: _Batch) -> None:
        batch.held.last_consume_ms = self.instance.clock.now_ms()
        verdict = await self.calls.run(batch.messages)
        if batch.process.dropped:
            # The next owner gets these messages from the committed offset on: to send them back would double them.
            log.info("result discarded: the queue is not ours any more", extra={"queue": batch.held.queue})
            return
        kept = await self._send_back(batch.messages[verdict.done :], verdict.delay_level)
        self._finish(batch, [message for message in batch.messages if message.queue_offset not in kept])
        if kept:
            again = _Batch(batch.held, batch.process, [next_attempt(message) for message in kept.values()])
            self._kept_back.spawn(self._try_again(again))

    async def _send_back(self, failed: list[Received], delay_level: int) -> dict[int, Received]:
        """The messages that no broker took, by offset."""
        if self.send_backs is None:
            return {}
        kept: dict[int, Received] = {}
        for message in failed:
            if not await self.send_backs.send_back(message, delay_level):
                kept[message.queue_offset] = message
        return kept

    def _finish(self, batch: _Batch, messages: list[Received]) -> None:
        batch.process.finish(messages)
        if not batch.process.dropped:
            self.offsets.advance(batch.held.queue, batch.process.commit_offset)
        batch.held.tell()

    async def _try_again(self, batch: _Batch) -> None:
        await self.instance.clock.sleep(_KEPT_BACK_S)
        self._ready.put_nowait(batch)
