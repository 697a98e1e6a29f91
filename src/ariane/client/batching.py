"""Batches: cut to what brokers take, or gathered from messages that are sent at about the same time.

Gathering (`batch_linger_ms`) turns many small sends into few requests. Each caller still waits for, and gets, the
result of its own message.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from ariane.client.envelope import ITEM_BYTES, Envelope
from ariane.client.parcel import Batch, Parcel, Single
from ariane.client.producer_settings import ProducerSettings
from ariane.client.send_result import SendResult
from ariane.clock import Clock
from ariane.errors import MessageRejected
from ariane.lifecycle import TaskSet
from ariane.model.ids import RETRY_PREFIX
from ariane.model.message import Message
from ariane.model.route import MessageQueue

BATCH_COUNT_MAX = 500
"""The answer to a batch lists the ids of all its messages in one header field, at most 32 KiB with all its readers."""

Send = Callable[[Parcel, MessageQueue | None], Awaitable[list[SendResult]]]


def check_batch(messages: Sequence[Message]) -> None:
    """MessageRejected when these messages cannot share a request."""
    if not messages:
        raise MessageRejected("the batch is empty: give it at least one message")
    first = messages[0]
    for message in messages:
        if message.topic != first.topic:
            raise MessageRejected(f"a batch has one topic, not {first.topic} and {message.topic}: send two batches")
        if message.wait_stored != first.wait_stored:
            raise MessageRejected("messages of a batch must agree on wait_stored: send two batches")
        if not can_be_batched(message):
            raise MessageRejected("a delayed message or one for a retry topic cannot be in a batch: send it alone")


def can_be_batched(message: Message) -> bool:
    return not message.delay_level and message.deliver_at is None and not message.topic.startswith(RETRY_PREFIX)


def split(envelopes: Iterable[Envelope], bytes_max: int) -> Iterator[list[Envelope]]:
    """Runs of messages that fit one request each, in order."""
    run: list[Envelope] = []
    run_bytes = 0
    for envelope in envelopes:
        size = envelope.batched_size
        if run and (run_bytes + size > bytes_max or len(run) == BATCH_COUNT_MAX):
            yield run
            run, run_bytes = [], 0
        run.append(envelope)
        run_bytes += size
    if run:
        yield run


def parcel_of(envelopes: list[Envelope], *, unit_mode: bool = False) -> Parcel:
    """A batch of one travels as a single message, which may be compressed."""
    return (
        Single(envelopes[0], unit_mode=unit_mode) if len(envelopes) == 1 else Batch.of(envelopes, unit_mode=unit_mode)
    )


class _Gathering:
    """Messages that will leave together, column by column, and who waits for each."""

    __slots__ = ("bodies", "flags", "size", "texts", "unique_keys", "waiters")

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.texts: list[bytes] = []
        self.flags: list[int] = []
        self.unique_keys: list[str] = []
        self.waiters: list[asyncio.Future[SendResult]] = []
        self.size = 0

    def parcel(self, lane: "Lane", *, unit_mode: bool) -> Parcel:
        topic, _, wait_stored = lane
        if len(self.bodies) == 1:
            message = Message(topic=topic, body=self.bodies[0], flag=self.flags[0])
            envelope = Envelope(message, self.unique_keys[0], self.texts[0].decode(), message.body, 0)
            return Single(envelope, unit_mode=unit_mode)
        return Batch(
            topic=topic,
            unique_keys=self.unique_keys,
            bodies=self.bodies,
            texts=self.texts,
            flags=self.flags,
            wait_stored=wait_stored,
            unit_mode=unit_mode,
        )

    def settle(self, results: list[SendResult]) -> None:
        for waiter, result in zip(self.waiters, results, strict=True):
            if not waiter.done():
                waiter.set_result(result)

    def fail(self, error: Exception) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(error)

    def cancel(self) -> None:
        for waiter in self.waiters:
            waiter.cancel()


Lane = tuple[str, MessageQueue | None, bool]
"""What gathered messages share: the topic, the queue where they must go to a certain one, and `wait_stored`."""


class Gatherer:
    """One open gathering for each lane."""

    def __init__(self, settings: ProducerSettings, clock: Clock, send: Send, *, unit_mode: bool = False) -> None:
        self._settings = settings
        self._bytes_max = settings.batch_bytes_max
        self._clock = clock
        self._send = send
        self._unit_mode = unit_mode
        self._open: dict[Lane, _Gathering] = {}
        self._lingering = TaskSet()
        self._leaving = TaskSet()

    def add(self, envelope: Envelope, queue: MessageQueue | None) -> "asyncio.Future[SendResult]":
        """Who awaits it gets the result of this message, after the batch that it left with."""
        message = envelope.message
        lane = (message.topic, queue, message.wait_stored)
        return self.put(lane, message.body, envelope.properties.encode(), envelope.unique_key, message.flag)

    def put(self, lane: Lane, body: bytes, text: bytes, unique_key: str, flag: int = 0) -> "asyncio.Future[SendResult]":
        """The same from pieces: straight-line and without an object for the message, because it is each message's."""
        size = len(body) + len(text) + ITEM_BYTES
        gathering = self._open.get(lane)
        if gathering is None or gathering.size + size > self._bytes_max:
            gathering = self._begin(lane, gathering)
        gathering.size += size
        gathering.bodies.append(body)
        gathering.texts.append(text)
        gathering.flags.append(flag)
        gathering.unique_keys.append(unique_key)
        waiter: asyncio.Future[SendResult] = asyncio.Future(loop=asyncio.get_running_loop())
        gathering.waiters.append(waiter)
        if len(gathering.waiters) == BATCH_COUNT_MAX:
            self._leave(lane, gathering)
        return waiter

    def _begin(self, lane: Lane, full: _Gathering | None) -> _Gathering:
        if full is not None:
            self._leave(lane, full)
        gathering = self._open[lane] = _Gathering()
        self._lingering.spawn(self._linger(lane, gathering))
        return gathering

    async def close(self) -> None:
        """Everything gathered leaves now; returns when all of it has its result."""
        for lane, gathering in list(self._open.items()):
            self._leave(lane, gathering)
        self._lingering.cancel()
        await self._lingering.wait()
        await self._leaving.wait()

    async def _linger(self, lane: Lane, gathering: _Gathering) -> None:
        await self._clock.sleep(self._settings.batch_linger_ms / 1000)
        self._leave(lane, gathering)

    def _leave(self, lane: Lane, gathering: _Gathering) -> None:
        if self._open.get(lane) is gathering:
            del self._open[lane]
            self._leaving.spawn(self._deliver(lane, gathering))

    async def _deliver(self, lane: Lane, gathering: _Gathering) -> None:
        try:
            parcel = gathering.parcel(lane, unit_mode=self._unit_mode)
            gathering.settle(await self._send(parcel, lane[1]))
        except Exception as error:  # whatever it is belongs to those who wait
            gathering.fail(error)
        except asyncio.CancelledError:
            gathering.cancel()
            raise
