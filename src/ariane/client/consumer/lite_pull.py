"""The lite pull consumer: messages are fetched ahead, and the application polls them.

async with LitePullConsumer("127.0.0.1:9876", group="audit") as consumer:
    consumer.subscribe("orders")
    async for message in consumer:
        ...
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self

from ariane.client.consumer.allocation import AVERAGELY, Allocation
from ariane.client.consumer.base import Consumer, GroupMember
from ariane.client.consumer.message import Received
from ariane.client.consumer.offsets import (
    OffsetTable,
    RemoteBrokerOffsetStore,
    Start,
    StartOffset,
    StartWord,
    find_start_offset,
)
from ariane.client.consumer.pull_loop import FlowLimits, PullLoop
from ariane.client.consumer.pull_request import Puller
from ariane.client.consumer.queues import AssignedQueue, AssignedQueues, ProcessQueue
from ariane.client.consumer.rebalance import QueuesChanged, Rebalance
from ariane.client.consumer.subscriptions import ALL, subscription_of
from ariane.client.core.instance import Instance
from ariane.client.core.queue_bounds import QueueBounds, readable_queues
from ariane.client.settings import ClientSettings
from ariane.clock import Clock
from ariane.errors import ArianeError, ClientError
from ariane.lifecycle import Backoff, background, every
from ariane.model.group import ConsumeType, MessageModel, Subscription
from ariane.model.route import MessageQueue

log = logging.getLogger(__name__)


class FixedQueues:
    """Manual assignment: as `Rebalance` does for shared queues. Idle until `assign` is called."""

    def __init__(self, instance: Instance, assigned: AssignedQueues) -> None:
        self._instance = instance
        self._assigned = assigned
        self._chosen: frozenset[MessageQueue] | None = None
        self._due = asyncio.Event()

    def assign(self, queues: Collection[MessageQueue]) -> None:
        self._chosen = frozenset(queues)
        self._due.set()

    async def run(self) -> None:
        backoff = Backoff(first_s=0.2, longest_s=5.0)
        while True:
            self._due.clear()
            if await self.run_once():
                backoff.reset()
                await self._due.wait()
            else:
                await self._instance.clock.sleep(backoff.next_s())

    async def run_once(self) -> bool:
        if self._chosen is None:
            return True
        for assigned in self._assigned.all():
            if assigned.queue not in self._chosen:
                self._assigned.revoke(assigned.queue)
        return all([await self._assign(queue) for queue in sorted(self._chosen)])

    async def _assign(self, queue: MessageQueue) -> bool:
        try:
            return await self._assigned.assign(queue)
        except ArianeError as error:
            log.warning("queue not assigned yet", extra={"queue": queue, "reason": str(error)})
            return False


# --- components: the pull loop fills the assigned queues, and the inbox returns their messages ---


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullOptions:
    start: Start
    allocation: Allocation
    auto_commit: bool
    pull_batch: int
    limits: FlowLimits


@dataclass(slots=True)
class Inbox:
    """The messages of all assigned queues, returned in turn so that a busy queue does not starve the others."""

    offsets: OffsetTable
    auto_commit: bool
    assigned: AssignedQueues | None = None
    _delivered: list[tuple[AssignedQueue, ProcessQueue, list[Received]]] = field(default_factory=list)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _turn: int = 0

    def arrived(self, assigned: AssignedQueue) -> None:
        self._advance(assigned, assigned.process)
        if assigned.process.waiting:
            self._arrived.set()

    def wake(self) -> None:
        self._arrived.set()

    async def wait(self) -> None:
        """Returns when there may be messages to take."""
        if not self._ready():
            self._arrived.clear()
            await self._arrived.wait()

    def take(self, count: int) -> list[Received]:
        messages: list[Received] = []
        ready = self._ready()
        self._turn += 1
        for index in range(len(ready)):
            assigned = ready[(index + self._turn) % len(ready)]
            taken = assigned.process.take(count - len(messages))
            self._delivered.append((assigned, assigned.process, taken))
            messages += taken
        return messages

    def acknowledge(self) -> None:
        """The messages that were delivered are consumed."""
        delivered, self._delivered = self._delivered, []
        for assigned, process, messages in delivered:
            process.finish(messages)
            self._advance(assigned, process)
            assigned.notify()

    def _advance(self, assigned: AssignedQueue, process: ProcessQueue) -> None:
        if self.auto_commit and not process.dropped:
            self.offsets.advance(assigned.queue, process.commit_offset)

    def _ready(self) -> list[AssignedQueue]:
        queues = self.assigned
        return [] if queues is None else [queue for queue in queues.all() if queue.process.waiting and not queue.paused]


@dataclass(slots=True)
class LitePullComponents:
    """The components of an open lite pull consumer."""

    instance: Instance
    bounds: QueueBounds
    offsets: OffsetTable
    assigned: AssignedQueues
    inbox: Inbox
    member: GroupMember
    fixed: FixedQueues
    pending_seeks: dict[MessageQueue, int]
    """Offsets to start at, for queues whose assignment is not finished yet."""

    @classmethod
    def build(
        cls,
        instance: Instance,
        group: str,
        options: LitePullOptions,
        filters: dict[str, Subscription],
        shared: dict[str, Subscription],
    ) -> "LitePullComponents":
        """`filters` are the subscriptions of all topics; `shared` are the topics whose queues the group shares."""
        offsets = OffsetTable(RemoteBrokerOffsetStore(instance, group))
        inbox = Inbox(offsets, options.auto_commit)
        loop = PullLoop(
            instance=instance,
            puller=Puller(instance, group),
            offsets=offsets,
            subscriptions=filters,
            arrived=inbox.arrived,
            limits=options.limits,
            batch=options.pull_batch,
            carries_subscription=True,
            saves_corrections=options.auto_commit,
        )
        pending_seeks: dict[MessageQueue, int] = {}
        start_offset = partial(_start_offset, instance, offsets, options, pending_seeks)
        assigned = inbox.assigned = AssignedQueues(offsets, start_offset, [loop.run])
        model = MessageModel.CLUSTERING
        member = GroupMember(
            instance=instance,
            group=group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            model=model,
            start=options.start,
            subscriptions=shared,
            offsets=offsets,
            assigned=assigned,
            rebalance=Rebalance(instance, group, model, options.allocation, shared.keys(), assigned),
        )
        return cls(
            instance,
            QueueBounds(instance),
            offsets,
            assigned,
            inbox,
            member,
            FixedQueues(instance, assigned),
            pending_seeks,
        )

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        save_s = self.instance.settings.offsets_save_interval_s
        saving = partial(every, self.instance.clock, save_s, self.offsets.save, save_s)
        async with background(saving, self.fixed.run):
            async with self.member.joined():
                yield

    def assign(self, queues: frozenset[MessageQueue]) -> None:
        for topic in {queue.topic for queue in queues}:
            self.instance.routes.watch(topic)
        self.fixed.assign(queues)

    def seek(self, assigned: AssignedQueue, offset: int) -> None:
        assigned.restart(offset)
        self.offsets.sought(assigned.queue)
        if self.inbox.auto_commit:
            self.offsets.move(assigned.queue, offset)

    async def commit(self) -> None:
        self.inbox.acknowledge()
        for assigned in self.assigned.all():
            self.offsets.correct(assigned.queue, assigned.process.commit_offset)
        await self.offsets.save()


async def _start_offset(
    instance: Instance,
    offsets: OffsetTable,
    options: LitePullOptions,
    pending_seeks: dict[MessageQueue, int],
    queue: MessageQueue,
) -> StartOffset:
    start_offset = await find_start_offset(queue, await offsets.load(queue), options.start, QueueBounds(instance))
    offset = pending_seeks.pop(queue, None)
    if offset is not None:
        offsets.sought(queue)
    return start_offset if offset is None else StartOffset(offset, "the application called seek()")


# --- consumer ---

_POLL_TIMEOUT_S = 5.0


class LitePullConsumer(Consumer[LitePullComponents]):
    """A message counts as consumed when the next one is polled, so a crash repeats a message rather than losing it.

    With `auto_commit` the consumed offsets are committed every 5 s; without it, `commit()` does it. Choose the queues
    with `assign`, or share them with the group by `subscribe`; not both.
    """

    def __init__(
        self,
        nameservers: str | Iterable[str] | None = None,
        *,
        group: str,
        auto_commit: bool = True,
        start: Start | StartWord | datetime | int = "latest",
        allocation: Allocation = AVERAGELY,
        pull_batch: int = 32,
        limits: FlowLimits | None = None,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(nameservers, group, settings, clock)
        self._options = LitePullOptions(
            start=Start.of(start),
            allocation=allocation,
            auto_commit=auto_commit,
            pull_batch=pull_batch,
            limits=limits or FlowLimits(),
        )
        self._subscriptions: dict[str, Subscription] = {}
        self._assigned: frozenset[MessageQueue] | None = None
        self._listeners: list[QueuesChanged] = []
        self._components: LitePullComponents | None = None

    # --- which queues -----------------------------------------------------------------------------------------------

    def subscribe(self, topic: str, expression: str = ALL, *, sql: str | None = None) -> None:
        """Shares the queues of `topic` with the other members of the group."""
        if self._assigned is not None:
            raise ClientError("this consumer has manually assigned queues: subscribe with another consumer")
        self._subscriptions[topic] = self._subscription(topic, expression, sql)
        if self._components is not None:
            self._components.member.subscribe(self._subscriptions[topic])

    def unsubscribe(self, topic: str) -> None:
        self._subscriptions.pop(topic, None)
        if self._components is not None:
            self._components.member.unsubscribe(topic)

    def assign(self, queues: Collection[MessageQueue], expression: str = ALL, *, sql: str | None = None) -> None:
        """Assigns exactly these queues, and revokes all others. `expression` is for all of them."""
        if self._assigned is None and self._subscriptions:
            raise ClientError("this consumer subscribes and so shares queues: assign with another consumer")
        self._assigned = frozenset(queues)
        for topic in {queue.topic for queue in queues}:
            self._subscriptions[topic] = self._subscription(topic, expression, sql)
        if self._components is not None:
            self._components.assign(self._assigned)

    def on_queues_changed(self, listener: QueuesChanged) -> None:
        """`listener` is called with all queues of a topic and with the assigned ones. Register before `start()`."""
        self._listeners.append(listener)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of `topic`; NoRoute when it is not known."""
        return readable_queues(topic, await self._running[0].routes.route(topic))

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are assigned to this consumer now."""
        return sorted(assigned.queue for assigned in self._running[1].assigned.all())

    # --- messages ---------------------------------------------------------------------------------------------------

    async def poll(self, timeout_s: float = _POLL_TIMEOUT_S, count: int = 32) -> list[Received]:
        """Up to `count` messages, as soon as there are any; none after the timeout. The messages of the last
        call thereby count as consumed."""
        inbox = self._running[1].inbox
        inbox.acknowledge()
        try:
            async with asyncio.timeout(timeout_s):
                await inbox.wait()
        except TimeoutError:
            return []
        return inbox.take(count)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Received:
        """Waits without a timeout. `close()` in another task ends the loop with ClientClosed."""
        inbox = self._running[1].inbox
        inbox.acknowledge()
        while True:
            await inbox.wait()
            self._running  # noqa: B018 - raises when closed meanwhile
            taken = inbox.take(1)
            if taken:
                return taken[0]

    # --- positions --------------------------------------------------------------------------------------------------

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continues at `offset`; messages that were fetched ahead are dropped."""
        if offset < 0:
            raise ClientError(f"seek to {offset}: an offset is 0 or more")
        components = self._running[1]
        if components.assigned.get(queue) is None and queue in (self._assigned or ()):
            components.pending_seeks[queue] = offset  # its assignment is not finished yet
        else:
            components.seek(self._assigned_queue(queue), offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        self.seek(queue, await self._running[1].bounds.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        self.seek(queue, await self._running[1].bounds.max_offset(queue))

    async def offset_at(self, queue: MessageQueue, moment: datetime | int) -> int:
        """The offset of the first message stored at `moment` or later."""
        return await self._running[1].bounds.search_offset(queue, moment)

    def position(self, queue: MessageQueue) -> int:
        """The offset of the first message not yet consumed."""
        return self._assigned_queue(queue).process.commit_offset

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Neither fetches nor returns messages of these queues."""
        self._set_paused(queues, paused=True)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        self._set_paused(queues, paused=False)

    async def commit(self) -> None:
        """Commits all messages that were returned, including the last one."""
        await self._running[1].commit()

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset as the broker has it; None if there is none."""
        return await self._running[1].offsets.load(queue)

    # --- life -------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Messages that were returned count as consumed."""
        if self._components is not None:
            self._components.inbox.acknowledge()
        await super().close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """If the body fails, the messages that it polled last do not count as consumed."""
        if kind is None:
            await self.close()
        else:
            await super().close()

    @asynccontextmanager
    async def _opened(self, instance: Instance) -> AsyncIterator[LitePullComponents]:
        shared = {} if self._assigned is not None else dict(self._subscriptions)
        components = LitePullComponents.build(instance, self.group, self._options, self._subscriptions, shared)
        for listener in self._listeners:
            components.member.rebalance.on_change(listener)
        if self._assigned is not None:
            components.assign(self._assigned)
        async with components.opened():
            self._components = components
            try:
                yield components
            finally:
                self._components = None
                components.inbox.wake()

    def _subscription(self, topic: str, expression: str, sql: str | None) -> Subscription:
        return subscription_of(topic, expression, sql=sql, version=(self._clock or Clock()).now_ms())

    def _assigned_queue(self, queue: MessageQueue) -> AssignedQueue:
        assigned = self._running[1].assigned.get(queue)
        if assigned is None:
            raise ClientError(f"{queue} is not assigned to this consumer now: see `assignment`, or assign it")
        return assigned

    def _set_paused(self, queues: Iterable[MessageQueue], *, paused: bool) -> None:
        for queue in queues:
            assigned = self._assigned_queue(queue)
            assigned.paused = paused
            assigned.notify()
        self._running[1].inbox.wake()
