"""What tests ask of a broker in their own process. Everything here runs on the broker's event loop."""

import asyncio
from collections.abc import Callable
from typing import Unpack

from ariane.broker.app import Broker
from ariane.client.instance import Instance
from ariane.client.producer import Producer
from ariane.client.received import Received, receive
from ariane.client.send_result import SendResult
from ariane.client.settings import ClientSettings
from ariane.lifecycle import Backoff
from ariane.model.message import MessageFields
from ariane.model.route import MessageQueue
from ariane.model.topic import TopicConfig
from ariane.wire.record_read import decode

_POLL_S = 0.01  # for what a broker tells nobody: offsets, and what a nameserver has heard
_BATCH = 32
_BODIES_SHOWN_MAX = 5


class BrokerDesk:
    def __init__(self, namesrv: str, broker: Broker) -> None:
        self.namesrv = namesrv
        self._broker = broker
        self._parts = broker.parts
        self._arrived = asyncio.Event()
        self._parts.store.store.parts.dispatcher.on_arrival(lambda *_: self._arrived.set())

    # --- making -----------------------------------------------------------------------------------------------------

    async def create_topic(self, topic: str, queues: int = 4) -> None:
        self._parts.topics.put(TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues))
        await self._until_routed(topic)

    async def _until_routed(self, topic: str) -> None:
        pauses = Backoff(first_s=0.001, longest_s=0.05)
        async with Instance.open(ClientSettings(nameservers=self.namesrv)) as instance:
            while await instance.routes.find(topic, fresh=True) is None:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(pauses.next_s())

    async def send(self, topic: str, body: bytes, **fields: Unpack[MessageFields]) -> SendResult:
        async with Producer(self.namesrv, group="ariane-tests") as producer:
            return await producer.send(topic, body, **fields)

    # --- looking ----------------------------------------------------------------------------------------------------

    async def messages(self, topic: str) -> list[Received]:
        """All that are stored, the oldest first."""
        return self._messages(topic)

    def _messages(self, topic: str) -> list[Received]:
        config = self._parts.topics.get(topic)
        found = [
            one for queue_id in range(config.read_queue_nums if config else 0) for one in self._in(topic, queue_id)
        ]
        return sorted(found, key=lambda one: (one.store_timestamp_ms, one.physical_offset))

    def _in(self, topic: str, queue_id: int) -> list[Received]:
        queue = MessageQueue(topic=topic, broker_name=self._broker.settings.name, queue_id=queue_id)
        found: list[Received] = []
        offset = 0
        while True:
            page = self._parts.store.store.reader.read(topic, queue_id, offset, _BATCH)
            found += [receive(decode(bytes(piece)), queue, page.max_offset) for piece in page.slices]
            if page.next_offset <= offset:
                return found
            offset = page.next_offset

    async def lag(self, group: str, topic: str | None = None) -> int | None:
        """Messages that the group has not consumed; None while it has no offset in a queue that has messages."""
        return self._lag(group, topic)

    def _lag(self, group: str, topic: str | None) -> int | None:
        topics = self._parts.offsets.topics_of(group) if topic is None else {topic}
        lags = [lag for one in topics for lag in self._lags(group, one)]
        return None if not topics or None in lags else sum(lag for lag in lags if lag is not None)

    def _lags(self, group: str, topic: str) -> list[int | None]:
        config = self._parts.topics.get(topic)
        queues = self._parts.store.store.parts.queues
        found = [(number, queues.get(topic, number)) for number in range(config.read_queue_nums if config else 0)]
        ends = {number: queue.max_offset for number, queue in found if queue is not None and queue.max_offset}
        offsets = {number: self._parts.offsets.get(group, topic, number) for number in ends}
        return [None if offsets[number] < 0 else end - offsets[number] for number, end in ends.items()]

    # --- waiting ----------------------------------------------------------------------------------------------------

    async def wait_for_messages(self, topic: str, count: int = 1, timeout_s: float = 10.0) -> list[Received]:
        """The messages of `topic`, as soon as there are `count`."""
        try:
            async with asyncio.timeout(timeout_s):
                while len(found := self._messages(topic)) < count:
                    self._arrived.clear()
                    await self._arrived.wait()
                return found
        except TimeoutError:
            raise AssertionError(self._missing(topic, count, timeout_s)) from None

    def _missing(self, topic: str, count: int, timeout_s: float) -> str:
        found = [one.body for one in self._messages(topic)]
        shown = ", ".join(map(repr, found[:_BODIES_SHOWN_MAX])) + (", ..." if len(found) > _BODIES_SHOWN_MAX else "")
        known = "" if self._parts.topics.get(topic) else f"; there is no topic {topic}"
        return f"{len(found)} of {count} messages of {topic} after {timeout_s:g} s: [{shown}]{known}"

    async def wait_for_lag(
        self, group: str, lag: int = 0, *, topic: str | None = None, timeout_s: float = 10.0
    ) -> None:
        """Until the group is at most `lag` messages behind. Consumers commit every few seconds: 5 by default."""
        await self._until(
            lambda: (now := self._lag(group, topic)) is not None and now <= lag,
            timeout_s,
            lambda: f"group {group} has {self._lag_text(group, topic)} after {timeout_s:g} s, not {lag}",
        )

    def _lag_text(self, group: str, topic: str | None) -> str:
        lag = self._lag(group, topic)
        return "an unknown lag, for want of an offset," if lag is None else f"a lag of {lag}"

    async def _until(self, condition: Callable[[], bool], timeout_s: float, told: Callable[[], str]) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise AssertionError(told()) from None
