"""Consumer lag of a group, by queue.

Brokers report offset 0 for a group that has no offset in a queue, so a lag of all messages looks just like the lag of a
group that never read the queue. Where a broker reports 0, its table of stored offsets shows whether that is an offset.
Where it is not, `offset` and `lag` are None: an unknown lag is never a number. Only for a queue that never had a
message the lag is 0, with or without an offset.
"""

from collections.abc import Iterable

import msgspec

from ariane.client.admin.members import GroupMembers, members_of, running_infos, stored_offsets_at
from ariane.client.admin.requests import AdminRequests, Broker, Failure, absent_is_none
from ariane.model.route import MessageQueue
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.groups import ConsumeStats, GetConsumeStats, OffsetPair


class QueueLag(msgspec.Struct, frozen=True, kw_only=True):
    queue: MessageQueue
    end: int
    """The offset that the next message will get."""
    offset: int | None
    """The first message that the group has not consumed; None when it has no offset here."""
    last_consumed_ms: int | None
    """When the last message that it consumed was stored."""
    owner: str | None = None
    """The client id of the member that has the queue, if that was requested and is known."""

    @property
    def lag(self) -> int | None:
        if self.offset is None:
            return None if self.end else 0
        return self.end - self.offset


class GroupLag(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    queues: tuple[QueueLag, ...]
    consume_tps: float
    """Messages a second, as the brokers count them."""
    failures: tuple[Failure, ...] = ()
    """Brokers whose queues are missing here."""

    @property
    def is_complete(self) -> bool:
        return not self.failures

    @property
    def total(self) -> int | None:
        """The lag over all queues; None if that of a queue is unknown, or a broker did not respond."""
        return _total(self.queues) if self.is_complete else None

    @property
    def known_total(self) -> int:
        """The lag of the queues where it is known: a lower bound of the total."""
        return sum(queue.lag or 0 for queue in self.queues)

    @property
    def by_topic(self) -> dict[str, int | None]:
        topics = dict.fromkeys(lag.queue.topic for lag in self.queues)
        return {topic: _total(lag for lag in self.queues if lag.queue.topic == topic) for topic in topics}


def _total(queues: Iterable[QueueLag]) -> int | None:
    lags = [queue.lag for queue in queues]
    return None if None in lags else sum(lag for lag in lags if lag is not None)


class LagReader:
    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def lag(self, group: str, topic: str | None, *, owners: bool) -> GroupLag:
        members = await members_of(self._requests, group)
        brokers = await (self._requests.brokers() if topic is None else self._requests.readers_of_topic(topic))
        responses = await self._requests.fan_out(brokers, lambda broker: self._at(broker, group, topic, members))
        responses = responses.some(f"the lag of {group}")
        owner_of = await self._owners(group, members) if owners else {}
        queues = [_with_owner(lag, owner_of) for stats in responses.responses.values() for lag in stats.queues]
        return GroupLag(
            group=group,
            queues=tuple(sorted(queues, key=lambda lag: lag.queue)),
            consume_tps=sum(stats.tps for stats in responses.responses.values()),
            failures=responses.failures,
        )

    async def _at(self, broker: Broker, group: str, topic: str | None, members: GroupMembers) -> "_Stats":
        stats = [await self._stats(broker, group, topic)]
        if topic is None:  # a new group subscribes to topics in which it has no offset yet
            seen = {queue.topic for queue in stats[0].offset_table}
            new = [subscription.topic for subscription in members.subscriptions if subscription.topic not in seen]
            stats += await self._requests.run_all(self._stats(broker, group, name) for name in new)
        pairs = {queue: pair for table in stats for queue, pair in table.offset_table.items()}
        return _Stats(await self._queues(broker, group, pairs), sum(table.consume_tps for table in stats))

    async def _stats(self, broker: Broker, group: str, topic: str | None) -> ConsumeStats:
        call = self._requests.call(broker.address, GetConsumeStats(group, topic))
        response = await absent_is_none(call, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        return ConsumeStats() if response is None else response.body

    async def _queues(self, broker: Broker, group: str, pairs: dict[MessageQueue, OffsetPair]) -> list[QueueLag]:
        stored: dict[str, dict[int, int]] = {}
        if any(pair.consumer_offset <= 0 for pair in pairs.values()):
            stored = await stored_offsets_at(self._requests, broker, group)
        return [
            QueueLag(
                queue=queue,
                end=pair.broker_offset,
                offset=pair.consumer_offset if pair.consumer_offset > 0 else _stored_at(stored, queue),
                last_consumed_ms=pair.last_timestamp or None,
            )
            for queue, pair in pairs.items()
        ]

    async def _owners(self, group: str, members: GroupMembers) -> dict[MessageQueue, str]:
        infos = await running_infos(self._requests, group, members)
        return {queue: client_id for client_id, info in infos.responses.items() for queue in info.mq_table}


class _Stats(msgspec.Struct, frozen=True):
    queues: list[QueueLag]
    tps: float


def _stored_at(stored: dict[str, dict[int, int]], queue: MessageQueue) -> int | None:
    return stored.get(queue.topic, {}).get(queue.queue_id)


def _with_owner(lag: QueueLag, owners: dict[MessageQueue, str]) -> QueueLag:
    return msgspec.structs.replace(lag, owner=owners.get(lag.queue))
