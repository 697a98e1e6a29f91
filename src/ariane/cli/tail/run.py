"""Runs `ariane tail`: reads a topic, first the stored messages ordered by time over all queues, then new ones.

It pulls as Apache's own tools do, without joining a group: no group's offset moves.
"""

import asyncio
import heapq
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field

import click

from ariane.cli.tail.output import Show
from ariane.client.consumer.message import Received
from ariane.client.consumer.pull_request import Puller, PullRequest, PullResult
from ariane.client.consumer.subscriptions import ALL, subscription_of
from ariane.client.core.instance import Instance
from ariane.client.core.queue_bounds import QueueBounds, readable_queues
from ariane.client.settings import ClientSettings
from ariane.errors import ArianeError
from ariane.lifecycle import Backoff, TaskSet
from ariane.model.group import Subscription
from ariane.model.route import MessageQueue, TopicRoute

GROUP = "TOOLS_CONSUMER"
"""The group of Apache's own tools: every broker has it from the start."""

_BATCH = 32  # brokers return no more at a time
_WAIT_S = 15.0
_ARRIVED_MAX = 16

Arrived = asyncio.Queue[tuple[Received, ...] | ArianeError]


@dataclass(slots=True)
class _Position:
    """How far one queue has been read."""

    queue: MessageQueue
    next: int
    end: int
    shown: int = 0
    """Offset after the last message that was shown. Messages between `shown` and `next` were filtered or prefetched."""


@dataclass(slots=True)
class TopicReader:
    instance: Instance
    topic: str
    subscription: Subscription
    start: int | str
    """`earliest`, `latest`, or milliseconds since 1970."""
    on_error: Callable[[MessageQueue, ArianeError], None]
    """Called once each time that a queue becomes unreadable for a while."""
    positions: dict[MessageQueue, _Position] = field(default_factory=dict)

    @property
    def left(self) -> int:
        """Messages not shown yet, up to the last known ends of the queues; ignores filters."""
        return sum(max(0, position.end - position.shown) for position in self.positions.values())

    async def find_positions(self) -> None:
        """NoRoute when there is no such topic."""
        queues = readable_queues(self.topic, await self.instance.routes.route(self.topic))
        for position in await asyncio.gather(*map(self._position, queues)):
            self.positions[position.queue] = position

    async def _position(self, queue: MessageQueue) -> _Position:
        bounds = QueueBounds(self.instance)
        end = await bounds.max_offset(queue)
        begin = end
        if self.start == "earliest":
            begin = await bounds.min_offset(queue)
        elif isinstance(self.start, int):
            begin = await bounds.search_offset(queue, self.start)
        return _Position(queue, min(begin, end), end, min(begin, end))

    # --- stored messages ---

    async def stored(self) -> AsyncGenerator[Received, None]:
        """Up to the ends found by `find_positions`, the oldest first; the order within a queue is always kept."""
        async with AsyncExitStack() as stack:
            readers = {}
            for queue, position in self.positions.items():
                if position.next < position.end:
                    readers[queue] = await stack.enter_async_context(aclosing(self._read(position)))
            firsts = await asyncio.gather(*(anext(reader, None) for reader in readers.values()))
            oldest = [
                (message.store_timestamp_ms, queue, message)
                for queue, message in zip(readers, firsts, strict=True)
                if message is not None
            ]
            heapq.heapify(oldest)
            while oldest:
                _, queue, message = oldest[0]
                self._mark_shown(message)
                yield message
                following = await anext(readers[queue], None)
                if following is None:
                    heapq.heappop(oldest)
                else:
                    heapq.heapreplace(oldest, (following.store_timestamp_ms, queue, following))

    def _mark_shown(self, message: Received) -> None:
        self.positions[message.queue].shown = message.queue_offset + 1

    async def _read(self, position: _Position) -> AsyncGenerator[Received, None]:
        puller = Puller(self.instance, GROUP)
        while position.next < position.end:
            result = await puller.pull(self._request(position, wait_s=0.0))
            moved = result.next_offset > position.next
            for message in self._from_start(result):
                if message.queue_offset < position.end:
                    yield message
            position.next = (
                result.next_offset if moved else position.end
            )  # not moved: the queue was truncated meanwhile
        position.shown = position.next

    def _from_start(self, result: PullResult) -> list[Received]:
        """Brokers before 5.0 find the message nearest to a time, which may be older than the time."""
        begin = self.start if isinstance(self.start, int) else 0
        return [message for message in result.messages if message.store_timestamp_ms >= begin]

    def _request(self, position: _Position, wait_s: float) -> PullRequest:
        return PullRequest(
            queue=position.queue, offset=position.next, subscription=self.subscription, count=_BATCH, wait_s=wait_s
        )

    # --- new messages ---

    async def arriving(self) -> AsyncGenerator[Received, None]:
        """Endless, in the order of arrival. Queues that are added to the topic meanwhile are read from their start."""
        arrived: Arrived = asyncio.Queue(_ARRIVED_MAX)
        async with self._followers(arrived):
            while True:
                messages = await arrived.get()
                if isinstance(messages, ArianeError):
                    raise messages
                for message in messages:
                    self._mark_shown(message)
                    yield message

    @asynccontextmanager
    async def _followers(self, arrived: Arrived) -> AsyncIterator[None]:
        tasks = TaskSet()

        def on_change(topic: str, route: TopicRoute) -> None:
            for queue in readable_queues(topic, route) if topic == self.topic else []:
                if queue not in self.positions:
                    self.positions[queue] = _Position(queue, 0, 0)
                    tasks.spawn(self._follow(self.positions[queue], arrived))

        for position in self.positions.values():
            tasks.spawn(self._follow(position, arrived))
        self.instance.routes.on_change(on_change)
        try:
            yield
        finally:
            tasks.cancel()
            await tasks.wait()

    async def _follow(self, position: _Position, arrived: Arrived) -> None:
        puller, backoff, is_failing = Puller(self.instance, GROUP), Backoff(), False
        while True:
            try:
                result = await puller.pull(self._request(position, _WAIT_S))
            except ArianeError as error:
                if not error.retriable:
                    await arrived.put(error)
                    return
                if not is_failing:
                    self.on_error(position.queue, error)
                is_failing = True
                await self.instance.clock.sleep(backoff.next_s())
                continue
            backoff.reset()
            is_failing = False
            position.next, position.end = result.next_offset, max(position.end, result.max_offset)
            if result.messages:
                await arrived.put(result.messages)


@dataclass(slots=True, kw_only=True)
class TailSession:
    topic: str
    start: int | str
    follow: bool
    limit: int | None
    tags: str | None
    sql: str | None
    shown: int = 0

    async def run(self, settings: ClientSettings, show: Show) -> str | None:
        """A note for the user if not everything was shown."""
        subscription = subscription_of(self.topic, self.tags or ALL, sql=self.sql)
        async with Instance.open(settings) as instance:
            reader = TopicReader(instance, self.topic, subscription, self.start, _report_error)
            await reader.find_positions()
            if await self._show_all(reader.stored(), show, flush=False):
                return self._stopped(reader.left)
            sys.stdout.flush()
            if self.follow and await self._show_all(reader.arriving(), show, flush=True):
                return self._stopped(reader.left)
        return None

    async def _show_all(self, messages: AsyncGenerator[Received, None], show: Show, *, flush: bool) -> bool:
        """Returns whether the limit was reached. `flush`: after each message."""
        async with aclosing(messages):
            async for message in messages:
                show(message)
                self.shown += 1
                if flush:
                    sys.stdout.flush()
                if self.shown == self.limit:
                    return True
        return False

    def _stopped(self, left: int) -> str | None:
        if not left:
            return None if not self.follow else f"stopped at --limit {self.limit}: no more messages are stored"
        matching = ", which may not all match" if self.tags or self.sql else ""
        return f"stopped at --limit {self.limit}: {left:,} more messages are stored{matching}"


def _report_error(queue: MessageQueue, error: ArianeError) -> None:
    click.echo(f"{queue.broker_name}:{queue.queue_id} cannot be read, retrying: {error}", err=True)
