"""Offsets of groups: asked, set, moved, copied."""

from collections.abc import Mapping

import msgspec

from ariane.client.admin.desk import Desk
from ariane.client.admin.resets import ResetPlan, Resets, To
from ariane.client.admin.servers import Broker, Failure
from ariane.client.admin.stored_offsets import stored_offsets_at
from ariane.errors import ClientError
from ariane.model.ids import QueueOffset
from ariane.model.route import MessageQueue
from ariane.wire.requests.offsets import CloneGroupOffset, GetCorrectionOffsets, UpdateConsumerOffset

_FREE = 2**63 - 1  # Java's largest number, where nothing holds a group back


class GroupOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """A group's stored offsets in one topic; a queue without one is not there."""

    group: str
    topic: str
    offsets: Mapping[MessageQueue, int]
    failures: tuple[Failure, ...] = ()

    @property
    def is_complete(self) -> bool:
        return not self.failures


class OffsetAdmin:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._resets = Resets(desk)

    async def get(self, group: str, topic: str) -> GroupOffsets:
        """As the brokers store them. Members that run are ahead of this by up to 5 s; see `clients.positions`."""
        brokers = await self._desk.of_topic(topic)
        told = await self._desk.gather(brokers, lambda one: stored_offsets_at(self._desk, one, group))
        offsets = {
            MessageQueue(topic=topic, broker_name=broker.name, queue_id=queue_id): offset
            for broker, table in told.some(f"offsets of {group}").answers.items()
            for queue_id, offset in table.get(topic, {}).items()
        }
        return GroupOffsets(group=group, topic=topic, offsets=dict(sorted(offsets.items())), failures=told.failures)

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Stores one offset, unchecked. A member that has the queue overwrites it soon: `reset` moves members, too."""
        if offset < 0:
            raise ClientError(f"offset {offset}: an offset is 0 or more")
        broker = await self._desk.of_queue(queue)
        await self._desk.ask(
            broker.address, UpdateConsumerOffset(group, queue.topic, queue.queue_id, QueueOffset(offset))
        )

    # --- moving -----------------------------------------------------------------------------------------------------

    async def preview(self, group: str, topic: str, to: To) -> ResetPlan:
        """What `reset` would do, queue by queue. Changes nothing."""
        return await self._resets.plan(group, topic, to)

    async def reset(self, group: str, topic: str, to: To, *, force: bool = True) -> ResetPlan:
        """Moves the group, whether its members run or not: to "earliest", "latest", a time, or an offset by queue.

        Without `force` no queue moves forward. Returns what was done; nothing is done when a broker does not answer.
        """
        return await self._resets.reset(group, topic, to, force=force)

    async def skip(self, group: str, topic: str) -> ResetPlan:
        """Gives up everything that the group has not consumed yet."""
        return await self._resets.reset(group, topic, "latest", force=True)

    async def clone(self, source: str, target: str, topic: str | None = None, *, offline: bool = False) -> list[Broker]:
        """`target` goes on where `source` is. Stop the members of `target` first: they would overwrite it.

        `offline` also copies topics that `source`, being online, no longer subscribes to.
        """
        brokers = await (self._desk.brokers() if topic is None else self._desk.of_topic(topic))
        ask = CloneGroupOffset(src_group=source, dest_group=target, topic=topic, offline=offline)
        return (await self._desk.each(brokers, ask)).all(f"copying offsets of {source}")

    async def correction(self, topic: str, compare_group: str) -> dict[MessageQueue, int | None]:
        """Where the slowest of the topic's groups is, of each queue; None where all are ahead of `compare_group`."""
        # The request can name groups to leave out. Apache's broker of 4.x then deletes their offsets, so we never do.
        ask = GetCorrectionOffsets(compare_group=compare_group, topic=topic)
        answers = await self._desk.each(await self._desk.of_topic(topic), ask)
        answers.all(f"offsets of the groups of {topic}")
        return {
            MessageQueue(topic=topic, broker_name=broker.name, queue_id=queue_id): None if offset == _FREE else offset
            for broker, answer in answers.answers.items()
            for queue_id, offset in sorted(answer.body.correction_offsets.items())
        }
