"""Batch accumulator (`batch_linger_ms`): collects small sends into batches, as aiokafka's accumulator does.

Each caller still waits for, and gets, the result of its own message.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from operator import add
from typing import Any

from ariane.client.producer.message import ITEM_BYTES, PreparedMessage
from ariane.client.producer.request import BATCH_COUNT_MAX, Batch, SendRequest, Single
from ariane.client.producer.result import Callback, SendResult, call_back
from ariane.client.producer.settings import ProducerSettings
from ariane.clock import Clock
from ariane.lifecycle import TaskSet
from ariane.model.message import Message
from ariane.model.route import MessageQueue
from ariane.wire.message_id import UNIQUE_KEY_CHARS_MAX, UniqueKeys
from ariane.wire.properties import PAIR_END, UNIQUE_KEY_START

Waiter = asyncio.Future[SendResult]
BatchKey = str | tuple[str, MessageQueue | None, bool]
"""What the messages of a batch share: topic, fixed queue, wait_stored. Commonly just the topic: one look-up."""

_COLUMNS = 4
FULL = BATCH_COUNT_MAX * _COLUMNS
"""The number of items of a full batch."""


def batch_key_of(topic: str, queue: MessageQueue | None, wait_stored: bool) -> BatchKey:
    """`queue` is None if the messages may go to any queue."""
    return topic if queue is None and wait_stored else (topic, queue, wait_stored)


class PendingBatch:
    """Messages that will be sent together, and the futures that wait for their results.

    `items` holds body, property text, unique key and waiter of each message, one after the other: one list grows in one
    step for a message, where four lists would take four; a slice of it is a column. A message without a key gets it
    when the batch is sent, at the end of its text: generating keys together takes half the time.
    """

    __slots__ = ("callbacks", "flags", "items", "key", "loop", "nowait_count", "size")

    def __init__(self, key: BatchKey) -> None:
        self.key = key
        self.loop = asyncio.get_running_loop()
        self.items: list[Any] = []
        self.flags: dict[int, int] = {}
        self.size = 0
        self.nowait_count = 0
        """How many of the messages came by `send_nowait`."""
        self.callbacks: list[tuple[int, Callback]] = []
        """Each with the index of its message."""

    def __len__(self) -> int:
        return len(self.items) // _COLUMNS

    @property
    def queue(self) -> MessageQueue | None:
        return None if isinstance(self.key, str) else self.key[1]

    def send_request(self, keys: UniqueKeys, *, unit_mode: bool) -> SendRequest:
        topic, _, wait_stored = (self.key, None, True) if isinstance(self.key, str) else self.key
        self._assign_keys(keys)
        items, flags = self.items, [0] * len(self)
        for index, flag in self.flags.items():
            flags[index] = flag
        if len(self) == 1:
            body, text, unique_key, _ = items
            message = Message(topic=topic, body=body, flag=flags[0])
            return Single(PreparedMessage(message, unique_key, text.decode(), body, 0), unit_mode=unit_mode)
        return Batch(
            topic=topic,
            unique_keys=items[2::_COLUMNS],
            bodies=items[0::_COLUMNS],
            texts=items[1::_COLUMNS],
            flags=flags,
            wait_stored=wait_stored,
            unit_mode=unit_mode,
        )

    def _assign_keys(self, keys: UniqueKeys) -> None:
        items, present = self.items, self.items[2::_COLUMNS]
        missing = present.count(None)
        if missing == len(present):
            items[2::_COLUMNS] = new_keys = keys.many(missing)
            items[1::_COLUMNS] = map(add, items[1::_COLUMNS], _key_texts(new_keys))
        elif missing:
            indexes = [index for index, key in enumerate(present) if key is None]
            new_keys = keys.many(missing)
            for index, key, text in zip(indexes, new_keys, _key_texts(new_keys), strict=True):
                items[_COLUMNS * index + 2] = key
                items[_COLUMNS * index + 1] += text

    # --- completion -------------------------------------------------------------------------------------------------

    @property
    def _waiters(self) -> list[Waiter]:
        return self.items[3::_COLUMNS]

    def complete(self, results: list[SendResult]) -> None:
        waiters = self._waiters
        if len(waiters) == len(results) and not any(map(asyncio.Future.done, waiters)):
            deque(
                map(asyncio.Future.set_result, waiters, results), maxlen=0
            )  # no waiter was cancelled: without a Python loop
        else:
            for waiter, result in zip(waiters, results, strict=True):
                if not waiter.done():
                    waiter.set_result(result)
        for index, callback in self.callbacks:
            call_back(callback, results[index], None)

    def fail(self, error: Exception) -> None:
        waiters = self._waiters
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)
        for index, callback in self.callbacks:
            if not waiters[index].cancelled():
                waiters[index].exception()  # marks it as retrieved: the callback gets the error
            call_back(callback, None, error)

    def cancel(self) -> None:
        for waiter in self._waiters:
            waiter.cancel()


def _key_texts(keys: list[str]) -> list[bytes]:
    """The property text of each key: built as one string, and split at a byte that no key contains."""
    texts = f"{PAIR_END}\x03{UNIQUE_KEY_START}".join(keys)
    return f"{UNIQUE_KEY_START}{texts}{PAIR_END}".encode().split(b"\x03")


_OVERHEAD_BYTES = ITEM_BYTES + len(UNIQUE_KEY_START + PAIR_END) + UNIQUE_KEY_CHARS_MAX
"""Upper bound of what a message takes in a batch besides its body and its property text."""

Send = Callable[[SendRequest, MessageQueue | None], Awaitable[list[SendResult]]]


class BatchAccumulator:
    """Collects messages, with one open batch per key."""

    def __init__(
        self, settings: ProducerSettings, clock: Clock, keys: UniqueKeys, send: Send, *, unit_mode: bool = False
    ) -> None:
        self._linger_s = settings.batch_linger_ms / 1000
        self._bytes_max = settings.batch_bytes_max
        self._clock = clock
        self._keys = keys
        self._send = send
        self._unit_mode = unit_mode
        self.open: dict[BatchKey, PendingBatch] = {}
        """By key. The name of a topic that is found here has been validated."""
        self._latest: PendingBatch | None = None
        self._lingering = TaskSet()
        self._sending = TaskSet()
        self.nowait_count = 0
        """How many messages of `send_nowait` wait for their results."""

    def add(self, prepared: PreparedMessage, queue: MessageQueue | None) -> Waiter:
        """A future for the result of this message, set when its batch has been sent."""
        message = prepared.message
        key = batch_key_of(message.topic, queue, message.wait_stored)
        return self.append(key, message.body, prepared.properties.encode(), prepared.unique_key, message.flag)

    def append(self, key: BatchKey, body: bytes, text: bytes, unique_key: str | None = None, flag: int = 0) -> Waiter:
        """The same from its fields. On the fast path, so without calls and without an object for the message.

        Without a unique key, `text` is the property text that comes before it.
        """
        size = len(body) + len(text) + _OVERHEAD_BYTES
        batch = self.open.get(key)
        if batch is None or batch.size + size > self._bytes_max:
            batch = self._open_batch(key, batch)
        waiter: Waiter = asyncio.Future(loop=batch.loop)
        items = batch.items
        items += (body, text, unique_key, waiter)
        batch.size += size
        self._latest = batch
        if flag:
            batch.flags[len(batch) - 1] = flag
        if len(items) == FULL:
            self._flush(batch)
        return waiter

    def track_nowait(self, callback: Callback | None) -> None:
        """The message that was appended last came by `send_nowait`: counts it, and registers its callback."""
        batch = self._latest
        assert batch is not None
        batch.nowait_count += 1
        self.nowait_count += 1
        if callback is not None:
            batch.callbacks.append((len(batch) - 1, callback))

    def _open_batch(self, key: BatchKey, full: PendingBatch | None) -> PendingBatch:
        if full is not None:
            self._flush(full)
        batch = self.open[key] = PendingBatch(key)
        self._lingering.spawn(self._linger(batch))
        return batch

    async def close(self) -> None:
        """Sends all open batches now; returns when every message has its result."""
        for batch in list(self.open.values()):
            self._flush(batch)
        self._lingering.cancel()
        await self._lingering.wait()
        await self._sending.wait()

    async def _linger(self, batch: PendingBatch) -> None:
        await self._clock.sleep(self._linger_s)
        self._flush(batch)

    def _flush(self, batch: PendingBatch) -> None:
        if self.open.get(batch.key) is batch:
            del self.open[batch.key]
            self._sending.spawn(self._deliver(batch))

    async def _deliver(self, batch: PendingBatch) -> None:
        try:
            batch.complete(await self._send(batch.send_request(self._keys, unit_mode=self._unit_mode), batch.queue))
        except Exception as error:  # every error goes to the waiters
            batch.fail(error)
        except asyncio.CancelledError:
            batch.cancel()
            raise
        finally:
            self.nowait_count -= batch.nowait_count
