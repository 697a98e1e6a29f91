"""How far a consumer has come in each queue: kept here, saved every 5 s and at the end.

A group that shares its queues keeps offsets at the brokers, so that whoever takes a queue over goes on where the last
owner was. A broadcast consumer is alone with its offsets and keeps them in a file.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Protocol

from ariane.client.instance import Instance
from ariane.client.queue_ends import broker_of
from ariane.errors import ArianeError, RequestFailed, TransportError
from ariane.lifecycle import TaskSet
from ariane.model.ids import QueueOffset
from ariane.model.route import MessageQueue
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.offsets import GetConsumerOffset, UpdateConsumerOffset

log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0  # as in Apache's clients


class OffsetStore(Protocol):
    async def load(self, queue: MessageQueue) -> int | None:
        """The stored offset, None when there is none. A failure to find out is an error: it must not mean "none"."""

    async def save(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        """The queues whose offset is now stored."""


class GroupOffsets:
    """At the brokers, each of which is told one offset at a time.

    Apache's brokers work on the requests of a connection side by side. Of two offsets of one queue the older may then
    be stored last, and of the first two of a group one may be lost.
    """

    def __init__(self, instance: Instance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def load(self, queue: MessageQueue) -> int | None:
        address = await broker_of(self._instance, queue)
        ask = GetConsumerOffset(self._group, queue.topic, queue.queue_id)
        try:
            return (await self._instance.call(address, ask, _TIMEOUT_S)).offset
        except RequestFailed as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def save(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        saved: set[MessageQueue] = set()
        brokers = TaskSet()
        for broker in sorted({queue.broker_name for queue in offsets}):
            theirs = {queue: offset for queue, offset in offsets.items() if queue.broker_name == broker}
            brokers.spawn(self._save_at(broker, theirs, saved))
        try:
            await brokers.wait()
        finally:
            brokers.cancel()
        return saved

    async def _save_at(self, broker: str, offsets: dict[MessageQueue, int], saved: set[MessageQueue]) -> None:
        async with self._turns[broker]:
            for queue, offset in offsets.items():
                try:
                    await self._save_one(queue, offset)
                except ArianeError as error:
                    log.warning("offset not saved", extra={"queue": queue, "offset": offset, "reason": str(error)})
                    if isinstance(error, TransportError):
                        return  # the others would wait for it as long and as vainly
                else:
                    saved.add(queue)

    async def _save_one(self, queue: MessageQueue, offset: int) -> None:
        """Apache's client sends this one-way and never learns that it was lost."""
        address = await broker_of(self._instance, queue)
        ask = UpdateConsumerOffset(self._group, queue.topic, queue.queue_id, QueueOffset(offset))
        await self._instance.call(address, ask, _TIMEOUT_S)


class OffsetTable:
    """The offsets in memory, in front of one store."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._offsets: dict[MessageQueue, int] = {}
        self._unsaved: set[MessageQueue] = set()

    def get(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def of(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: offset for queue, offset in self._offsets.items() if queue.topic == topic}

    async def load(self, queue: MessageQueue) -> int | None:
        return await self._store.load(queue)

    def advance(self, queue: MessageQueue, offset: int) -> None:
        """Only ever forward: handlers that finish late report smaller numbers."""
        if offset > self._offsets.get(queue, -1):
            self.move(queue, offset)

    def move(self, queue: MessageQueue, offset: int) -> None:
        """In either direction, because somebody said so."""
        self._offsets[queue] = offset
        self._unsaved.add(queue)

    async def save(self, queues: Collection[MessageQueue] | None = None) -> None:
        """Saves what changed. What could not be saved stays due."""
        due = {queue: self._offsets[queue] for queue in self._unsaved if queues is None or queue in queues}
        if not due:
            return
        for queue in await self._store.save(due):
            if self._offsets.get(queue) == due[queue]:
                self._unsaved.discard(queue)

    def forget(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)
        self._unsaved.discard(queue)
