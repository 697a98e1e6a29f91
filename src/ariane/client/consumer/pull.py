"""The pull consumer: the application chooses the queue, the offset and the number of messages.

async with PullConsumer("127.0.0.1:9876", group="audit") as consumer:
    for queue in await consumer.queues("orders"):
        result = await consumer.pull(queue, await consumer.fetch_offset(queue) or 0)
        ...
        consumer.update_offset(queue, result.next_offset)
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from ariane.client.consumer.allocation import AVERAGELY, Allocation
from ariane.client.consumer.base import Consumer, GroupMember
from ariane.client.consumer.message import Received
from ariane.client.consumer.offsets import OffsetTable, RemoteBrokerOffsetStore, Start, StartOffset
from ariane.client.consumer.pull_request import Puller, PullRequest, PullResult
from ariane.client.consumer.queues import AssignedQueue, AssignedQueues, QueueJob
from ariane.client.consumer.rebalance import QueuesChanged, Rebalance
from ariane.client.consumer.retry import SendBacks
from ariane.client.consumer.subscriptions import ALL, subscription_of
from ariane.client.core.instance import Instance
from ariane.client.core.queue_bounds import QueueBounds, readable_queues
from ariane.client.core.user_calls import UserCalls
from ariane.client.settings import ClientSettings
from ariane.clock import Clock
from ariane.errors import SendFailed
from ariane.lifecycle import background, every
from ariane.model.group import ConsumeType, MessageModel, Subscription
from ariane.model.route import MessageQueue

_WAIT_S = 20.0
_ATTEMPTS_MAX = 16


@dataclass(slots=True)
class PullComponents:
    puller: Puller
    bounds: QueueBounds
    offsets: OffsetTable
    member: GroupMember
    rebalance: Rebalance


class PullConsumer(Consumer[PullComponents]):
    def __init__(
        self,
        nameservers: str | Iterable[str] | None = None,
        *,
        group: str,
        model: MessageModel | str = MessageModel.CLUSTERING,
        allocation: Allocation = AVERAGELY,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(nameservers, group, settings, clock)
        self._model = MessageModel(model.upper())
        self._allocation = allocation
        self._listeners: list[tuple[str, QueuesChanged]] = []
        self._jobs: Sequence[QueueJob] = ()

    # --- queues -----------------------------------------------------------------------------------------------------

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of `topic`; NoRoute when it is not known."""
        return readable_queues(topic, await self._running[0].routes.route(topic))

    def on_queues_changed(self, topic: str, listener: QueuesChanged) -> None:
        """Shares the queues of `topic` with the group; calls `listener` with all queues and with the assigned ones.

        Apache calls this a MessageQueueListener. Register before `start()`.
        """
        self._listeners.append((topic, listener))

    async def queues_in_balance(self, topic: str) -> list[MessageQueue]:
        """The queues that are assigned to this member, of a topic that was registered with `on_queues_changed`."""
        return sorted(self._running[1].member.assigned.of(topic))

    # --- messages ---------------------------------------------------------------------------------------------------

    async def pull(
        self, queue: MessageQueue, offset: int, expression: str = ALL, *, sql: str | None = None, count: int = 32
    ) -> PullResult:
        """The messages that are there now, perhaps none."""
        return await self._pull(queue, offset, subscription_of(queue.topic, expression, sql=sql), count, 0.0)

    async def pull_blocking(
        self,
        queue: MessageQueue,
        offset: int,
        expression: str = ALL,
        *,
        sql: str | None = None,
        count: int = 32,
        wait_s: float = _WAIT_S,
    ) -> PullResult:
        """Long polling: the broker holds the request for up to `wait_s` until there is a message."""
        return await self._pull(queue, offset, subscription_of(queue.topic, expression, sql=sql), count, wait_s)

    async def _pull(
        self, queue: MessageQueue, offset: int, subscription: Subscription, count: int, wait_s: float
    ) -> PullResult:
        request = PullRequest(queue=queue, offset=offset, subscription=subscription, count=count, wait_s=wait_s)
        return await self._running[1].puller.pull(request)

    async def send_back(self, message: Received, delay_level: int = 0) -> None:
        """Has `message` redelivered later, through %RETRY%group."""
        if not await SendBacks(self._running[0], self.group, _ATTEMPTS_MAX).send_back(message, delay_level):
            raise SendFailed(f"no broker accepted message {message.message_id} back: see the log, and try again later")

    # --- offsets ----------------------------------------------------------------------------------------------------

    async def fetch_offset(self, queue: MessageQueue, *, from_broker: bool = False) -> int | None:
        """The group's offset as last updated here, otherwise as the broker has it; None if there is none."""
        offsets = self._running[1].offsets
        cached = None if from_broker else offsets.get(queue)
        return cached if cached is not None else await offsets.load(queue)

    def update_offset(self, queue: MessageQueue, offset: int) -> None:
        """Held in memory and saved every 5 s; `commit()` saves immediately."""
        self._running[1].offsets.move(queue, offset)

    async def commit(self) -> None:
        await self._running[1].offsets.save()

    async def min_offset(self, queue: MessageQueue) -> int:
        return await self._running[1].bounds.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        return await self._running[1].bounds.max_offset(queue)

    async def search_offset(self, queue: MessageQueue, moment: datetime | int) -> int:
        return await self._running[1].bounds.search_offset(queue, moment)

    async def earliest_store_time_ms(self, queue: MessageQueue) -> int | None:
        return await self._running[1].bounds.earliest_store_time_ms(queue)

    # --- life -------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _opened(self, instance: Instance) -> AsyncIterator[PullComponents]:
        components = self._build(instance)
        for topic, listener in self._listeners:
            components.rebalance.on_change(partial(_for_topic, topic, listener))
        save_s = instance.settings.offsets_save_interval_s
        async with background(partial(every, instance.clock, save_s, components.offsets.save, save_s)):
            async with components.member.joined():
                yield components

    def _build(self, instance: Instance) -> PullComponents:
        offsets = OffsetTable(RemoteBrokerOffsetStore(instance, self.group))
        topics = {topic: Subscription(topic=topic) for topic, _ in self._listeners}
        assigned = AssignedQueues(offsets, _manual_offset, self._jobs)
        rebalance = Rebalance(instance, self.group, self._model, self._allocation, topics.keys(), assigned)
        member = GroupMember(
            instance=instance,
            group=self.group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            model=self._model,
            start=Start.of("latest"),
            subscriptions=topics,
            offsets=offsets,
            assigned=assigned,
            rebalance=rebalance,
        )
        return PullComponents(Puller(instance, self.group), QueueBounds(instance), offsets, member, rebalance)


async def _manual_offset(_queue: MessageQueue) -> StartOffset:
    return StartOffset(0, "the application chooses its offsets")


def _for_topic(
    wanted_topic: str,
    listener: QueuesChanged,
    topic: str,
    all_queues: frozenset[MessageQueue],
    mine: frozenset[MessageQueue],
) -> None:
    if topic == wanted_topic:
        listener(topic, all_queues, mine)


# --- scheduled pulling ---

log = logging.getLogger(__name__)

_NEXT_DELAY_S = 0.2  # as in Apache's client
_AFTER_FAILURE_S = 1.0
_THREADS = 20


@dataclass(slots=True)
class PullContext:
    """The second argument of a callback, in which it also sets when it is called next."""

    consumer: "ScheduledPullConsumer"
    next_delay_s: float = _NEXT_DELAY_S


Callback = Callable[[MessageQueue, PullContext], Any]
C = TypeVar("C", bound=Callback)


class ScheduledPullConsumer(PullConsumer):
    """Calls a callback for each assigned queue, which pulls from it; Apache's MQPullConsumerScheduleService.

        consumer = ScheduledPullConsumer("127.0.0.1:9876", group="audit")

        @consumer.register("orders")
        async def pull(queue, context):
            result = await context.consumer.pull(queue, await context.consumer.fetch_offset(queue) or 0)
            context.consumer.update_offset(queue, result.next_offset)
            context.next_delay_s = 0.0 if result.messages else 1.0

    A queue's callback is never called twice at a time. A callback that raises is called again after a second.
    """

    def __init__(
        self,
        nameservers: str | Iterable[str] | None = None,
        *,
        group: str,
        model: MessageModel | str = MessageModel.CLUSTERING,
        allocation: Allocation = AVERAGELY,
        threads: int = _THREADS,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(nameservers, group=group, model=model, allocation=allocation, settings=settings, clock=clock)
        self._callbacks: dict[str, Callback] = {}
        self._user = UserCalls(threads)
        self._jobs = (self._run,)

    def register(self, topic: str) -> Callable[[C], C]:
        """Decorator: makes the function the callback for the queues of `topic`. Register before `start()`."""

        def register(callback: C) -> C:
            self._callbacks[topic] = callback
            self.on_queues_changed(topic, _ignore_change)
            return callback

        return register

    @asynccontextmanager
    async def _opened(self, instance: Instance) -> AsyncIterator[PullComponents]:
        async with super()._opened(instance) as components:
            try:
                yield components
            finally:
                self._user.close()

    async def _run(self, assigned: AssignedQueue) -> None:
        clock = self._running[0].clock
        while True:
            context = PullContext(self)
            try:
                await self._user.call(self._callbacks[assigned.queue.topic], assigned.queue, context)
            except Exception:  # the edge of a user's callback
                log.exception("pull callback failed", extra={"queue": assigned.queue})
                context.next_delay_s = _AFTER_FAILURE_S
            await clock.sleep(max(0.0, context.next_delay_s))


def _ignore_change(_topic: str, _all_queues: frozenset[MessageQueue], _mine: frozenset[MessageQueue]) -> None:
    """The callbacks need no notification."""
