"""Gathering (`batch_linger_ms`) turns many small sends into few requests.

Each caller still waits for, and gets, the result of its own message.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ariane.client.callbacks import Callback
from ariane.client.envelope import ITEM_BYTES, Envelope
from ariane.client.gathering import FULL, Gathering, Lane, Waiter, lane_of
from ariane.client.parcel import Parcel
from ariane.client.producer_settings import ProducerSettings
from ariane.client.send_result import SendResult
from ariane.clock import Clock
from ariane.lifecycle import TaskSet
from ariane.model.route import MessageQueue
from ariane.wire.message_id import UNIQUE_KEY_CHARS_MAX, UniqueKeys

_ROOM_BYTES = ITEM_BYTES + len("UNIQ_KEY\x01\x02") + UNIQUE_KEY_CHARS_MAX
"""What a message takes besides its body and its text, or somewhat more than that."""

Send = Callable[[Parcel, MessageQueue | None], Awaitable[list[SendResult]]]


class Gatherer:
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
        self.open: dict[Lane, Gathering] = {}
        """By lane. A topic that is found here has been looked at."""
        self._latest: Gathering | None = None
        self._lingering = TaskSet()
        self._leaving = TaskSet()
        self.watched = 0
        """How many messages that came by `send_nowait` wait for their results."""

    def add(self, envelope: Envelope, queue: MessageQueue | None) -> Waiter:
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

    def _begin(self, lane: Lane, full: Gathering | None) -> Gathering:
        if full is not None:
            self._leave(full)
        gathering = self.open[lane] = Gathering(lane)
        self._lingering.spawn(self._linger(gathering))
        return gathering

    async def close(self) -> None:
        """Everything gathered leaves now; returns when all of it has its result."""
        for gathering in list(self.open.values()):
            self._leave(gathering)
        self._lingering.cancel()
        await self._lingering.wait()
        await self._leaving.wait()

    async def _linger(self, gathering: Gathering) -> None:
        await self._clock.sleep(self._linger_s)
        self._leave(gathering)

    def _leave(self, gathering: Gathering) -> None:
        if self.open.get(gathering.lane) is gathering:
            del self.open[gathering.lane]
            self._leaving.spawn(self._deliver(gathering))

    async def _deliver(self, gathering: Gathering) -> None:
        try:
            gathering.settle(await self._send(gathering.parcel(self._keys, unit_mode=self._unit_mode), gathering.queue))
        except Exception as error:  # whatever it is belongs to those who wait
            gathering.fail(error)
        except asyncio.CancelledError:
            gathering.cancel()
            raise
        finally:
            self.watched -= gathering.watched
