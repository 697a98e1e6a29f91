"""The push consumer: messages are brought to handlers.

consumer = PushConsumer("127.0.0.1:9876", group="billing")

@consumer.on("orders", "paid || refunded")
async def bill(message):
    ...

async with consumer:
    await stop.wait()
"""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from ariane.client.allocation import AVERAGELY, Allocation
from ariane.client.consumer import Consumer
from ariane.client.flow_limits import FlowLimits
from ariane.client.handler_calls import Handler, HandlerCalls, OnError, TopicCounts
from ariane.client.instance import Instance
from ariane.client.push_options import PushOptions
from ariane.client.push_parts import PushParts, retry_subscription
from ariane.client.settings import ClientSettings
from ariane.client.start_offset import Start, StartWord
from ariane.client.subscriptions import ALL, subscription_of
from ariane.client.user_calls import UserCalls
from ariane.clock import Clock
from ariane.errors import ClientError
from ariane.model.group import MessageModel, Subscription
from ariane.model.route import MessageQueue

H = TypeVar("H", bound=Handler)


class PushConsumer(Consumer[PushParts]):
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
        self._open_parts: PushParts | None = None

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
    async def _opened(self, instance: Instance) -> AsyncIterator[PushParts]:
        self._check()
        subscriptions = dict(self._subscriptions)
        if not self.options.is_broadcast:
            retries = retry_subscription(self.group)
            subscriptions[retries.topic] = retries
        async with PushParts.open(instance, self.group, self.options, self._calls, subscriptions) as parts:
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
