"""PendingBatch (`batch_linger_ms`) turns many small sends into few requests.

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

# --- gathering ---
#
# Messages that will leave together, and who waits for each of them.

Waiter = asyncio.Future[SendResult]
Lane = str | tuple[str, MessageQueue | None, bool]
"""What gathered messages share. The usual lane of a topic is named by the topic: that is one look-up for a message."""

_COLUMNS = 4
FULL = BATCH_COUNT_MAX * _COLUMNS
"""How many items make a gathering that cannot take another message."""


def lane_of(topic: str, queue: MessageQueue | None, wait_stored: bool) -> Lane:
    """`queue`: where the messages must go to a certain one."""
    return topic if queue is None and wait_stored else (topic, queue, wait_stored)


class PendingBatch:
    """`items` holds body, property text, unique key and waiter of each message, one after the other.

    One list grows in one step for a message, where four would take four; a slice of it is a column. A message without
    a key gets it when all leave, at the end of its text: keys that are made together take half the time.
    """

    __slots__ = ("callbacks", "flags", "items", "lane", "loop", "size", "watched")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.loop = asyncio.get_running_loop()
        self.items: list[Any] = []
        self.flags: dict[int, int] = {}
        self.size = 0
        self.watched = 0
        """How many of the messages came by `send_nowait`."""
        self.callbacks: list[tuple[int, Callback]] = []
        """With the place of the message that each is for."""

    def __len__(self) -> int:
        return len(self.items) // _COLUMNS

    @property
    def queue(self) -> MessageQueue | None:
        return None if isinstance(self.lane, str) else self.lane[1]

    def parcel(self, keys: UniqueKeys, *, unit_mode: bool) -> SendRequest:
        topic, _, wait_stored = (self.lane, None, True) if isinstance(self.lane, str) else self.lane
        self._give_keys(keys)
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

    def _give_keys(self, keys: UniqueKeys) -> None:
        items, given = self.items, self.items[2::_COLUMNS]
        missing = given.count(None)
        if missing == len(given):
            items[2::_COLUMNS] = made = keys.many(missing)
            items[1::_COLUMNS] = map(add, items[1::_COLUMNS], _key_texts(made))
        elif missing:
            places = [place for place, key in enumerate(given) if key is None]
            made = keys.many(missing)
            for place, key, text in zip(places, made, _key_texts(made), strict=True):
                items[_COLUMNS * place + 2] = key
                items[_COLUMNS * place + 1] += text

    # --- the end ----------------------------------------------------------------------------------------------------

    @property
    def _waiters(self) -> list[Waiter]:
        return self.items[3::_COLUMNS]

    def settle(self, results: list[SendResult]) -> None:
        waiters = self._waiters
        if len(waiters) == len(results) and not any(map(asyncio.Future.done, waiters)):
            deque(map(asyncio.Future.set_result, waiters, results), maxlen=0)  # nobody gave up: no step for each
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
                waiters[index].exception()  # the callback is told, so nobody needs to await the future
            call_back(callback, None, error)

    def cancel(self) -> None:
        for waiter in self._waiters:
            waiter.cancel()


def _key_texts(keys: list[str]) -> list[bytes]:
    """The property of each: written as one text, and cut where a byte stands that no key has."""
    texts = "\x02\x03UNIQ_KEY\x01".join(keys)
    return f"UNIQ_KEY\x01{texts}\x02".encode().split(b"\x03")


# ---

_ROOM_BYTES = ITEM_BYTES + len("UNIQ_KEY\x01\x02") + UNIQUE_KEY_CHARS_MAX
"""What a message takes besides its body and its text, or somewhat more than that."""

Send = Callable[[SendRequest, MessageQueue | None], Awaitable[list[SendResult]]]


class BatchAccumulator:
    """One open gathering for each lane."""

    def __init__(
        self, settings: ProducerSettings, clock: Clock, keys: UniqueKeys, send: Send, *, unit_mode: bool = False
    ) -> None:
        self._linger_s = settings.batch_linger_ms / 1000
        self._bytes_max = settings.batch_bytes_max
        self._clock = clock
        self._keys = keys
        self._send = send
        self._unit_mode = unit_mode
        self.open: dict[Lane, PendingBatch] = {}
        """By lane. A topic that is found here has been looked at."""
        self._latest: PendingBatch | None = None
        self._lingering = TaskSet()
        self._leaving = TaskSet()
        self.watched = 0
        """How many messages that came by `send_nowait` wait for their results."""

    def add(self, envelope: PreparedMessage, queue: MessageQueue | None) -> Waiter:
        """Who awaits it gets the result of this message, after the batch that it left with."""
        message = envelope.message
        lane = lane_of(message.topic, queue, message.wait_stored)
        return self.put(lane, message.body, envelope.properties.encode(), envelope.unique_key, message.flag)

    def put(self, lane: Lane, body: bytes, text: bytes, unique_key: str | None = None, flag: int = 0) -> Waiter:
        """The same from pieces: straight-line and without an object for the message, because it is each message's.

        Without a key, `text` is what comes before it.
        """
        size = len(body) + len(text) + _ROOM_BYTES
        gathering = self.open.get(lane)
        if gathering is None or gathering.size + size > self._bytes_max:
            gathering = self._begin(lane, gathering)
        waiter: Waiter = asyncio.Future(loop=gathering.loop)
        items = gathering.items
        items += (body, text, unique_key, waiter)
        gathering.size += size
        self._latest = gathering
        if flag:
            gathering.flags[len(gathering) - 1] = flag
        if len(items) == FULL:
            self._leave(gathering)
        return waiter

    def watch(self, callback: Callback | None) -> None:
        """The message that was put last came by `send_nowait`: it counts, and `callback` is told."""
        gathering = self._latest
        assert gathering is not None
        gathering.watched += 1
        self.watched += 1
        if callback is not None:
            gathering.callbacks.append((len(gathering) - 1, callback))

    def _begin(self, lane: Lane, full: PendingBatch | None) -> PendingBatch:
        if full is not None:
            self._leave(full)
        gathering = self.open[lane] = PendingBatch(lane)
        self._lingering.spawn(self._linger(gathering))
        return gathering

    async def close(self) -> None:
        """Everything gathered leaves now; returns when all of it has its result."""
        for gathering in list(self.open.values()):
            self._leave(gathering)
        self._lingering.cancel()
        await self._lingering.wait()
        await self._leaving.wait()

    async def _linger(self, gathering: PendingBatch) -> None:
        await self._clock.sleep(self._linger_s)
        self._leave(gathering)

    def _leave(self, gathering: PendingBatch) -> None:
        if self.open.get(gathering.lane) is gathering:
            del self.open[gathering.lane]
            self._leaving.spawn(self._deliver(gathering))

    async def _deliver(self, gathering: PendingBatch) -> None:
        try:
            gathering.settle(await self._send(gathering.parcel(self._keys, unit_mode=self._unit_mode), gathering.queue))
        except Exception as error:  # whatever it is belongs to those who wait
            gathering.fail(error)
        except asyncio.CancelledError:
            gathering.cancel()
            raise
        finally:
            self.watched -= gathering.watched
