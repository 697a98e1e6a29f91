"""One run of `ariane tail`, from the first message to the last."""

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

# --- tail_reader ---
#
# Reads a topic for `ariane tail`: first what is stored, by time over all queues, then what comes.
#
# It reads as Apache's own tools do, without being a member of a group: nobody's offsets move.

GROUP = "TOOLS_CONSUMER"
"""What Apache's own tools pull as: every broker has it from the start."""

_BATCH = 32  # brokers give no more at a time
_WAIT_S = 15.0
_ARRIVED_MAX = 16

Arrived = asyncio.Queue[tuple[Received, ...] | ArianeError]


@dataclass(slots=True)
class _Place:
    """How far one queue has been read."""

    queue: MessageQueue
    next: int
    end: int
    shown: int = 0
    """Behind the last message that was given out; what lies between was filtered, or is fetched ahead."""


@dataclass(slots=True)
class TopicReader:
    instance: Instance
    topic: str
    subscription: Subscription
    start: int | str
    """`earliest`, `latest`, or milliseconds since 1970."""
    on_trouble: Callable[[MessageQueue, ArianeError], None]
    """Told once for each time that a queue cannot be read for a while."""
    places: dict[MessageQueue, _Place] = field(default_factory=dict)

    @property
    def left(self) -> int:
        """Messages up to the ends that were last seen, and that were not given out; filters not considered."""
        return sum(max(0, place.end - place.shown) for place in self.places.values())

    async def find_places(self) -> None:
        """NoRoute when there is no such topic."""
        queues = readable_queues(self.topic, await self.instance.routes.route(self.topic))
        for place in await asyncio.gather(*map(self._place, queues)):
            self.places[place.queue] = place

    async def _place(self, queue: MessageQueue) -> _Place:
        ends = QueueBounds(self.instance)
        end = await ends.max_offset(queue)
        begin = end
        if self.start == "earliest":
            begin = await ends.min_offset(queue)
        elif isinstance(self.start, int):
            begin = await ends.search_offset(queue, self.start)
        return _Place(queue, min(begin, end), end, min(begin, end))

    # --- what is stored ---------------------------------------------------------------------------------------------

    async def stored(self) -> AsyncGenerator[Received, None]:
        """Up to the ends that were found, the oldest first; a queue's own order is kept in any case."""
        async with AsyncExitStack() as stack:
            readers = {}
            for queue, place in self.places.items():
                if place.next < place.end:
                    readers[queue] = await stack.enter_async_context(aclosing(self._read(place)))
            firsts = await asyncio.gather(*(anext(reader, None) for reader in readers.values()))
            heads = [
                (message.store_timestamp_ms, queue, message)
                for queue, message in zip(readers, firsts, strict=True)
                if message is not None
            ]
            heapq.heapify(heads)
            while heads:
                _, queue, message = heads[0]
                self._give(message)
                yield message
                following = await anext(readers[queue], None)
                if following is None:
                    heapq.heappop(heads)
                else:
                    heapq.heapreplace(heads, (following.store_timestamp_ms, queue, following))

    def _give(self, message: Received) -> None:
        self.places[message.queue].shown = message.queue_offset + 1

    async def _read(self, place: _Place) -> AsyncGenerator[Received, None]:
        puller = Puller(self.instance, GROUP)
        while place.next < place.end:
            result = await puller.pull(self._ask(place, wait_s=0.0))
            moved = result.next_offset > place.next
            for message in self._from_start(result):
                if message.queue_offset < place.end:
                    yield message
            place.next = result.next_offset if moved else place.end  # a queue that was cut back meanwhile
        place.shown = place.next

    def _from_start(self, result: PullResult) -> list[Received]:
        """Releases before 5.0 find the message nearest to a time, which may lie before it."""
        begin = self.start if isinstance(self.start, int) else 0
        return [message for message in result.messages if message.store_timestamp_ms >= begin]

    def _ask(self, place: _Place, wait_s: float) -> PullRequest:
        return PullRequest(
            queue=place.queue, offset=place.next, subscription=self.subscription, count=_BATCH, wait_s=wait_s
        )

    # --- what comes -------------------------------------------------------------------------------------------------

    async def arriving(self) -> AsyncGenerator[Received, None]:
        """For ever, in the order of arrival. Queues that the topic gets meanwhile are read from their beginning."""
        arrived: Arrived = asyncio.Queue(_ARRIVED_MAX)
        async with self._followers(arrived):
            while True:
                messages = await arrived.get()
                if isinstance(messages, ArianeError):
                    raise messages
                for message in messages:
                    self._give(message)
                    yield message

    @asynccontextmanager
    async def _followers(self, arrived: Arrived) -> AsyncIterator[None]:
        tasks = TaskSet()

        def on_change(topic: str, route: TopicRoute) -> None:
            for queue in readable_queues(topic, route) if topic == self.topic else []:
                if queue not in self.places:
                    self.places[queue] = _Place(queue, 0, 0)
                    tasks.spawn(self._follow(self.places[queue], arrived))

        for place in self.places.values():
            tasks.spawn(self._follow(place, arrived))
        self.instance.routes.on_change(on_change)
        try:
            yield
        finally:
            tasks.cancel()
            await tasks.wait()

    async def _follow(self, place: _Place, arrived: Arrived) -> None:
        puller, backoff, is_troubled = Puller(self.instance, GROUP), Backoff(), False
        while True:
            try:
                result = await puller.pull(self._ask(place, _WAIT_S))
            except ArianeError as error:
                if not error.retriable:
                    await arrived.put(error)
                    return
                if not is_troubled:
                    self.on_trouble(place.queue, error)
                is_troubled = True
                await self.instance.clock.sleep(backoff.next_s())
                continue
            backoff.reset()
            is_troubled = False
            place.next, place.end = result.next_offset, max(place.end, result.max_offset)
            if result.messages:
                await arrived.put(result.messages)


# ---


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
        """What has to be said at the end, when not everything was shown."""
        subscription = subscription_of(self.topic, self.tags or ALL, sql=self.sql)
        async with Instance.open(settings) as instance:
            reader = TopicReader(instance, self.topic, subscription, self.start, _tell_trouble)
            await reader.find_places()
            if await self._show_all(reader.stored(), show, at_once=False):
                return self._stopped(reader.left)
            sys.stdout.flush()
            if self.follow and await self._show_all(reader.arriving(), show, at_once=True):
                return self._stopped(reader.left)
        return None

    async def _show_all(self, messages: AsyncGenerator[Received, None], show: Show, *, at_once: bool) -> bool:
        """Whether the limit was reached."""
        async with aclosing(messages):
            async for message in messages:
                show(message)
                self.shown += 1
                if at_once:
                    sys.stdout.flush()
                if self.shown == self.limit:
                    return True
        return False

    def _stopped(self, left: int) -> str | None:
        if not left:
            return None if not self.follow else f"stopped at --limit {self.limit}; nothing more is stored"
        fitting = ", not all of which may fit" if self.tags or self.sql else ""
        return f"stopped at --limit {self.limit}: {left:,} more messages are stored{fitting}"


def _tell_trouble(queue: MessageQueue, error: ArianeError) -> None:
    click.echo(f"{queue.broker_name}:{queue.queue_id} cannot be read now and is tried again: {error}", err=True)
