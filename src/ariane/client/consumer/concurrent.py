"""Concurrent consumption: any handler may take any message; what fails goes back to the broker."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from ariane.client.consumer.invocation import HandlerCalls, Verdict, batch_key
from ariane.client.consumer.message import Received, next_attempt
from ariane.client.consumer.offsets import OffsetTable
from ariane.client.consumer.queues import HeldQueue, ProcessQueue
from ariane.client.consumer.retry import SendBacks
from ariane.client.core.instance import Instance
from ariane.lifecycle import Job, TaskSet

log = logging.getLogger(__name__)

_KEPT_BACK_S = 5.0  # before the next attempt at a message that no broker took back


@dataclass(slots=True)
class _Run:
    """Messages of one queue and one topic, for handlers to take."""

    held: HeldQueue
    process: ProcessQueue
    messages: Sequence[Received]
    is_rest: bool = False
    """Whether it was begun: then it comes first."""


class _Runs(asyncio.Queue[_Run]):
    """Bounded by what the flow limits let each queue bring in."""

    _queue: "deque[_Run]"

    def _put(self, run: _Run) -> None:
        if run.is_rest:
            self._queue.appendleft(run)
        else:
            self._queue.append(run)


@dataclass(slots=True, kw_only=True)
class Concurrently:
    instance: Instance
    calls: HandlerCalls
    offsets: OffsetTable
    send_backs: SendBacks | None
    """None in broadcasting: there nobody else could be given the message, so it is dropped."""
    concurrency: int
    _ready: _Runs = field(default_factory=_Runs)
    _kept_back: TaskSet = field(default_factory=TaskSet)

    def arrived(self, held: HeldQueue) -> None:
        process = held.process
        self.offsets.advance(held.queue, process.commit_offset)
        for messages in _runs_of(process.take(process.waiting)):
            self._ready.put_nowait(_Run(held, process, messages))

    def jobs(self) -> list[Job]:
        return [self._work] * self.concurrency

    def close(self) -> None:
        self._kept_back.cancel()

    async def _work(self) -> None:
        while True:
            run = await self._ready.get()
            if not run.process.dropped:
                await self._consume(run)
            if not self._ready.empty():
                # Then `get` would not wait, and neither does a handler that returns at once: pulls and heartbeats must
                # have their turn.
                await asyncio.sleep(0)

    async def _consume(self, run: _Run) -> None:
        run.held.last_consume_ms = self.instance.clock.now_ms()
        done, waiting = self.calls.start(run.messages)
        if done:
            self._finish(run, run.messages[:done])
        if waiting is None:
            return
        batch, rest = run.messages[done : done + self.calls.batch], run.messages[done + self.calls.batch :]
        if rest:
            self._ready.put_nowait(_Run(run.held, run.process, rest, is_rest=True))
        await self._settle(_Run(run.held, run.process, batch), await waiting)

    async def _settle(self, run: _Run, verdict: Verdict) -> None:
        if run.process.dropped:
            # The next owner gets these messages from the committed offset on: to send them back would double them.
            log.info("result discarded: the queue is not ours any more", extra={"queue": run.held.queue})
            return
        kept = await self._send_back(run.messages[verdict.done :], verdict.delay_level)
        self._finish(run, [message for message in run.messages if message.queue_offset not in kept])
        if kept:
            again = _Run(run.held, run.process, [next_attempt(message) for message in kept.values()])
            self._kept_back.spawn(self._try_again(again))

    async def _send_back(self, failed: Sequence[Received], delay_level: int) -> dict[int, Received]:
        """The messages that no broker took, by offset."""
        if self.send_backs is None:
            return {}
        kept: dict[int, Received] = {}
        for message in failed:
            if not await self.send_backs.send_back(message, delay_level):
                kept[message.queue_offset] = message
        return kept

    def _finish(self, run: _Run, messages: Sequence[Received]) -> None:
        run.process.finish(messages)
        if not run.process.dropped:
            self.offsets.advance(run.held.queue, run.process.commit_offset)
        run.held.tell()

    async def _try_again(self, run: _Run) -> None:
        await self.instance.clock.sleep(_KEPT_BACK_S)
        self._ready.put_nowait(run)


def _runs_of(messages: list[Received]) -> list[list[Received]]:
    """Neighbours that share a `batch_key`. Mostly all do, and to see that takes less than half of the time."""
    if not messages:
        return []
    topic = messages[0].topic
    odd = [message for message in messages if message.fault is not None or message.topic != topic]
    return [list(run) for _, run in groupby(messages, key=batch_key)] if odd else [messages]
