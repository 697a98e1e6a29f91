"""The push consumer: calls handlers with messages.

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
from ariane.client.consumer.concurrent import ConcurrentConsumption
from ariane.client.consumer.invocation import ConsumeTrace, Handler, HandlerCalls, OnError, TopicCounts
from ariane.client.consumer.locks import RENEW_INTERVAL_S, RETRY_INTERVAL_S, QueueLockClient
from ariane.client.consumer.message import BODY_BYTES_MAX
from ariane.client.consumer.offsets import (
    LocalFileOffsetStore,
    OffsetTable,
    RemoteBrokerOffsetStore,
    Start,
    StartOffset,
    StartWord,
    find_start_offset,
    offsets_file,
)
from ariane.client.consumer.orderly import OrderedConsumption
from ariane.client.consumer.pull_loop import FlowLimits, PullLoop
from ariane.client.consumer.pull_request import Puller
from ariane.client.consumer.queues import AssignedQueues
from ariane.client.consumer.rebalance import Rebalance
from ariane.client.consumer.retry import SendBacks
from ariane.client.consumer.subscriptions import ALL, subscription_of
from ariane.client.core.instance import Instance
from ariane.client.core.queue_bounds import QueueBounds
from ariane.client.core.user_calls import UserCalls
from ariane.client.producer.tracing import Tracer
from ariane.client.settings import ClientSettings
from ariane.clock import Clock
from ariane.errors import ClientError
from ariane.lifecycle import Job, background, every
from ariane.model.group import ConsumeType, MessageModel, Subscription
from ariane.model.ids import RETRY_PREFIX
from ariane.model.route import MessageQueue

_ATTEMPTS_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOptions:
    """Defaults are Apache's unless a comment says otherwise."""

    start: Start
    model: MessageModel = MessageModel.CLUSTERING
    ordered: bool = False
    allocation: Allocation = AVERAGELY
    concurrency: int = 20
    batch: int = 1
    """How many messages a handler gets at a time."""
    pull_batch: int = 32
    max_reconsume: int | None = None
    consume_timeout_s: float = 15 * 60.0
    suspend_s: float = 1.0
    """Ordered mode: how long a queue is suspended after a failure."""
    close_timeout_s: float = 30.0
    limits: FlowLimits = field(default_factory=FlowLimits)
    body_bytes_max: int = BODY_BYTES_MAX
    offsets_root: Path | None = None
    """Broadcasting: the directory of offset files; the user's ~/.rocketmq_offsets when not set."""
    trace: bool = False

    def __post_init__(self) -> None:
        for name in ("concurrency", "batch", "pull_batch"):
            if getattr(self, name) < 1:
                raise ClientError(f"{name}={getattr(self, name)}: must be at least 1")

    @property
    def is_broadcast(self) -> bool:
        return self.model is MessageModel.BROADCASTING

    @property
    def attempts_max(self) -> int:
        return _ATTEMPTS_MAX if self.max_reconsume is None else self.max_reconsume


@dataclass(slots=True)
class PushComponents:
    """The components of an open push consumer: one pull loop and one rebalance, and the handlers. Built by `open`."""

    instance: Instance
    group: str
    options: PushOptions
    calls: HandlerCalls
    subscriptions: dict[str, Subscription]
    offsets: OffsetTable
    member: GroupMember
    locks: QueueLockClient | None
    consumption: ConcurrentConsumption | OrderedConsumption

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
        components = cls.build(instance, group, options, calls, subscriptions)
        async with AsyncExitStack() as stack:
            if options.trace:
                tracer = await stack.enter_async_context(Tracer.open(instance, group, "CONSUME"))
                calls.trace = ConsumeTrace(tracer, group, instance.clock)
            stack.callback(calls.user.close)
            if isinstance(components.consumption, ConcurrentConsumption):
                stack.callback(components.consumption.close)
            # The handlers outlive the membership: leaving the group waits for their pending messages.
            await stack.enter_async_context(background(*components._jobs()))
            await stack.enter_async_context(components.member.joined())
            yield components

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
            _local(instance, group, options) if options.is_broadcast else RemoteBrokerOffsetStore(instance, group)
        )
        send_backs = None if options.is_broadcast else SendBacks(instance, group, options.attempts_max)
        consumption: ConcurrentConsumption | OrderedConsumption = (
            _orderly(instance, calls, offsets, send_backs, options)
            if options.ordered
            else ConcurrentConsumption(
                instance=instance, calls=calls, offsets=offsets, send_backs=send_backs, concurrency=options.concurrency
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
        jobs = [loop.run, consumption.run] if isinstance(consumption, OrderedConsumption) else [loop.run]
        needs_lock = options.ordered and not options.is_broadcast
        locks = QueueLockClient(instance, group, options.consume_timeout_s) if needs_lock else None
        assigned = AssignedQueues(offsets, partial(_start_offset, instance, offsets, options), jobs, locks)
        member = GroupMember(
            instance=instance,
            group=group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            model=options.model,
            start=options.start,
            subscriptions=subscriptions,
            offsets=offsets,
            assigned=assigned,
            rebalance=Rebalance(instance, group, options.model, options.allocation, subscriptions.keys(), assigned),
            calls=calls,
            ordered=options.ordered,
            close_timeout_s=options.close_timeout_s,
        )
        return cls(instance, group, options, calls, subscriptions, offsets, member, locks, consumption)

    def _jobs(self) -> list[Job]:
        clock, save_s = self.instance.clock, self.instance.settings.offsets_save_interval_s
        jobs: list[Job] = [partial(every, clock, save_s, self.offsets.save, save_s)]
        if isinstance(self.consumption, ConcurrentConsumption):
            jobs += self.consumption.jobs()
        if self.locks is not None:
            jobs.append(partial(self._keep_locks, self.locks))
        return jobs

    async def _keep_locks(self, locks: QueueLockClient) -> None:
        """Renews every 20 s. After a failure, and for queues that could not be unlocked, the brokers are asked soon."""
        clock, renewed_s, is_complete = self.instance.clock, self.instance.clock.monotonic(), True
        while True:
            await clock.sleep(RETRY_INTERVAL_S)
            await locks.release_again()
            if is_complete and clock.monotonic() - renewed_s < RENEW_INTERVAL_S:
                continue
            renewed_s, held = clock.monotonic(), self.member.assigned.locked()
            renewal = await locks.renew(held)
            is_complete = renewal.is_complete
            for assigned in held:
                if self.member.assigned.is_free(assigned.queue):  # unlocked meanwhile, perhaps before the renewal
                    locks.release_later(assigned.queue)
            for queue in renewal.lost:
                self.member.assigned.revoke(queue)
            if renewal.lost:
                self.member.rebalance.trigger()


def retry_subscription(group: str) -> Subscription:
    """Every group that shares its queues also subscribes to its own retry topic."""
    return Subscription(topic=f"{RETRY_PREFIX}{group}")


def _orderly(
    instance: Instance, calls: HandlerCalls, offsets: OffsetTable, send_backs: SendBacks | None, options: PushOptions
) -> OrderedConsumption:
    return OrderedConsumption(
        instance=instance,
        calls=calls,
        offsets=offsets,
        send_backs=send_backs,
        suspend_s=options.suspend_s,
        attempts_max=options.max_reconsume,
        slots=asyncio.Semaphore(options.concurrency),
        needs_lock=not options.is_broadcast,
    )


async def _start_offset(
    instance: Instance, offsets: OffsetTable, options: PushOptions, queue: MessageQueue
) -> StartOffset:
    return await find_start_offset(queue, await offsets.load(queue), options.start, QueueBounds(instance))


def _local(instance: Instance, group: str, options: PushOptions) -> LocalFileOffsetStore:
    # The default client id changes with each process, but the next process must find the file.
    named = instance.settings.instance_name is not None
    return LocalFileOffsetStore(
        offsets_file(instance.client_id if named else f"{instance.ip}@DEFAULT", group, options.offsets_root)
    )


H = TypeVar("H", bound=Handler)


class PushConsumer(Consumer[PushComponents]):
    """A handler that returns has consumed its message; one that raises, or returns `False` or a `Retry`, gets it again.

    Handlers that are coroutine functions run on the event loop, others in threads. With `ordered=True` each queue has
    one handler at a time, and a failure blocks the queue; otherwise a failed message is sent back to the broker, which
    redelivers it later, at most `max_reconsume` times (16), and then moves it to %DLQ%group.
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
        self._components: PushComponents | None = None

    # --- subscriptions ----------------------------------------------------------------------------------------------

    def subscribe(
        self, topic: str, expression: str = ALL, *, sql: str | None = None, handler: Handler | None = None
    ) -> None:
        """Tags as in "a || b", or `sql` over properties. May be called again, also while the consumer runs."""
        version = (self._clock or Clock()).now_ms()
        subscription = subscription_of(topic, expression, sql=sql, version=version)
        if handler is not None:
            self._calls.by_topic[topic] = handler
        if self._components is not None:
            self._components.member.subscribe(subscription)
        self._subscriptions[topic] = subscription

    def unsubscribe(self, topic: str) -> None:
        self._subscriptions.pop(topic, None)
        if self._components is not None:
            self._components.member.unsubscribe(topic)

    def on(self, topic: str, expression: str = ALL, *, sql: str | None = None) -> Callable[[H], H]:
        """Decorator: subscribes the function as the handler."""

        def subscribe(handler: H) -> H:
            self.subscribe(topic, expression, sql=sql, handler=handler)
            return handler

        return subscribe

    # --- state ------------------------------------------------------------------------------------------------------

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that it consumes now."""
        return sorted(assigned.queue for assigned in self._running[1].member.assigned.all())

    @property
    def counts(self) -> dict[str, TopicCounts]:
        """Messages consumed and failed, by topic."""
        return self._calls.counts

    async def commit(self) -> None:
        """Saves the offsets now, instead of at the next interval."""
        await self._running[1].offsets.save()

    # --- life -------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _opened(self, instance: Instance) -> AsyncIterator[PushComponents]:
        self._check()
        subscriptions = dict(self._subscriptions)
        if not self.options.is_broadcast:
            retries = retry_subscription(self.group)
            subscriptions[retries.topic] = retries
        async with PushComponents.open(instance, self.group, self.options, self._calls, subscriptions) as components:
            self._components = components
            try:
                yield components
            finally:
                self._components = None

    def _check(self) -> None:
        if not self._subscriptions:
            raise ClientError(f"the consumer of {self.group} has no subscription: call subscribe() before start()")
        unhandled = [topic for topic in self._subscriptions if topic not in self._calls.by_topic]
        if unhandled and self._calls.default is None:
            raise ClientError(
                f"no handler for {', '.join(unhandled)}: give handler= to the consumer, or to subscribe()"
            )
