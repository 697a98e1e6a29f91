"""How far behind a group is, queue by queue.

Brokers count from 0 for a group that has no offset in a queue, and a lag of all messages of a queue looks just like the
lag of a group that never read it. Wherever a broker says 0, its table of offsets tells whether that is an offset; where
it is none, `offset` and `lag` are None here: unknown is never a number. Only where no message ever was nobody can be
behind, with or without an offset.
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
    """The client id of the member that has the queue, where that was asked for and is known."""

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
        """The lag over all queues; None when that of one of them is unknown, or a broker did not answer."""
        return _total(self.queues) if self.is_complete else None

    @property
    def known_total(self) -> int:
        """The lag of those queues where it is known: at least so far behind."""
        return sum(one.lag or 0 for one in self.queues)

    @property
    def by_topic(self) -> dict[str, int | None]:
        topics = dict.fromkeys(one.queue.topic for one in self.queues)
        return {topic: _total(one for one in self.queues if one.queue.topic == topic) for topic in topics}


def _total(queues: Iterable[QueueLag]) -> int | None:
    lags = [one.lag for one in queues]
    return None if None in lags else sum(lag for lag in lags if lag is not None)


class LagReader:
    def __init__(self, desk: AdminRequests) -> None:
        self._desk = desk

    async def lag(self, group: str, topic: str | None, *, owners: bool) -> GroupLag:
        members = await members_of(self._desk, group)
        brokers = await (self._desk.brokers() if topic is None else self._desk.of_topic(topic))
        told = await self._desk.gather(brokers, lambda one: self._at(one, group, topic, members))
        told = told.some(f"the lag of {group}")
        owner_of = await self._owners(group, members) if owners else {}
        queues = [_with_owner(one, owner_of) for stats in told.responses.values() for one in stats.queues]
        return GroupLag(
            group=group,
            queues=tuple(sorted(queues, key=lambda one: one.queue)),
            consume_tps=sum(stats.tps for stats in told.responses.values()),
            failures=told.failures,
        )

    async def _at(self, broker: Broker, group: str, topic: str | None, members: GroupMembers) -> "_Stats":
        stats = [await self._stats(broker, group, topic)]
        if topic is None:  # a group that has just come subscribes to topics in which it has no offset yet
            seen = {queue.topic for queue in stats[0].offset_table}
            fresh = [one.topic for one in members.subscriptions if one.topic not in seen]
            stats += await self._desk.together(self._stats(broker, group, one) for one in fresh)
        pairs = {queue: pair for one in stats for queue, pair in one.offset_table.items()}
        return _Stats(await self._queues(broker, group, pairs), sum(one.consume_tps for one in stats))

    async def _stats(self, broker: Broker, group: str, topic: str | None) -> ConsumeStats:
        asked = self._desk.ask(broker.address, GetConsumeStats(group, topic))
        response = await absent_is_none(asked, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        return ConsumeStats() if response is None else response.body

    async def _queues(self, broker: Broker, group: str, pairs: dict[MessageQueue, OffsetPair]) -> list[QueueLag]:
        stored: dict[str, dict[int, int]] = {}
        if any(pair.consumer_offset <= 0 for pair in pairs.values()):
            stored = await stored_offsets_at(self._desk, broker, group)
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
        infos = await running_infos(self._desk, group, members)
        return {queue: client_id for client_id, info in infos.responses.items() for queue in info.mq_table}


class _Stats(msgspec.Struct, frozen=True):
    queues: list[QueueLag]
    tps: float


def _stored_at(stored: dict[str, dict[int, int]], queue: MessageQueue) -> int | None:
    return stored.get(queue.topic, {}).get(queue.queue_id)


def _with_owner(one: QueueLag, owners: dict[MessageQueue, str]) -> QueueLag:
    return msgspec.structs.replace(one, owner=owners.get(one.queue))
