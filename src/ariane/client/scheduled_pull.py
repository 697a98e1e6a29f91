"""Pulling on a schedule: the queues are shared out for the application, which pulls each of them in a callback.

    consumer = ScheduledPullConsumer("127.0.0.1:9876", group="audit")

    @consumer.register("orders")
    async def pull(queue, context):
        result = await context.consumer.pull(queue, await context.consumer.fetch_offset(queue) or 0)
        context.consumer.update_offset(queue, result.next_offset)
        context.next_delay_s = 0.0 if result.messages else 1.0

Apache calls this MQPullConsumerScheduleService.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from ariane.client.allocation import AVERAGELY, Allocation
from ariane.client.held_queue import HeldQueue
from ariane.client.instance import Instance
from ariane.client.pull_consumer import PullConsumer, PullParts
from ariane.client.settings import ClientSettings
from ariane.client.user_calls import UserCalls
from ariane.clock import Clock
from ariane.model.group import MessageModel
from ariane.model.route import MessageQueue

log = logging.getLogger(__name__)

_NEXT_DELAY_S = 0.2  # as in Apache's client
_AFTER_FAILURE_S = 1.0
_THREADS = 20


@dataclass(slots=True)
class PullContext:
    """What a callback is given beside its queue, and where it says when it wants to be called again."""

    consumer: "ScheduledPullConsumer"
    next_delay_s: float = _NEXT_DELAY_S


Callback = Callable[[MessageQueue, PullContext], Any]
C = TypeVar("C", bound=Callback)


class ScheduledPullConsumer(PullConsumer):
    """A queue's callback is never called twice at a time. A callback that raises is called again after a second."""

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
        """Makes the function below it the callback for the queues of `topic`. Register before `start()`."""

        def register(callback: C) -> C:
            self._callbacks[topic] = callback
            self.on_queues_changed(topic, _nobody)
            return callback

        return register

    @asynccontextmanager
    async def _opened(self, instance: Instance) -> AsyncIterator[PullParts]:
        async with super()._opened(instance) as parts:
            try:
                yield parts
            finally:
                self._user.close()

    async def _run(self, held: HeldQueue) -> None:
        clock = self._running[0].clock
        while True:
            context = PullContext(self)
            try:
                await self._user.call(self._callbacks[held.queue.topic], held.queue, context)
            except Exception:  # the edge of a user's callback
                log.exception("pull callback failed", extra={"queue": held.queue})
                context.next_delay_s = _AFTER_FAILURE_S
            await clock.sleep(max(0.0, context.next_delay_s))


def _nobody(_topic: str, _everything: frozenset[MessageQueue], _mine: frozenset[MessageQueue]) -> None:
    """The callbacks are enough."""
