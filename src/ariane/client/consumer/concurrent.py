"""Concurrent consumption: any worker may handle any message; a message that fails is sent back to the broker."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from ariane.client.consumer.invocation import HandlerCalls, HandlerOutcome, batch_key
from ariane.client.consumer.message import Received, next_attempt
from ariane.client.consumer.offsets import OffsetTable
from ariane.client.consumer.queues import AssignedQueue, ProcessQueue
from ariane.client.consumer.retry import SendBacks
from ariane.client.core.instance import Instance
from ariane.lifecycle import Job, TaskSet

log = logging.getLogger(__name__)

_LOCAL_RETRY_S = 5.0  # before the next attempt at a message that no broker accepted back


@dataclass(slots=True)
class _WorkItem:
    """Messages of one queue with one `batch_key`, for the next free worker."""

    assigned: AssignedQueue
    process: ProcessQueue
    messages: Sequence[Received]
    is_remainder: bool = False
    """Whether it is the rest of an item that was begun: then it comes first."""


class _WorkQueue(asyncio.Queue[_WorkItem]):
    """Bounded by the flow limits of each queue."""

    _queue: "deque[_WorkItem]"

    def _put(self, item: _WorkItem) -> None:
        if item.is_remainder:
            self._queue.appendleft(item)
        else:
            self._queue.append(item)


@dataclass(slots=True, kw_only=True)
class ConcurrentConsumption:
    instance: Instance
    calls: HandlerCalls
    offsets: OffsetTable
    send_backs: SendBacks | None
    """None in broadcasting: there a failed message cannot be redelivered, so it is dropped."""
    concurrency: int
    _ready: _WorkQueue = field(default_factory=_WorkQueue)
    _local_retries: TaskSet = field(default_factory=TaskSet)

    def arrived(self, assigned: AssignedQueue) -> None:
        process = assigned.process
        self.offsets.advance(assigned.queue, process.commit_offset)
        for messages in _split_by_batch_key(process.take(process.waiting)):
            self._ready.put_nowait(_WorkItem(assigned, process, messages))

    def jobs(self) -> list[Job]:
        return [self._work] * self.concurrency

    def close(self) -> None:
        self._local_retries.cancel()

    async def _work(self) -> None:
        while True:
            item = await self._ready.get()
            if not item.process.dropped:
                await self._consume(item)
            if not self._ready.empty():
                # Then `get` would not wait, and a handler may not wait either: let pulls and heartbeats run.
                await asyncio.sleep(0)

    async def _consume(self, item: _WorkItem) -> None:
        item.assigned.last_consume_ms = self.instance.clock.now_ms()
        done, waiting = self.calls.start(item.messages)
        if done:
            self._finish(item, item.messages[:done])
        if waiting is None:
            return
        batch, rest = item.messages[done : done + self.calls.batch], item.messages[done + self.calls.batch :]
        if rest:
            self._ready.put_nowait(_WorkItem(item.assigned, item.process, rest, is_remainder=True))
        await self._complete(_WorkItem(item.assigned, item.process, batch), await waiting)

    async def _complete(self, item: _WorkItem, outcome: HandlerOutcome) -> None:
        if item.process.dropped:
            # The next owner gets these messages from the committed offset on: sending them back would duplicate them.
            log.info("result discarded: the queue is no longer assigned", extra={"queue": item.assigned.queue})
            return
        kept = await self._send_back(item.messages[outcome.done :], outcome.delay_level)
        self._finish(item, [message for message in item.messages if message.queue_offset not in kept])
        if kept:
            retry = _WorkItem(item.assigned, item.process, [next_attempt(message) for message in kept.values()])
            self._local_retries.spawn(self._retry_later(retry))

    async def _send_back(self, failed: Sequence[Received], delay_level: int) -> dict[int, Received]:
        """The messages that no broker accepted, by offset."""
        if self.send_backs is None:
            return {}
        kept: dict[int, Received] = {}
        for message in failed:
            if not await self.send_backs.send_back(message, delay_level):
                kept[message.queue_offset] = message
        return kept

    def _finish(self, item: _WorkItem, messages: Sequence[Received]) -> None:
        item.process.finish(messages)
        if not item.process.dropped:
            self.offsets.advance(item.assigned.queue, item.process.commit_offset)
        item.assigned.notify()

    async def _retry_later(self, item: _WorkItem) -> None:
        await self.instance.clock.sleep(_LOCAL_RETRY_S)
        self._ready.put_nowait(item)


def _split_by_batch_key(messages: list[Received]) -> list[list[Received]]:
    """Runs of messages that share a `batch_key`. Mostly all do: to check that takes less than half the time."""
    if not messages:
        return []
    topic = messages[0].topic
    different = [message for message in messages if message.fault is not None or message.topic != topic]
    return [list(run) for _, run in groupby(messages, key=batch_key)] if different else [messages]
