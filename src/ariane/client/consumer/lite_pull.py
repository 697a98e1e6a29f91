"""The lite pull consumer: messages are fetched ahead, and the application takes them when it wants to.

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
from ariane.client.consumer.offsets import Beginning, GroupOffsets, OffsetTable, Start, StartWord, find_beginning
from ariane.client.consumer.pull_loop import FlowLimits, PullLoop
from ariane.client.consumer.pull_request import Puller
from ariane.client.consumer.queues import HeldQueue, HeldQueues, ProcessQueue
from ariane.client.consumer.rebalance import QueuesChanged, Rebalance
from ariane.client.consumer.subscriptions import ALL, subscription_of
from ariane.client.core.instance import Instance
from ariane.client.core.queue_bounds import QueueEndPages, readable_queues
from ariane.client.settings import ClientSettings
from ariane.clock import Clock
from ariane.errors import ArianeError, ClientError
from ariane.lifecycle import Backoff, background, every
from ariane.model.group import ConsumeType, MessageModel, Subscription
from ariane.model.route import MessageQueue

# --- fixed_queues ---
#
# Queues chosen by hand: held whatever the group's other members do.

log = logging.getLogger(__name__)


class FixedQueues:
    """Does for chosen queues what `Rebalance` does for shared ones; nothing until some are chosen."""

    def __init__(self, instance: Instance, holder: HeldQueues) -> None:
        self._instance = instance
        self._holder = holder
        self._wanted: frozenset[MessageQueue] | None = None
        self._due = asyncio.Event()

    def assign(self, queues: Collection[MessageQueue]) -> None:
        self._wanted = frozenset(queues)
        self._due.set()

    async def run(self) -> None:
        backoff = Backoff(first_s=0.2, longest_s=5.0)
        while True:
            self._due.clear()
            if await self.round():
                backoff.reset()
                await self._due.wait()
            else:
                await self._instance.clock.sleep(backoff.next_s())

    async def round(self) -> bool:
        if self._wanted is None:
            return True
        for held in self._holder.all():
            if held.queue not in self._wanted:
                self._holder.give_up(held.queue)
        return all([await self._take(queue) for queue in sorted(self._wanted)])

    async def _take(self, queue: MessageQueue) -> bool:
        try:
            return await self._holder.take(queue)
        except ArianeError as error:
            log.warning("queue not taken yet", extra={"queue": queue, "reason": str(error)})
            return False


# --- lite_parts ---
#
# The parts of a lite pull consumer: the pull loop fills queues in hand, and the inbox gives their messages out.


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteOptions:
    start: Start
    allocation: Allocation
    auto_commit: bool
    pull_batch: int
    limits: FlowLimits


@dataclass(slots=True)
class Inbox:
    """Messages of all queues in hand, given out in turns so that a busy queue does not starve the others."""

    offsets: OffsetTable
    auto_commit: bool
    holder: HeldQueues | None = None
    _given: list[tuple[HeldQueue, ProcessQueue, list[Received]]] = field(default_factory=list)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _turn: int = 0

    def arrived(self, held: HeldQueue) -> None:
        self._advance(held, held.process)
        if held.process.waiting:
            self._arrived.set()

    def wake(self) -> None:
        self._arrived.set()

    async def wait(self) -> None:
        """Returns when there may be something to take."""
        if not self._ready():
            self._arrived.clear()
            await self._arrived.wait()

    def take(self, count: int) -> list[Received]:
        messages: list[Received] = []
        ready = self._ready()
        self._turn += 1
        for index in range(len(ready)):
            held = ready[(index + self._turn) % len(ready)]
            taken = held.process.take(count - len(messages))
            self._given.append((held, held.process, taken))
            messages += taken
        return messages

    def acknowledge(self) -> None:
        """What was given out is consumed."""
        given, self._given = self._given, []
        for held, process, messages in given:
            process.finish(messages)
            self._advance(held, process)
            held.tell()

    def _advance(self, held: HeldQueue, process: ProcessQueue) -> None:
        if self.auto_commit and not process.dropped:
            self.offsets.advance(held.queue, process.commit_offset)

    def _ready(self) -> list[HeldQueue]:
        holder = self.holder
        return [] if holder is None else [held for held in holder.all() if held.process.waiting and not held.paused]


@dataclass(slots=True)
class LitePullComponents:
    instance: Instance
    ends: QueueEndPages
    offsets: OffsetTable
    held: HeldQueues
    inbox: Inbox
    member: GroupMember
    fixed: FixedQueues
    sought: dict[MessageQueue, int]
    """Where to begin in queues that were assigned and are still being taken."""

    @classmethod
    def build(
        cls,
        instance: Instance,
        group: str,
        options: LiteOptions,
        filters: dict[str, Subscription],
        shared: dict[str, Subscription],
    ) -> "LitePullComponents":
        """`filters` is what is wanted of each topic; `shared` are the topics whose queues the group shares."""
        offsets = OffsetTable(GroupOffsets(instance, group))
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
        sought: dict[MessageQueue, int] = {}
        beginning = partial(_beginning, instance, offsets, options, sought)
        held = inbox.holder = HeldQueues(offsets, beginning, [loop.run])
        model = MessageModel.CLUSTERING
        member = GroupMember(
            instance=instance,
            group=group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            model=model,
            start=options.start,
            subscriptions=shared,
            offsets=offsets,
            held=held,
            rebalance=Rebalance(instance, group, model, options.allocation, shared.keys(), held),
        )
        return cls(instance, QueueEndPages(instance), offsets, held, inbox, member, FixedQueues(instance, held), sought)

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

    def seek(self, held: HeldQueue, offset: int) -> None:
        held.renew(offset)
        if self.inbox.auto_commit:
            self.offsets.move(held.queue, offset)

    async def commit(self) -> None:
        self.inbox.acknowledge()
        for held in self.held.all():
            self.offsets.move(held.queue, held.process.commit_offset)
        await self.offsets.save()


async def _beginning(
    instance: Instance,
    offsets: OffsetTable,
    options: LiteOptions,
    sought: dict[MessageQueue, int],
    queue: MessageQueue,
) -> Beginning:
    found = await find_beginning(queue, await offsets.load(queue), options.start, QueueEndPages(instance))
    offset = sought.pop(queue, None)
    return found if offset is None else Beginning(offset, "it was sought")


# ---

_POLL_TIMEOUT_S = 5.0


class LitePullConsumer(Consumer[LitePullComponents]):
    """A message counts as consumed when the next one is asked for, so a crash repeats it rather than losing it.

    With `auto_commit` what is consumed is committed every 5 s; without, `commit()` does it. Choose the queues with
    `assign`, or share them with the group by `subscribe`; not both.
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
        self._options = LiteOptions(
            start=Start.of(start),
            allocation=allocation,
            auto_commit=auto_commit,
            pull_batch=pull_batch,
            limits=limits or FlowLimits(),
        )
        self._subscriptions: dict[str, Subscription] = {}
        self._assigned: frozenset[MessageQueue] | None = None
        self._listeners: list[QueuesChanged] = []
        self._parts: LitePullComponents | None = None

    # --- which queues -----------------------------------------------------------------------------------------------

    def subscribe(self, topic: str, expression: str = ALL, *, sql: str | None = None) -> None:
        """Shares the queues of `topic` with the other members of the group."""
        if self._assigned is not None:
            raise ClientError("this consumer was assigned queues by hand: subscribe with another one")
        self._subscriptions[topic] = self._subscription(topic, expression, sql)
        if self._parts is not None:
            self._parts.member.subscribe(self._subscriptions[topic])

    def unsubscribe(self, topic: str) -> None:
        self._subscriptions.pop(topic, None)
        if self._parts is not None:
            self._parts.member.unsubscribe(topic)

    def assign(self, queues: Collection[MessageQueue], expression: str = ALL, *, sql: str | None = None) -> None:
        """Takes exactly these queues, and gives up all others. `expression` is for all of them."""
        if self._assigned is None and self._subscriptions:
            raise ClientError("this consumer subscribes and so shares queues: assign with another one")
        self._assigned = frozenset(queues)
        for topic in {queue.topic for queue in queues}:
            self._subscriptions[topic] = self._subscription(topic, expression, sql)
        if self._parts is not None:
            self._parts.assign(self._assigned)

    def on_queues_changed(self, listener: QueuesChanged) -> None:
        """`listener` is told all queues of a topic and those that are ours. Register before `start()`."""
        self._listeners.append(listener)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of `topic`; NoRoute when it is not known."""
        return readable_queues(topic, await self._running[0].routes.route(topic))

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this consumer holds now."""
        return sorted(held.queue for held in self._running[1].held.all())

    # --- messages ---------------------------------------------------------------------------------------------------

    async def poll(self, timeout_s: float = _POLL_TIMEOUT_S, count: int = 32) -> list[Received]:
        """Up to `count` messages, as soon as there are any; none when the time is over. What the last call gave is
        thereby consumed."""
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
        """Waits for ever. `close()` in another task ends the loop with ClientClosed."""
        inbox = self._running[1].inbox
        inbox.acknowledge()
        while True:
            await inbox.wait()
            self._running  # noqa: B018 - raises when closed meanwhile
            taken = inbox.take(1)
            if taken:
                return taken[0]

    # --- where ------------------------------------------------------------------------------------------------------

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Goes on at `offset`; what was fetched ahead is thrown away."""
        if offset < 0:
            raise ClientError(f"seek to {offset}: an offset is 0 or more")
        parts = self._running[1]
        if parts.held.get(queue) is None and queue in (self._assigned or ()):
            parts.sought[queue] = offset  # it is still being taken
        else:
            parts.seek(self._held(queue), offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        self.seek(queue, await self._running[1].ends.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        self.seek(queue, await self._running[1].ends.max_offset(queue))

    async def offset_at(self, queue: MessageQueue, moment: datetime | int) -> int:
        """The offset of the first message stored at `moment` or later."""
        return await self._running[1].ends.search_offset(queue, moment)

    def position(self, queue: MessageQueue) -> int:
        """The offset of the first message not yet consumed."""
        return self._held(queue).process.commit_offset

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Neither fetches nor gives messages of these queues."""
        self._set_paused(queues, paused=True)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        self._set_paused(queues, paused=False)

    async def commit(self) -> None:
        """Commits everything that was given out, the last message too."""
        await self._running[1].commit()

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset as the broker has it; None when there is none."""
        return await self._running[1].offsets.load(queue)

    # --- life -------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """What was given out counts as consumed."""
        if self._parts is not None:
            self._parts.inbox.acknowledge()
        await super().close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A body that fails has not consumed the messages it was just given."""
        if kind is None:
            await self.close()
        else:
            await super().close()

    @asynccontextmanager
    async def _opened(self, instance: Instance) -> AsyncIterator[LitePullComponents]:
        shared = {} if self._assigned is not None else dict(self._subscriptions)
        parts = LitePullComponents.build(instance, self.group, self._options, self._subscriptions, shared)
        for listener in self._listeners:
            parts.member.rebalance.on_change(listener)
        if self._assigned is not None:
            parts.assign(self._assigned)
        async with parts.opened():
            self._parts = parts
            try:
                yield parts
            finally:
                self._parts = None
                parts.inbox.wake()

    def _subscription(self, topic: str, expression: str, sql: str | None) -> Subscription:
        return subscription_of(topic, expression, sql=sql, version=(self._clock or Clock()).now_ms())

    def _held(self, queue: MessageQueue) -> HeldQueue:
        held = self._running[1].held.get(queue)
        if held is None:
            raise ClientError(f"{queue} is not held by this consumer now: see `assignment`, or assign it")
        return held

    def _set_paused(self, queues: Iterable[MessageQueue], *, paused: bool) -> None:
        for queue in queues:
            held = self._held(queue)
            held.paused = paused
            held.tell()
        self._running[1].inbox.wake()
