"""Offset bounds of queues: minimum, maximum, and the offset at a time, as requested from their broker."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from ariane.client.core.instance import Instance
from ariane.errors import ConnectFailed, ConnectionLost, NoRoute
from ariane.model.route import MASTER_ID, MessageQueue, TopicRoute
from ariane.model.topic import Permission
from ariane.wire.fields import Request, Response
from ariane.wire.requests.offsets import GetEarliestStoreTime, GetMaxOffset, GetMinOffset, SearchOffset

A = TypeVar("A", bound=Response)

TIMEOUT_S = 6.0  # as in Apache's clients


def readable_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """The queues that can be consumed, also those of a broker whose master is down: a slave may serve them."""
    return [
        MessageQueue(topic=topic, broker_name=data.broker_name, queue_id=queue_id)
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
        if data.perm & Permission.READ
        for queue_id in range(data.read_queue_nums)
    ]


def to_timestamp_ms(moment: datetime | int) -> int:
    """A datetime without a zone is local time, as everywhere in Python."""
    return round(moment.timestamp() * 1000) if isinstance(moment, datetime) else moment


async def broker_of(instance: Instance, queue: MessageQueue) -> str:
    """The address of the queue's master, or of a slave if there is no master that responds; NoRoute if there is
    neither."""
    return (await broker_and_id_of(instance, queue))[0]


async def broker_and_id_of(instance: Instance, queue: MessageQueue) -> tuple[str, int]:
    match = instance.routes.address_of(queue.broker_name, MASTER_ID)
    if match is None:
        await instance.routes.find(queue.topic, fresh=True)
        match = instance.routes.address_of(queue.broker_name, MASTER_ID)
    if match is None:
        raise NoRoute(
            f"no address is known for broker {queue.broker_name} of topic {queue.topic}: it is down, or no longer "
            "part of the topic; every attempt looks for it again"
        )
    return match


async def call_reader(
    instance: Instance, queue: MessageQueue, request: Request[A], timeout_s: float = TIMEOUT_S
) -> tuple[A, int]:
    """The response of the queue's master, or of a slave if the master turns out to be dead; and the id of the broker
    that responded."""
    address, broker_id = await broker_and_id_of(instance, queue)
    try:
        return await instance.call(address, request, timeout_s), broker_id
    except (ConnectFailed, ConnectionLost):
        other, broker_id = await broker_and_id_of(instance, queue)
        if other == address:
            raise
        return await instance.call(other, request, timeout_s), broker_id


async def owner_of(instance: Instance, queue: MessageQueue) -> str:
    """The same for locks and messages that are sent back: the master as long as it is in the route, even if it does not
    respond, because a slave knows nothing of its locks and takes no messages."""
    return instance.routes.master_of(queue.broker_name) or await broker_of(instance, queue)


@dataclass(frozen=True, slots=True)
class QueueBounds:
    instance: Instance

    async def min_offset(self, queue: MessageQueue) -> int:
        return (await call_reader(self.instance, queue, GetMinOffset(queue.topic, queue.queue_id)))[0].offset

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return (await call_reader(self.instance, queue, GetMaxOffset(queue.topic, queue.queue_id)))[0].offset

    async def search_offset(self, queue: MessageQueue, moment: datetime | int) -> int:
        """The first message not stored before `moment` (releases before 5.0: the nearest one)."""
        request = SearchOffset(queue.topic, queue.queue_id, to_timestamp_ms(moment))
        return (await call_reader(self.instance, queue, request))[0].offset

    async def earliest_store_time_ms(self, queue: MessageQueue) -> int | None:
        """When the oldest message that is still there was stored; None when the queue is empty."""
        response, _ = await call_reader(self.instance, queue, GetEarliestStoreTime(queue.topic, queue.queue_id))
        return response.timestamp if response.timestamp >= 0 else None
