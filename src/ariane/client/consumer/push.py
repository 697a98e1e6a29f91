"""The push consumer: messages are brought to handlers.

consumer = PushConsumer("127.0.0.1:9876", group="billing")

@consumer.on("orders", "paid || refunded")
async def bill(message):
    ...

async with consumer:
    await stop.wait()
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from ariane.client.consumer.allocation import AVERAGELY, Allocation
from ariane.client.consumer.base import Consumer, GroupMember
from ariane.client.consumer.concurrent import Concurrently
from ariane.client.consumer.invocation import ConsumeTrace, Handler, HandlerCalls, OnError, TopicCounts
from ariane.client.consumer.locks import RENEW_INTERVAL_S, QueueLocks
from ariane.client.consumer.message import BODY_BYTES_MAX
from ariane.client.consumer.offsets import (
    Beginning,
    GroupOffsets,
    LocalOffsets,
    OffsetTable,
    Start,
    StartWord,
    find_beginning,
    offsets_file,
)
from ariane.client.consumer.orderly import Orderly
from ariane.client.consumer.pull_loop import FlowLimits, PullLoop
from ariane.client.consumer.pull_request import Puller
from ariane.client.consumer.queues import HeldQueues
from ariane.client.consumer.rebalance import Rebalance
from ariane.client.consumer.retry import SendBacks
from ariane.client.consumer.subscriptions import ALL, subscription_of
from ariane.client.core.instance import Instance
from ariane.client.core.queue_bounds import QueueEndPages
from ariane.client.core.user_calls import UserCalls
from ariane.client.producer.tracing import Tracer
from ariane.client.settings import ClientSettings
from ariane.clock import Clock
from ariane.errors import ClientError
from ariane.lifecycle import Job, background, every
from ariane.model.group import ConsumeType, MessageModel, Subscription
from ariane.model.ids import RETRY_PREFIX
from ariane.model.route import MessageQueue

# --- push_options ---
#
# How a push consumer consumes. Defaults are Apache's unless a comment says otherwise.

_ATTEMPTS_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOptions:
    start: Start
    model: MessageModel = MessageModel.CLUSTERING
    ordered: bool = False
    allocation: Allocation = AVERAGELY
    concurrency: int = 20
    batch: int = 1
    """Messages that a handler is given at a time."""
    pull_batch: int = 32
    max_reconsume: int | None = None
    consume_timeout_s: float = 15 * 60.0
    suspend_s: float = 1.0
    """Ordered mode: how long a queue rests after a failure."""
    close_timeout_s: float = 30.0
    limits: FlowLimits = field(default_factory=FlowLimits)
    body_bytes_max: int = BODY_BYTES_MAX
    offsets_root: Path | None = None
    """Broadcasting: the directory of offset files; the user's ~/.rocketmq_offsets when not set."""
    trace: bool = False

    def __post_init__(self) -> None:
        for name in ("concurrency", "batch", "pull_batch"):
            if getattr(self, name) < 1:
                raise ClientError(f"{name}={getattr(self, name)}: at least 1 is needed")

    @property
    def is_broadcast(self) -> bool:
        return self.model is MessageModel.BROADCASTING

    @property
    def attempts_max(self) -> int:
        return _ATTEMPTS_MAX if self.max_reconsume is None else self.max_reconsume


# --- push_parts ---
#
# The parts of a push consumer, put together: one pull loop and one rebalance, with handlers beside or behind it.


@dataclass(slots=True)
class PushComponents:
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
    ) -> AsyncIterator["PushComponents"]:
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
    ) -> "PushComponents":
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
    return await find_beginning(queue, await offsets.load(queue), options.start, QueueEndPages(instance))


def _local(instance: Instance, group: str, options: PushOptions) -> LocalOffsets:
    # The usual client id changes with each process; the file must be found again by the next one.
    named = instance.settings.instance_name is not None
    return LocalOffsets(
        offsets_file(instance.client_id if named else f"{instance.ip}@DEFAULT", group, options.offsets_root)
    )


# ---

H = TypeVar("H", bound=Handler)


class PushConsumer(Consumer[PushComponents]):
    """A handler that returns has consumed its message; one that raises, or returns `False` or a `Retry`, gets it again.

    Handlers that are coroutine functions run on the event loop, others in threads. With `ordered=True` each queue has
    one handler at a time, and a failure holds the queue back; otherwise a failure goes back to the broker, which
    delivers it again later, at most `max_reconsume` times (16), and then files it under %DLQ%group.
    """

    def __init__(
        self,
        nameservers: str | Iterable[str] | None = None,
        *,
        group: str,
        handler: Handler | None = None,
        model: MessageModel | str = MessageModel.CLUSTERING,
        ordered: bool = False,
        start: Start | StartWord | datetime | int = "latest",
        allocation: Allocation = AVERAGELY,
        max_concurrency: int = 20,
        batch: int = 1,
        pull_batch: int = 32,
        max_reconsume: int | None = None,
        consume_timeout_s: float = 15 * 60.0,
        suspend_s: float = 1.0,
        close_timeout_s: float = 30.0,
        limits: FlowLimits | None = None,
        offsets_root: Path | None = None,
        on_error: OnError | None = None,
        trace: bool = False,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(nameservers, group, settings, clock)
        self.options = PushOptions(
            start=Start.of(start),
            model=MessageModel(model.upper()),
            ordered=ordered,
            allocation=allocation,
            concurrency=max_concurrency,
            batch=batch,
            pull_batch=pull_batch,
            max_reconsume=max_reconsume,
            consume_timeout_s=consume_timeout_s,
            suspend_s=suspend_s,
            close_timeout_s=close_timeout_s,
            limits=limits or FlowLimits(),
            offsets_root=offsets_root,
            trace=trace,
        )
        self._calls = HandlerCalls(
            batch=batch,
            timeout_s=consume_timeout_s,
            user=UserCalls(max_concurrency),
            on_error=on_error,
            default=handler,
        )
        self._subscriptions: dict[str, Subscription] = {}
        self._open_parts: PushComponents | None = None

    # --- what to consume --------------------------------------------------------------------------------------------

    def subscribe(
        self, topic: str, expression: str = ALL, *, sql: str | None = None, handler: Handler | None = None
    ) -> None:
        """Tags as in "a || b", or `sql` over properties. May be called again, also while the consumer runs."""
        version = (self._clock or Clock()).now_ms()
        subscription = subscription_of(topic, expression, sql=sql, version=version)
        if handler is not None:
            self._calls.by_topic[topic] = handler
        if self._open_parts is not None:
            self._open_parts.member.subscribe(subscription)
        self._subscriptions[topic] = subscription

    def unsubscribe(self, topic: str) -> None:
        self._subscriptions.pop(topic, None)
        if self._open_parts is not None:
            self._open_parts.member.unsubscribe(topic)

    def on(self, topic: str, expression: str = ALL, *, sql: str | None = None) -> Callable[[H], H]:
        """Subscribes the function below it."""

        def subscribe(handler: H) -> H:
            self.subscribe(topic, expression, sql=sql, handler=handler)
            return handler

        return subscribe

    # --- what it is doing -------------------------------------------------------------------------------------------

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that it consumes now."""
        return sorted(held.queue for held in self._running[1].member.held.all())

    @property
    def counts(self) -> dict[str, TopicCounts]:
        """Messages consumed and failed, by topic."""
        return self._calls.counts

    async def commit(self) -> None:
        """Saves the offsets now, instead of with the next interval."""
        await self._running[1].offsets.save()

    # --- life -------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _opened(self, instance: Instance) -> AsyncIterator[PushComponents]:
        self._check()
        subscriptions = dict(self._subscriptions)
        if not self.options.is_broadcast:
            retries = retry_subscription(self.group)
            subscriptions[retries.topic] = retries
        async with PushComponents.open(instance, self.group, self.options, self._calls, subscriptions) as parts:
            self._open_parts = parts
            try:
                yield parts
            finally:
                self._open_parts = None

    def _check(self) -> None:
        if not self._subscriptions:
            raise ClientError(f"the consumer of {self.group} has no subscription: call subscribe() before start()")
        idle = [topic for topic in self._subscriptions if topic not in self._calls.by_topic]
        if idle and self._calls.default is None:
            raise ClientError(f"no handler for {', '.join(idle)}: give handler= to the consumer, or to subscribe()")
