"""The producer: messages in, results out.

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
from ariane.client.core.lifecycle import Lifetime, PlainProducer, RegisteredProducer
from ariane.client.producer.request_reply import ask_and_wait, reply_message
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
        known = {field.name for field in dataclasses.fields(ProducerSettings)}
        for name in more.keys() - known:
            raise SettingsError(f"a producer has no option {name}; it has {', '.join(sorted(known))}")
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
        """Contacts nobody yet: a nameserver that is down shows with the first send."""
        await self._lifetime.start()

    async def close(self) -> None:
        """Waits for what `send_nowait` and gathering have in hand, tells the brokers, closes the connections."""
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
            instance.register_producer(self.settings.group, self._part(sender))
            try:
                yield sender
            finally:
                await sender.gatherer.close()
                await instance.unregister_producer(self.settings.group)

    def _part(self, sender: Sender) -> RegisteredProducer:
        return PlainProducer(self.settings.group)

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
        """Returns at once with a future. TooManyInFlight when `in_flight_max` messages already wait."""
        gatherer = self._lifetime.value.gatherer
        waiting = len(self._nowait) + gatherer.watched
        if waiting >= self.settings.in_flight_max:
            raise TooManyInFlight(
                f"{waiting} messages already wait for their results: await some of them, or use send()"
            )
        work = self._begin(message, body, queue, timeout_s, fields)
        if isinstance(work, asyncio.Future):  # a batch has it, whose end will tell
            gatherer.watch(callback)
            return work
        future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        self._nowait.spawn(_settle(future, work, callback))
        return future

    def _begin(
        self, message: Message | str, body: bytes | None, queue: Choice, timeout_s: float | None, fields: MessageFields
    ) -> Awaitable[SendResult]:
        sender = self._lifetime.value
        if queue is None and sender.gathers_usual and isinstance(message, str):
            waiter = sender.gather(message, body, fields)
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
        """Sends once and does not wait: nobody will know whether the message was stored."""
        await self._lifetime.value.send_oneway(message_of(message, body, fields), queue)

    async def send_batch(
        self, messages: Sequence[Message], *, queue: Choice = None, timeout_s: float | None = None
    ) -> list[SendResult]:
        """A result for each message, in order. More than fits one request is sent in several, one after the other."""
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
        """Sends a message and waits for the reply of whoever consumes it; NoReply when none comes in time."""
        sender = self._lifetime.value
        request = message_of(message, body, fields)
        await sender.queues(request.topic)  # so that the brokers of the topic are known, and can get to know us
        return await ask_and_wait(
            sender.instance, request.topic, lambda extra: sender.send(request, queue, timeout_s, extra=extra), timeout_s
        )

    async def reply(self, request: StoredMessage, body: bytes) -> SendResult:
        """Answers a message that was sent with `request()`; the short form of `send(reply_message(request, body))`."""
        return await self.send(reply_message(request, body))


def message_of(message: Message | str, body: bytes | None, fields: MessageFields) -> Message:
    """A Message as it was given, or made from a topic, a body and the other fields by name."""
    if isinstance(message, str):
        tags, keys = fields.get("tags"), fields.get("keys", ())
        if body is not None and len(fields) == ("tags" in fields) + ("keys" in fields):
            # The usual fields by name: names in a dict would take three times as long, 0.35 us.
            return Message(topic=message, body=body, tags=tags, keys=keys)
        try:
            return Message(topic=message, body=b"" if body is None else body, **fields)
        except TypeError as error:
            raise MessageRejected(f"{error}: see the fields of Message") from None
    if body is not None or fields:
        raise MessageRejected("a Message is complete: give its body and fields to Message(...), not to the call")
    return message


async def _settle(future: "asyncio.Future[SendResult]", work: Awaitable[SendResult], callback: Callback | None) -> None:
    try:
        result, failure = await work, None
    except Exception as error:  # belongs to whoever awaits the future, or to the callback
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
            future.exception()  # the callback is told, so nobody needs to await the future
        call_back(callback, result, failure)
