"""The parts of a lite pull consumer: the pull loop fills queues in hand, and the inbox gives their messages out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from ariane.client.allocation import Allocation
from ariane.client.fixed_queues import FixedQueues
from ariane.client.flow_limits import FlowLimits
from ariane.client.group_member import GroupMember
from ariane.client.held_queue import HeldQueue
from ariane.client.held_queues import HeldQueues
from ariane.client.instance import Instance
from ariane.client.offsets import GroupOffsets, OffsetTable
from ariane.client.process_queue import ProcessQueue
from ariane.client.pull import Puller
from ariane.client.pull_loop import PullLoop
from ariane.client.queue_ends import QueueEnds
from ariane.client.rebalance import Rebalance
from ariane.client.received import Received
from ariane.client.start_offset import Beginning, Start, find_beginning
from ariane.lifecycle import background, every
from ariane.model.group import ConsumeType, MessageModel, Subscription
from ariane.model.route import MessageQueue


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
class LiteParts:
    instance: Instance
    ends: QueueEnds
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
    ) -> "LiteParts":
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
        return cls(instance, QueueEnds(instance), offsets, held, inbox, member, FixedQueues(instance, held), sought)

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
    found = await find_beginning(queue, await offsets.load(queue), options.start, QueueEnds(instance))
    offset = sought.pop(queue, None)
    return found if offset is None else Beginning(offset, "it was sought")
