"""All ways to send on one client instance: checked, sealed, put to a queue, delivered, traced."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from ariane.client.core.instance import Instance
from ariane.client.core.trace_format import TraceKind, published
from ariane.client.producer.accumulator import BatchAccumulator, Waiter, lane_of
from ariane.client.producer.delivery import Delivery
from ariane.client.producer.fast_path import ProducerFastPath, encode_simple_properties, words_text
from ariane.client.producer.message import PreparedMessage, prepare, unique_keys_for
from ariane.client.producer.queue_selection import Selector, by_sharding_key
from ariane.client.producer.request import (
    SendRequest,
    Single,
    can_be_batched,
    check_batch,
    reply_request,
    send_request_of,
    split,
)
from ariane.client.producer.request_reply import ReplyMessage
from ariane.client.producer.result import SendResult
from ariane.client.producer.settings import ProducerSettings
from ariane.client.producer.tracing import Tracer
from ariane.errors import MessageRejected, SendFailed
from ariane.model.message import Message, MessageFields
from ariane.model.route import MessageQueue
from ariane.wire.sys_flag import SysFlag, transaction_type

Choice = MessageQueue | Selector | None
"""Where to: this queue, the one that a function chooses, or the next in turn."""


class Sender:
    """Made by `Sender.open`."""

    def __init__(self, instance: Instance, settings: ProducerSettings, tracer: Tracer | None) -> None:
        self.instance = instance
        self.settings = settings
        self.tracer = tracer
        self._delivery = Delivery(instance, settings)
        self._keys = unique_keys_for(instance)
        self._straight = ProducerFastPath(instance, settings, self._delivery, self._keys)
        self._unit_mode = instance.settings.unit_mode
        self._gathers = settings.batch_linger_ms > 0
        # Tracing wants the envelope, and a second attempt at what was stored badly wants the first result.
        self._knows_usual = tracer is None and not settings.retry_when_not_ok
        self.gathers_usual = self._gathers and self._knows_usual
        """Whether messages may be offered to `gather`."""
        self._usual_below = min(settings.compress_over_bytes, settings.message_bytes_max + 1)
        deliver = self._straight.send_parcel if self._knows_usual else self._delivery.send
        self.gatherer = BatchAccumulator(settings, instance.clock, self._keys, deliver, unit_mode=self._unit_mode)

    @classmethod
    @asynccontextmanager
    async def open(cls, instance: Instance, settings: ProducerSettings) -> AsyncIterator["Sender"]:
        async with AsyncExitStack() as stack:
            tracer = None
            if settings.trace:
                opening = Tracer.open(instance, settings.group, "PRODUCE", settings.trace_topic)
                tracer = await stack.enter_async_context(opening)
            sender = cls(instance, settings, tracer)
            stack.push_async_callback(sender.gatherer.close)
            yield sender

    async def queues(self, topic: str) -> list[MessageQueue]:
        return list(await self._delivery.queues(topic))

    def gather(self, topic: str, body: object, fields: MessageFields) -> Waiter | None:
        """Puts a message into the open batch of its topic, straight from the arguments of `send`.

        None when there is none open, or the message is not as usual: then `begin` is for it. To make a Message and to
        look through it takes 1.1 us; the words alone take 0.3.
        """
        keys, tags = fields.get("keys", ()), fields.get("tags")
        if (
            topic not in self.gatherer.open
            or type(body) is not bytes
            or not 0 < len(body) < self._usual_below
            or len(fields) != (keys != ()) + (tags is not None)
        ):
            return None
        words = words_text(keys, tags)
        if words is None:
            return None
        self.instance.check_usable()
        return self.gatherer.put(topic, body, f"{words}WAIT\x01true\x02".encode())

    def begin(self, message: Message, choice: Choice = None, timeout_s: float | None = None) -> Awaitable[SendResult]:
        """`send`, for who awaits it at once: of a message that joins a batch it is a bare future."""
        if choice is None and self._knows_usual:
            text = encode_simple_properties(message, self._usual_below)
            if text is not None:
                return self._gather(message, text) if self._gathers else self._straight.send(message, text, timeout_s)
        return self.send(message, choice, timeout_s)

    async def send(
        self,
        message: Message,
        choice: Choice = None,
        timeout_s: float | None = None,
        *,
        extra: Mapping[str, str] | None = None,
        sys_flag: int = 0,
    ) -> SendResult:
        """`extra` are reserved properties, for messages that are part of something larger."""
        began_ms = self.instance.clock.now_ms()
        envelope = await self._seal(message, extra, sys_flag)
        queue = await self._queue_in_time(message, choice, timeout_s)
        if self._may_gather(envelope, extra):
            result = await self.gatherer.add(envelope, queue)
        else:
            (result,) = await self._delivery.send(self._single(envelope), queue, timeout_s)
        self._trace(envelope, result, began_ms)
        return result

    async def send_oneway(self, message: Message, choice: Choice = None) -> None:
        envelope = await self._seal(message, None, 0)
        await self._delivery.send_oneway(self._single(envelope), await self._queue(message, choice))

    async def send_batch(
        self, messages: Sequence[Message], choice: Choice = None, timeout_s: float | None = None
    ) -> list[SendResult]:
        """A result for each message, in order. What fits one request is stored all or not at all."""
        check_batch(messages)
        envelopes = [await self._seal(message, None, 0) for message in messages]
        began_ms = self.instance.clock.now_ms()
        queue = await self._queue_in_time(messages[0], choice, timeout_s)
        results: list[SendResult] = []
        for run in split(envelopes, self.settings.message_bytes_max):
            try:
                results += await self._delivery.send(send_request_of(run, unit_mode=self._unit_mode), queue, timeout_s)
            except SendFailed as error:
                raise SendFailed(f"{len(results)} of {len(messages)} messages were stored, then: {error}") from error
        for envelope, result in zip(envelopes, results, strict=True):
            self._trace(envelope, result, began_ms)
        return results

    async def _seal(self, message: Message, extra: Mapping[str, str] | None, sys_flag: int) -> PreparedMessage:
        self.instance.check_usable()
        if isinstance(message, ReplyMessage):
            extra = message.reserved_properties()
        return await prepare(message, self._keys.next(), self.settings, extra=extra, sys_flag=sys_flag)

    def _single(self, envelope: PreparedMessage) -> SendRequest:
        if isinstance(envelope.message, ReplyMessage):
            return reply_request(envelope)
        return Single(envelope, unit_mode=self._unit_mode)

    async def _queue_in_time(self, message: Message, choice: Choice, timeout_s: float | None) -> MessageQueue | None:
        """Nameservers that do not answer must not take longer than the whole send may."""
        if choice is None and type(message) is Message and message.sharding_key is None:
            return None  # which asks nobody
        limit_s = self.settings.send_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await self._queue(message, choice)
        except TimeoutError:
            raise SendFailed(
                f"no queue of topic {message.topic} was found within {limit_s} s: check that the nameservers "
                f"({self.instance.nameservers.names}) answer"
            ) from None

    async def _queue(self, message: Message, choice: Choice) -> MessageQueue | None:
        """None: whichever is next in turn when the message leaves."""
        if isinstance(choice, MessageQueue):
            return choice
        if choice is not None:
            return _checked(choice(await self.queues(message.topic), message), message.topic)
        if isinstance(message, ReplyMessage):
            return await self._reply_queue(message)
        if message.sharding_key is not None:
            return by_sharding_key(await self.queues(message.topic), message.sharding_key)
        return None

    async def _reply_queue(self, reply: ReplyMessage) -> MessageQueue | None:
        """At the broker that has the request, if it can be found: the asker is surely connected to that one."""
        asked_through = str(reply.asked_through)
        for queue in await self.queues(reply.topic):
            if self.instance.routes.master_of(queue.broker_name) == asked_through:
                return queue
        return None

    def _gather(self, message: Message, text: str) -> Waiter:
        self.instance.check_usable()
        return self.gatherer.put(lane_of(message.topic, None, message.wait_stored), message.body, text.encode())

    def _may_gather(self, envelope: PreparedMessage, extra: Mapping[str, str] | None) -> bool:
        """Only plain messages, and none that is better compressed: batches are not."""
        return (
            self._gathers
            and not extra
            and not envelope.sys_flag
            and not isinstance(envelope.message, ReplyMessage)
            and can_be_batched(envelope.message)
        )

    def _trace(self, envelope: PreparedMessage, result: SendResult, began_ms: int) -> None:
        message = envelope.message
        if self.tracer is None or not result.trace_on or message.topic == self.tracer.topic:
            return
        self.tracer.add(
            published(
                timestamp_ms=began_ms,
                region=result.region,
                group=self.settings.group,
                topic=message.topic,
                message_id=result.message_id,
                tags=message.tags,
                keys=message.key_list,
                store_host=self.instance.routes.master_of(result.queue.broker_name) or "",
                body_length=len(message.body),
                cost_ms=self.instance.clock.now_ms() - began_ms,
                kind=_trace_kind(envelope),
                offset_message_id=result.offset_message_id,
                success=result.is_ok,
            )
        )


def _checked(queue: object, topic: str) -> MessageQueue:
    if isinstance(queue, MessageQueue) and queue.topic == topic:
        return queue
    raise MessageRejected(f"the queue selector returned {queue!r}: it must return one of the queues it is given")


def _trace_kind(envelope: PreparedMessage) -> TraceKind:
    if transaction_type(envelope.sys_flag) == SysFlag.TRANSACTION_PREPARED:
        return TraceKind.TRANSACTION_HALF
    message = envelope.message
    return TraceKind.DELAY if message.delay_level or message.deliver_at is not None else TraceKind.NORMAL
