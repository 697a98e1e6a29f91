"""Base of all consumers: the lifecycle from `start()` to `close()`, group membership, and the running info for admins.

`GroupMember` is the consumer as its brokers know it: it joins and leaves the group, and handles their requests.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Generic, Self, TypeVar

from ariane.client.consumer.invocation import HandlerCalls, TopicCounts
from ariane.client.consumer.message import receive
from ariane.client.consumer.offsets import OffsetTable, Start
from ariane.client.consumer.queues import AssignedQueue, AssignedQueues
from ariane.client.consumer.rebalance import Rebalance
from ariane.client.core.instance import Instance
from ariane.client.core.lifecycle import Lifetime
from ariane.client.core.queue_bounds import broker_of, readable_queues
from ariane.client.settings import ClientSettings, settings_for
from ariane.clock import Clock
from ariane.errors import ArianeError, ClientError, RequestFailed
from ariane.lifecycle import TaskSet, background
from ariane.model.group import ConsumeType, ExpressionType, MessageModel, Subscription
from ariane.model.ids import group_name_problem
from ariane.model.message import StoredMessage
from ariane.model.route import MessageQueue
from ariane.wire.codes import ResponseCode, Version
from ariane.wire.requests.clients import (
    CheckClientConfig,
    ClientCheck,
    ConsumeOutcome,
    ConsumerData,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumeStatus,
    ProcessQueueInfo,
)

R = TypeVar("R")


class Consumer(ABC, Generic[R]):
    """`R` holds the components of an open consumer."""

    def __init__(
        self,
        nameservers: str | Iterable[str] | None,
        group: str,
        settings: ClientSettings | None,
        clock: Clock | None,
    ) -> None:
        fault = group_name_problem(group)
        if fault is not None:
            raise ClientError(f"cannot consume: {fault}")
        self.group = group
        self.client_settings = settings_for(nameservers, settings)
        self._clock = clock
        self._lifetime = Lifetime(f"consumer of group {group}", self._open)

    async def start(self) -> None:
        """Does not fail if topics or brokers do not exist yet: logs that, and waits for them."""
        await self._lifetime.start()

    async def close(self) -> None:
        await self._lifetime.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def client_id(self) -> str:
        return self._running[0].client_id

    @property
    def _running(self) -> tuple[Instance, R]:
        """ClientClosed unless it is open."""
        return self._lifetime.value

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[tuple[Instance, R]]:
        async with Instance.open(self.client_settings, clock=self._clock) as instance:
            async with self._opened(instance) as components:
                yield instance, components

    @abstractmethod
    def _opened(self, instance: Instance) -> AbstractAsyncContextManager[R]:
        """Builds the components on `instance` and keeps them running."""


# --- running info, in the format of Apache's tools ---

_MiB = 1024 * 1024


def properties_of(nameservers: str, consume_type: str, began_ms: int, *, ordered: bool, threads: int) -> dict[str, str]:
    return {
        "PROP_NAMESERVER_ADDR": nameservers,
        "PROP_CONSUME_TYPE": consume_type,
        "PROP_CONSUMEORDERLY": "true" if ordered else "false",
        "PROP_THREADPOOL_CORE_SIZE": str(threads),
        "PROP_CLIENT_VERSION": Version.V4_7_1.name,
        "PROP_CONSUMER_START_TIMESTAMP": str(began_ms),
    }


def queue_info(assigned: AssignedQueue, offsets: OffsetTable, now_s: float) -> ProcessQueueInfo:
    process = assigned.process
    return ProcessQueueInfo(
        commit_offset=offsets.get(assigned.queue) or 0,
        cached_msg_min_offset=process.commit_offset if len(process) else 0,
        cached_msg_max_offset=process.last_offset if len(process) else 0,
        cached_msg_count=len(process),
        cached_msg_size_mib=process.bytes // _MiB,
        locked=assigned.locked_until > now_s,
        last_lock_timestamp=assigned.last_lock_ms,
        dropped=process.dropped,
        last_pull_timestamp=assigned.last_pull_ms,
        last_consume_timestamp=assigned.last_consume_ms,
    )


def status_table(
    topics: Iterable[str], counts: Mapping[str, TopicCounts], running_s: float
) -> dict[str, ConsumeStatus]:
    """Averages since the consumer started; pull times are not recorded."""
    return {topic: _status(counts.get(topic, TopicCounts()), max(running_s, 1.0)) for topic in topics}


def _status(counts: TopicCounts, running_s: float) -> ConsumeStatus:
    handled = counts.consumed + counts.failed
    return ConsumeStatus(
        consume_rt=counts.busy_s * 1000 / handled if handled else 0.0,
        consume_ok_tps=counts.consumed / running_s,
        consume_failed_tps=counts.failed / running_s,
        consume_failed_msgs=counts.failed,
    )


# --- group membership ---

log = logging.getLogger(__name__)

_RESET_WAIT_S = 10.0  # as long as Apache's client waits for running handlers


@dataclass(slots=True, kw_only=True)
class GroupMember:
    """A consumer as a member of its group; registered at the client instance as `RegisteredConsumer`."""

    instance: Instance
    group: str
    consume_type: ConsumeType
    model: MessageModel
    start: Start
    subscriptions: dict[str, Subscription]
    offsets: OffsetTable
    assigned: AssignedQueues
    rebalance: Rebalance
    calls: HandlerCalls | None = None
    ordered: bool = False
    close_timeout_s: float = 30.0
    _began_ms: int = 0
    _resets: TaskSet = field(default_factory=TaskSet)

    # --- joining and leaving ----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def joined(self) -> AsyncIterator[None]:
        """A member of the group while the body runs. Leaving finishes pending messages, within `close_timeout_s`."""
        self._began_ms = self.instance.clock.now_ms()
        for subscription in list(self.subscriptions.values()):
            await self._prepare(subscription)
        self.instance.register_consumer(self.group, self)
        await self.instance.heartbeat_now()
        try:
            async with background(*self.rebalance.jobs()):
                yield
        finally:
            await self._leave()

    def subscribe(self, subscription: Subscription) -> None:
        self.subscriptions[subscription.topic] = subscription
        self.instance.routes.watch(subscription.topic)
        self.instance.heartbeat_soon()
        self.rebalance.trigger()

    def unsubscribe(self, topic: str) -> None:
        self.subscriptions.pop(topic, None)
        self.instance.heartbeat_soon()
        self.rebalance.trigger()

    async def _prepare(self, subscription: Subscription) -> None:
        """The brokers of a topic must be known before the first heartbeat. A topic without a route may get one."""
        self.instance.routes.watch(subscription.topic)
        try:
            route = await self.instance.routes.find(subscription.topic)
        except ArianeError as error:
            log.warning("no route yet", extra={"topic": subscription.topic, "reason": str(error)})
            return
        queues = readable_queues(subscription.topic, route) if route is not None else []
        if subscription.expression_type != ExpressionType.TAG and queues:
            await self._check(subscription, queues[0])

    async def _check(self, subscription: Subscription, queue: MessageQueue) -> None:
        """An invalid expression fails the start with the broker's error, instead of a log line every few seconds."""
        body = ClientCheck(client_id=self.instance.client_id, group=self.group, subscription_data=subscription)
        try:
            await self.instance.call(await broker_of(self.instance, queue), CheckClientConfig(body))
        except RequestFailed as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        except ArianeError as error:
            log.warning("subscription not checked", extra={"topic": queue.topic, "reason": str(error)})

    async def _leave(self) -> None:
        try:
            self._resets.cancel()
            await self._finish_pending_messages()
            await self.assigned.revoke_all(self.close_timeout_s)
            await self.offsets.save()
        finally:
            await self.instance.unregister_consumer(self.group)

    async def _finish_pending_messages(self) -> None:
        if self.calls is None:
            return
        for assigned in self.assigned.all():
            assigned.paused = True
        try:
            async with asyncio.timeout(self.close_timeout_s):
                for assigned in self.assigned.all():
                    await assigned.wait_until(lambda process=assigned.process: len(process) == 0)  # type: ignore[misc]
        except TimeoutError:
            pending = sum(len(assigned.process) for assigned in self.assigned.all())
            log.warning(
                "closed with pending messages: they will be redelivered",
                extra={"group": self.group, "messages": pending},
            )

    # --- requests from brokers --------------------------------------------------------------------------------------

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=self.consume_type,
            message_model=self.model,
            consume_from_where=self.start.where,
            subscription_data_set=list(self.subscriptions.values()),
            unit_mode=self.instance.settings.unit_mode,
        )

    def rebalance_soon(self) -> None:
        self.rebalance.trigger()

    def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            assigned = self.assigned.get(queue)
            if assigned is not None and queue.topic == topic:
                self._resets.spawn(self._reset(assigned, offset))

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        return self.offsets.of(topic)

    def running_info(self) -> ConsumerRunningInfo:
        clock, settings = self.instance.clock, self.instance.settings
        calls = self.calls
        return ConsumerRunningInfo(
            properties=properties_of(
                settings.nameservers,
                self.consume_type,
                self._began_ms,
                ordered=self.ordered,
                threads=0 if calls is None else calls.user.threads,
            ),
            subscription_set=list(self.subscriptions.values()),
            mq_table={
                assigned.queue: queue_info(assigned, self.offsets, clock.monotonic())
                for assigned in self.assigned.all()
            },
            status_table=status_table(
                self.subscriptions, {} if calls is None else calls.counts, (clock.now_ms() - self._began_ms) / 1000
            ),
        )

    async def consume_directly(self, message: StoredMessage, broker_name: str | None) -> ConsumeResult:
        if self.calls is None:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR, f"this member of group {self.group} is a pull consumer: it has no handler"
            )
        queue = MessageQueue(topic=message.topic, broker_name=broker_name or "", queue_id=message.queue_id)
        began_ms = self.instance.clock.now_ms()
        outcome = await self.calls.run([receive(message, queue)])
        result = ConsumeOutcome.CR_SUCCESS if outcome.done else ConsumeOutcome.CR_LATER
        if outcome.error is not None:
            result = ConsumeOutcome.CR_THROW_EXCEPTION
        return ConsumeResult(
            order=self.ordered,
            consume_result=result,
            remark=None if outcome.error is None else repr(outcome.error),
            spent_time_mills=self.instance.clock.now_ms() - began_ms,
        )

    async def _reset(self, assigned: AssignedQueue, offset: int) -> None:
        """Pending messages are dropped: after a reset, consumption continues in order from the new offset."""
        lock = assigned.consuming
        try:
            async with asyncio.timeout(_RESET_WAIT_S):
                await lock.acquire()
        except TimeoutError:
            log.warning("reset does not wait for a running handler", extra={"queue": assigned.queue})
            await self._move(assigned, offset)
            return
        try:
            await self._move(assigned, offset)
        finally:
            lock.release()

    async def _move(self, assigned: AssignedQueue, offset: int) -> None:
        if self.assigned.get(assigned.queue) is not assigned:
            return
        log.info(
            "offset reset", extra={"queue": assigned.queue, "from": self.offsets.get(assigned.queue), "to": offset}
        )
        assigned.drop()
        self.offsets.move(assigned.queue, offset)
        await self.offsets.save([assigned.queue])
        if self.assigned.get(assigned.queue) is assigned:  # it may have been revoked meanwhile
            assigned.restart(offset)
