"""The producer: sends messages and returns their results.

async with Producer("127.0.0.1:9876", group="orders") as producer:
    result = await producer.send("orders", b"...", tags="paid", keys=["order-17"])
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TypeVar, Unpack

from ariane.client.core.instance import Instance, Reply
from ariane.client.core.lifecycle import Lifetime, NonTransactionalProducer, RegisteredProducer
from ariane.client.producer.request_reply import reply_message, request_and_wait
from ariane.client.producer.result import Callback, SendResult, call_back
from ariane.client.producer.sender import Choice, Sender
from ariane.client.producer.settings import ProducerOptions, ProducerSettings
from ariane.client.settings import ClientSettings, settings_for
from ariane.clock import Clock
from ariane.errors import MessageRejected, SettingsError, TooManyInFlight
from ariane.lifecycle import TaskSet
from ariane.model.message import Message, MessageFields, StoredMessage
from ariane.model.route import MessageQueue

P = TypeVar("P", bound="Producer")


class Producer:
    """Open it with `async with`, or with `start()` and `close()`. One producer may be shared by any number of tasks.

    Keyword arguments are those of `ProducerSettings`; what all clients have in common is in `settings`.
    """

    def __init__(
        self,
        nameservers: str | Iterable[str] | None = None,
        *,
        group: str,
        send_timeout_s: float = 3.0,
        retries: int = 2,
        trace: bool = False,
        batch_linger_ms: float = 0.0,
        latency_fault: bool = False,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
        **more: Unpack[ProducerOptions],
    ) -> None:
        options = {field.name for field in dataclasses.fields(ProducerSettings)}
        for name in more.keys() - options:
            raise SettingsError(f"a producer has no option {name}; it has {', '.join(sorted(options))}")
        self.settings = ProducerSettings(
            group=group,
            send_timeout_s=send_timeout_s,
            retries=retries,
            trace=trace,
            batch_linger_ms=batch_linger_ms,
            latency_fault=latency_fault,
            **more,
        )
        self.client_settings = settings_for(nameservers, settings)
        self._clock = clock
        self._lifetime = Lifetime("producer", self._open)
        self._nowait = TaskSet()

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Opens no connection yet: a nameserver that is down is reported by the first send."""
        await self._lifetime.start()

    async def close(self) -> None:
        """Waits for messages of `send_nowait` and open batches, unregisters at the brokers, closes the connections."""
        await self._nowait.wait()
        await self._lifetime.close()

    async def __aenter__(self: P) -> P:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Sender]:
        async with (
            Instance.open(self.client_settings, clock=self._clock) as instance,
            Sender.open(instance, self.settings) as sender,
        ):
            instance.register_producer(self.settings.group, self._registration(sender))
            try:
                yield sender
            finally:
                await sender.accumulator.close()
                await instance.unregister_producer(self.settings.group)

    def _registration(self, sender: Sender) -> RegisteredProducer:
        return NonTransactionalProducer(self.settings.group)

    @property
    def client_id(self) -> str:
        return self._lifetime.value.instance.client_id

    # --- sending ----------------------------------------------------------------------------------------------------

    async def send(
        self,
        message: Message | str,
        body: bytes | None = None,
        *,
        queue: Choice = None,
        timeout_s: float | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendResult:
        """Sends a message, or a body to a topic with the fields of a Message as arguments; waits for the broker.

        `queue` is a queue, or a function of the queues and the message that chooses one.
        """
        return await self._begin(message, body, queue, timeout_s, fields)

    def send_nowait(
        self,
        message: Message | str,
        body: bytes | None = None,
        *,
        callback: Callback | None = None,
        queue: Choice = None,
        timeout_s: float | None = None,
        **fields: Unpack[MessageFields],
    ) -> "asyncio.Future[SendResult]":
        """Returns a future immediately. TooManyInFlight if `in_flight_max` messages already wait for their results."""
        accumulator = self._lifetime.value.accumulator
        waiting = len(self._nowait) + accumulator.nowait_count
        if waiting >= self.settings.in_flight_max:
            raise TooManyInFlight(
                f"{waiting} messages already wait for their results: await some of them, or use send()"
            )
        work = self._begin(message, body, queue, timeout_s, fields)
        if isinstance(work, asyncio.Future):  # it joined a batch, which completes the future
            accumulator.track_nowait(callback)
            return work
        future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        self._nowait.spawn(_complete(future, work, callback))
        return future

    def _begin(
        self, message: Message | str, body: bytes | None, queue: Choice, timeout_s: float | None, fields: MessageFields
    ) -> Awaitable[SendResult]:
        sender = self._lifetime.value
        if queue is None and sender.accumulates_simple and isinstance(message, str):
            waiter = sender.try_accumulate(message, body, fields)
            if waiter is not None:
                return waiter
        return sender.begin(message_of(message, body, fields), queue, timeout_s)

    async def send_oneway(
        self,
        message: Message | str,
        body: bytes | None = None,
        *,
        queue: Choice = None,
        **fields: Unpack[MessageFields],
    ) -> None:
        """Sends once and does not wait for a response: it stays unknown whether the message was stored."""
        await self._lifetime.value.send_oneway(message_of(message, body, fields), queue)

    async def send_batch(
        self, messages: Sequence[Message], *, queue: Choice = None, timeout_s: float | None = None
    ) -> list[SendResult]:
        """A result for each message, in order. Uses several requests, one after the other, if they do not fit one."""
        return await self._lifetime.value.send_batch(messages, queue, timeout_s)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that messages of `topic` may go to."""
        return await self._lifetime.value.queues(topic)

    # --- request-reply ----------------------------------------------------------------------------------------------

    async def request(
        self,
        message: Message | str,
        body: bytes | None = None,
        *,
        queue: Choice = None,
        timeout_s: float = 3.0,
        **fields: Unpack[MessageFields],
    ) -> Reply:
        """Sends a message and waits for the reply of its consumer; NoReply when none comes in time."""
        sender = self._lifetime.value
        request = message_of(message, body, fields)
        await sender.queues(request.topic)  # so that the brokers of the topic are known, and get a heartbeat
        return await request_and_wait(
            sender.instance, request.topic, lambda extra: sender.send(request, queue, timeout_s, extra=extra), timeout_s
        )

    async def reply(self, request: StoredMessage, body: bytes) -> SendResult:
        """Replies to a message that was sent with `request()`; short for `send(reply_message(request, body))`."""
        return await self.send(reply_message(request, body))


def message_of(message: Message | str, body: bytes | None, fields: MessageFields) -> Message:
    """`message` itself, or a Message made from a topic, a body and the other fields by name."""
    if isinstance(message, str):
        tags, keys = fields.get("tags"), fields.get("keys", ())
        if body is not None and len(fields) == ("tags" in fields) + ("keys" in fields):
            # The common fields by name: to pass a dict would take three times as long, 0.35 us.
            return Message(topic=message, body=body, tags=tags, keys=keys)
        try:
            return Message(topic=message, body=b"" if body is None else body, **fields)
        except TypeError as error:
            raise MessageRejected(f"{error}: see the fields of Message") from None
    if body is not None or fields:
        raise MessageRejected("a Message is complete: give its body and fields to Message(...), not to the call")
    return message


async def _complete(
    future: "asyncio.Future[SendResult]", work: Awaitable[SendResult], callback: Callback | None
) -> None:
    try:
        result, failure = await work, None
    except Exception as error:  # goes to the future and to the callback
        result, failure = None, error
    except asyncio.CancelledError:
        future.cancel()
        raise
    if not future.done():
        if failure is not None:
            future.set_exception(failure)
        elif result is not None:
            future.set_result(result)
    if callback is not None:
        if failure is not None and not future.cancelled():
            future.exception()  # marks it as retrieved: the callback gets the error
        call_back(callback, result, failure)
