"""Queues from within: what lies at an offset or a time, and the entries of their index."""

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from datetime import datetime

import msgspec

from ariane.client.admin.desk import Desk
from ariane.client.admin.topic_stats import topic_stats
from ariane.client.pull import PullAsk, Puller
from ariane.client.queue_ends import readable_queues, to_timestamp_ms
from ariane.client.received import Received
from ariane.client.subscriptions import ALL, subscription_of
from ariane.errors import ClientError
from ariane.model.group import Subscription
from ariane.model.route import MessageQueue
from ariane.wire.requests.messages import ConsumeQueueEntry, QueryConsumeQueue
from ariane.wire.requests.offsets import GetEarliestStoreTime, SearchOffset

GROUP = "TOOLS_CONSUMER"
"""What Apache's own tools pull as: every broker has it from the start."""

_PULL_BATCH = 32


class QueuePage(msgspec.Struct, frozen=True, kw_only=True):
    """Some entries of a queue's index."""

    queue: MessageQueue
    index: int
    """The queue offset of the first entry."""
    entries: tuple[ConsumeQueueEntry, ...]
    min_offset: int
    max_offset: int
    subscription: Subscription | None
    """Of the group that was asked for: what `eval` of each entry was worked out with."""
    note: str | None


class QueueAdmin:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def at_time(self, topic: str, moment: datetime | int) -> dict[MessageQueue, int]:
        """Of each queue the offset of the first message not stored before `moment` (before 5.0: of the nearest)."""
        queues = (await topic_stats(self._desk, topic)).by_queue()
        brokers = {broker.name: broker for broker in await self._desk.of_topic(topic)}
        answers = await self._desk.together(
            self._desk.ask(
                brokers[queue.broker_name].address, SearchOffset(topic, queue.queue_id, to_timestamp_ms(moment))
            )
            for queue in queues
        )
        return {queue: answer.offset for queue, answer in zip(queues, answers, strict=True)}

    async def earliest_store_time_ms(self, queue: MessageQueue) -> int | None:
        """When the oldest message that is still there was stored; None when the queue is empty."""
        broker = await self._desk.of_queue(queue)
        answer = await self._desk.ask(broker.address, GetEarliestStoreTime(queue.topic, queue.queue_id))
        return answer.timestamp if answer.timestamp >= 0 else None

    async def entries(self, queue: MessageQueue, index: int, count: int = 10, *, group: str | None = None) -> QueuePage:
        """The index as it is; with `group`, also whether the group's filter lets each entry pass."""
        broker = await self._desk.of_queue(queue)
        ask = QueryConsumeQueue(queue.topic, queue.queue_id, index, count, group)
        page = (await self._desk.ask(broker.address, ask)).body
        if not page.queue_data:  # Apache's answer where ours refuses
            raise ClientError(
                f"{queue} has no entry {index}: it holds {page.min_queue_index} to {page.max_queue_index - 1}"
            )
        return QueuePage(
            queue=queue,
            index=index,
            entries=tuple(page.queue_data),
            min_offset=page.min_queue_index,
            max_offset=page.max_queue_index,
            subscription=page.subscription_data,
            note=page.filter_data,
        )

    # --- messages ---------------------------------------------------------------------------------------------------

    async def message_at(self, queue: MessageQueue, offset: int) -> Received | None:
        """The message with exactly this queue offset; None when it is gone or not there yet."""
        ask = PullAsk(queue=queue, offset=offset, subscription=subscription_of(queue.topic), count=1)
        result = await Puller(self._desk.instance, GROUP).pull(ask)
        return next((one for one in result.messages if one.queue_offset == offset), None)

    async def scan(
        self,
        topic: str,
        *,
        begin: datetime | int | None = None,
        end: datetime | int | None = None,
        expression: str = ALL,
        sql: str | None = None,
        queues: Collection[MessageQueue] | None = None,
    ) -> AsyncGenerator[Received, None]:
        """Every message that is stored now, queue after queue, without moving any group's offset.

        `begin` and `end` are times; the end is not part of it.
        """
        wanted = subscription_of(topic, expression, sql=sql)
        limits = (await topic_stats(self._desk, topic)).by_queue()
        starts = {queue: limit.min_offset for queue, limit in limits.items()}
        if begin is not None:
            starts = await self.at_time(topic, begin)
        for queue in await self._readable(topic, queues):
            reading = self._read(queue, starts.get(queue, 0), limits[queue].max_offset, wanted)
            async with aclosing(reading):
                async for message in reading:
                    if end is not None and message.store_timestamp_ms >= to_timestamp_ms(end):
                        break
                    if begin is None or message.store_timestamp_ms >= to_timestamp_ms(begin):
                        yield message

    async def _readable(self, topic: str, queues: Collection[MessageQueue] | None) -> list[MessageQueue]:
        readable = readable_queues(topic, await self._desk.route(topic))
        unknown = [queue for queue in queues or () if queue not in readable]
        if unknown:
            raise ClientError(f"{unknown[0]} is no queue that can be read: see the topic's route")
        return readable if queues is None else sorted(queues)

    async def _read(
        self, queue: MessageQueue, offset: int, end: int, wanted: Subscription
    ) -> AsyncGenerator[Received, None]:
        puller = Puller(self._desk.instance, GROUP)
        while offset < end:
            ask = PullAsk(queue=queue, offset=offset, subscription=wanted, count=_PULL_BATCH)
            result = await puller.pull(ask)
            for message in result.messages:
                if message.queue_offset < end:
                    yield message
            if result.next_offset <= offset:
                return  # the queue was cut back meanwhile
            offset = result.next_offset
