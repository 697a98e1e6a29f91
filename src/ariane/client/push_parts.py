"""The parts of a push consumer, put together: one pull loop and one rebalance, with handlers beside or behind it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from ariane.client.concurrently import Concurrently
from ariane.client.consume_trace import ConsumeTrace
from ariane.client.group_member import GroupMember
from ariane.client.handler_calls import HandlerCalls
from ariane.client.held_queues import HeldQueues
from ariane.client.instance import Instance
from ariane.client.local_offsets import LocalOffsets, offsets_file
from ariane.client.offsets import GroupOffsets, OffsetTable
from ariane.client.orderly import Orderly
from ariane.client.pull import Puller
from ariane.client.pull_loop import PullLoop
from ariane.client.push_options import PushOptions
from ariane.client.queue_ends import QueueEnds
from ariane.client.queue_locks import RENEW_INTERVAL_S, QueueLocks
from ariane.client.rebalance import Rebalance
from ariane.client.send_back import SendBacks
from ariane.client.start_offset import Beginning, find_beginning
from ariane.client.tracing import Tracer
from ariane.lifecycle import Job, background, every
from ariane.model.group import ConsumeType, Subscription
from ariane.model.ids import RETRY_PREFIX
from ariane.model.route import MessageQueue


@dataclass(slots=True)
class PushParts:
    """Built by `open`."""

    instance: Instance
    group: str
    options: PushOptions
    calls: HandlerCalls
    subscriptions: dict[str, Subscription]
    offsets: OffsetTable
    member: GroupMember
    locks: QueueLocks | None
    consumption: Concurrently | Orderly

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        instance: Instance,
        group: str,
        options: PushOptions,
        calls: HandlerCalls,
        subscriptions: dict[str, Subscription],
    ) -> AsyncIterator["PushParts"]:
        parts = cls.build(instance, group, options, calls, subscriptions)
        async with AsyncExitStack() as stack:
            if options.trace:
                tracer = await stack.enter_async_context(Tracer.open(instance, group, "CONSUME"))
                calls.trace = ConsumeTrace(tracer, group, instance.clock)
            stack.callback(calls.user.close)
            if isinstance(parts.consumption, Concurrently):
                stack.callback(parts.consumption.close)
            # The handlers outlive the membership: leaving the group waits for what they have in hand.
            await stack.enter_async_context(background(*parts._jobs()))
            await stack.enter_async_context(parts.member.joined())
            yield parts

    @classmethod
    def build(
        cls,
        instance: Instance,
        group: str,
        options: PushOptions,
        calls: HandlerCalls,
        subscriptions: dict[str, Subscription],
    ) -> "PushParts":
        offsets = OffsetTable(
            _local(instance, group, options) if options.is_broadcast else GroupOffsets(instance, group)
        )
        back = None if options.is_broadcast else SendBacks(instance, group, options.attempts_max)
        consumption: Concurrently | Orderly = (
            _orderly(instance, calls, offsets, back, options)
            if options.ordered
            else Concurrently(
                instance=instance, calls=calls, offsets=offsets, send_backs=back, concurrency=options.concurrency
            )
        )
        loop = PullLoop(
            instance=instance,
            puller=Puller(instance, group, body_bytes_max=options.body_bytes_max),
            offsets=offsets,
            subscriptions=subscriptions,
            arrived=consumption.arrived,
            limits=options.limits,
            batch=options.pull_batch,
            ordered=options.ordered,
            commits=not options.is_broadcast,
        )
        jobs = [loop.run, consumption.run] if isinstance(consumption, Orderly) else [loop.run]
        needs_lock = options.ordered and not options.is_broadcast
        locks = QueueLocks(instance, group, options.consume_timeout_s) if needs_lock else None
        held = HeldQueues(offsets, partial(_beginning, instance, offsets, options), jobs, locks)
        member = GroupMember(
            instance=instance,
            group=group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            model=options.model,
            start=options.start,
            subscriptions=subscriptions,
            offsets=offsets,
            held=held,
            rebalance=Rebalance(instance, group, options.model, options.allocation, subscriptions.keys(), held),
            calls=calls,
            ordered=options.ordered,
            close_timeout_s=options.close_timeout_s,
        )
        return cls(instance, group, options, calls, subscriptions, offsets, member, locks, consumption)

    def _jobs(self) -> list[Job]:
        clock, save_s = self.instance.clock, self.instance.settings.offsets_save_interval_s
        jobs: list[Job] = [partial(every, clock, save_s, self.offsets.save, save_s)]
        if isinstance(self.consumption, Concurrently):
            jobs += self.consumption.jobs()
        if self.locks is not None:
            jobs.append(partial(every, clock, RENEW_INTERVAL_S, self._renew_locks, RENEW_INTERVAL_S))
        return jobs

    async def _renew_locks(self) -> None:
        if self.locks is not None:
            await self.locks.renew(self.member.held.all())


def retry_subscription(group: str) -> Subscription:
    """Every group that shares its queues also reads its own retries, all of them."""
    return Subscription(topic=f"{RETRY_PREFIX}{group}")


def _orderly(
    instance: Instance, calls: HandlerCalls, offsets: OffsetTable, back: SendBacks | None, options: PushOptions
) -> Orderly:
    return Orderly(
        instance=instance,
        calls=calls,
        offsets=offsets,
        send_backs=back,
        suspend_s=options.suspend_s,
        attempts_max=options.max_reconsume,
        places=asyncio.Semaphore(options.concurrency),
        needs_lock=not options.is_broadcast,
    )


async def _beginning(instance: Instance, offsets: OffsetTable, options: PushOptions, queue: MessageQueue) -> Beginning:
    return await find_beginning(queue, await offsets.load(queue), options.start, QueueEnds(instance))


def _local(instance: Instance, group: str, options: PushOptions) -> LocalOffsets:
    # The usual client id changes with each process; the file must be found again by the next one.
    named = instance.settings.instance_name is not None
    return LocalOffsets(
        offsets_file(instance.client_id if named else f"{instance.ip}@DEFAULT", group, options.offsets_root)
    )
