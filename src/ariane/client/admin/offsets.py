"""Admin API for the offsets of groups: read, commit, reset, clone.

A reset first makes a plan that can be shown, then applies it. If members of the group run, the brokers reset the
offsets and notify the members. If the group is offline, its offsets are stored directly, which every release allows. To
reset running members to a chosen offset, a broker must know fields of 5.x; a broker that does not ignores them, so the
request is made such that it then resets nothing, and the response shows that.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec

from ariane.client.admin.members import GroupMembers, members_of, stored_offsets_at
from ariane.client.admin.messages import QueueAdmin
from ariane.client.admin.requests import AdminRequests, Broker, Failure
from ariane.client.admin.topics import QueueStats, topic_stats
from ariane.client.core.queue_bounds import to_timestamp_ms
from ariane.errors import ClientError
from ariane.model.ids import QueueOffset
from ariane.model.route import MessageQueue
from ariane.wire.requests.groups import GetGroupTable
from ariane.wire.requests.offsets import CloneGroupOffset, GetCorrectionOffsets, ResetOffsets, UpdateConsumerOffset

To = Literal["earliest", "latest"] | datetime | int | Mapping[MessageQueue, int]
"""The oldest message, after the newest, a time (milliseconds since 1970), or an offset for each of some queues."""

_THE_END = -1  # instead of a time


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """The reset of one queue."""

    queue: MessageQueue
    current: int | None
    """None: the group has no offset in this queue."""
    target: int
    min_offset: int
    max_offset: int

    @property
    def skips(self) -> int | None:
        """Messages that will not be consumed; None if the group has no current offset."""
        return None if self.current is None else max(0, self.target - max(self.current, self.min_offset))

    @property
    def repeats(self) -> int | None:
        """Messages that will be consumed again."""
        return None if self.current is None else max(0, min(self.current, self.max_offset) - self.target)


class ResetPlan(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    topic: str
    moves: tuple[Move, ...]
    is_online: bool
    """Whether members that consume the topic run; they will be notified."""

    @property
    def skips(self) -> int | None:
        return _sum([move.skips for move in self.moves])

    @property
    def repeats(self) -> int | None:
        return _sum([move.repeats for move in self.moves])


def _sum(counts: list[int | None]) -> int | None:
    return None if None in counts else sum(count for count in counts if count is not None)


class Resets:
    """Plans and applies offset resets."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests
        self._queues = QueueAdmin(requests)

    async def plan(self, group: str, topic: str, to: To) -> ResetPlan:
        brokers = await self._requests.readers_of_topic(topic)
        members = await members_of(self._requests, group)
        current = await self._current(brokers, group, members, topic)
        ends = (await topic_stats(self._requests, topic)).by_queue()
        targets = await self._targets(topic, to, ends)
        moves = [
            Move(
                queue=queue,
                current=current.get(queue),
                target=target,
                min_offset=ends[queue].min_offset,
                max_offset=ends[queue].max_offset,
            )
            for queue, target in sorted(targets.items())
        ]
        return ResetPlan(group=group, topic=topic, moves=tuple(moves), is_online=members.subscribes_to(topic))

    async def reset(self, group: str, topic: str, to: To, *, force: bool) -> ResetPlan:
        plan = await self.plan(group, topic, to)
        moves = tuple(move for move in plan.moves if force or move.current is None or move.target < move.current)
        plan = msgspec.structs.replace(plan, moves=moves)
        by_name = {broker.name: broker for broker in await self._requests.brokers_of_topic(topic)}
        masterless = sorted({move.queue.broker_name for move in moves} - by_name.keys())
        if masterless:
            raise ClientError(f"nothing was reset: broker {', '.join(masterless)} has no master now; start it first")
        if not plan.is_online:
            await self._requests.run_all(self._store(by_name, plan, move) for move in moves)
        elif isinstance(to, Mapping):
            await self._requests.run_all(self._reset_running(by_name, plan, move) for move in moves)
        else:
            request = ResetOffsets(topic=topic, group=group, timestamp=_moment(to), is_force=force)
            (await self._requests.each(by_name.values(), request)).all(f"resetting {group}")
        return plan

    # --- planning ---------------------------------------------------------------------------------------------------

    async def _current(
        self, brokers: list[Broker], group: str, members: GroupMembers, topic: str
    ) -> dict[MessageQueue, int]:
        tables = await self._requests.fan_out(brokers, lambda broker: stored_offsets_at(self._requests, broker, group))
        tables.all(f"offsets of {group}")
        if not members.is_online and not any(tables.responses.values()):
            await self._check_group_exists(group)
        return {
            MessageQueue(topic=topic, broker_name=broker.name, queue_id=queue_id): offset
            for broker, table in tables.responses.items()
            for queue_id, offset in table.get(topic, {}).items()
        }

    async def _check_group_exists(self, group: str) -> None:
        """Otherwise a misspelt group name would be reset without an error."""
        tables = await self._requests.each(await self._requests.readers(), GetGroupTable())
        if not any(group in response.body.subscription_group_table for response in tables.responses.values()):
            raise ClientError(
                f"group {group} has neither settings nor offsets nor members: check its name, or create it first, for "
                f"example with `ariane group create {group}`"
            )

    async def _targets(self, topic: str, to: To, ends: dict[MessageQueue, QueueStats]) -> dict[MessageQueue, int]:
        match to:
            case "earliest":
                return {queue: end.min_offset for queue, end in ends.items()}
            case "latest":
                return {queue: end.max_offset for queue, end in ends.items()}
            case datetime() | int():
                return await self._queues.at_time(topic, to)
            case Mapping():
                for queue, offset in to.items():
                    _check(queue, offset, ends.get(queue))
                return dict(to)
        raise ClientError(f"{to!r}: use 'earliest', 'latest', a time, or an offset for each queue")

    # --- applying ---------------------------------------------------------------------------------------------------

    async def _store(self, brokers: dict[str, Broker], plan: ResetPlan, move: Move) -> None:
        request = UpdateConsumerOffset(plan.group, plan.topic, move.queue.queue_id, QueueOffset(move.target), seek=True)
        await self._requests.call(brokers[move.queue.broker_name].address, request)

    async def _reset_running(self, brokers: dict[str, Broker], plan: ResetPlan, move: Move) -> None:
        broker = brokers[move.queue.broker_name]
        request = ResetOffsets(
            topic=plan.topic,
            group=plan.group,
            # For a broker that knows only times this means: to the end, but not forward. So it resets nothing.
            timestamp=_THE_END,
            is_force=False,
            queue_id=move.queue.queue_id,
            offset=QueueOffset(move.target),
        )
        done = (await self._requests.call(broker.address, request)).body.offset_table
        if done.get(move.queue) != move.target:
            raise ClientError(
                f"broker {broker} cannot reset running members to an offset: stop the members of {plan.group} and "
                "reset again, or reset to a time"
            )


def _check(queue: MessageQueue, offset: int, end: QueueStats | None) -> None:
    if end is None:
        raise ClientError(f"queue {queue.queue_id} of {queue.topic} at {queue.broker_name} does not exist")
    if not end.min_offset <= offset <= end.max_offset:
        raise ClientError(
            f"offset {offset} is not in queue {queue.queue_id} of {queue.topic} at {queue.broker_name}, which goes "
            f"from {end.min_offset} to {end.max_offset}"
        )


def _moment(to: Literal["earliest", "latest"] | datetime | int) -> int:
    match to:
        case "earliest":
            return 0
        case "latest":
            return _THE_END
        case _:
            return to_timestamp_ms(to)


_NO_LIMIT = 2**63 - 1  # Java's Long.MAX_VALUE: no group is behind


class GroupOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """A group's stored offsets in one topic, without queues that have none."""

    group: str
    topic: str
    offsets: Mapping[MessageQueue, int]
    failures: tuple[Failure, ...] = ()

    @property
    def is_complete(self) -> bool:
        return not self.failures


class OffsetAdmin:
    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests
        self._resets = Resets(requests)

    async def get(self, group: str, topic: str) -> GroupOffsets:
        """As the brokers store them. Running members are ahead of this by up to 5 s; see `clients.positions`."""
        brokers = await self._requests.readers_of_topic(topic)
        tables = await self._requests.fan_out(brokers, lambda broker: stored_offsets_at(self._requests, broker, group))
        offsets = {
            MessageQueue(topic=topic, broker_name=broker.name, queue_id=queue_id): offset
            for broker, table in tables.some(f"offsets of {group}").responses.items()
            for queue_id, offset in table.get(topic, {}).items()
        }
        return GroupOffsets(group=group, topic=topic, offsets=dict(sorted(offsets.items())), failures=tables.failures)

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Stores one offset, unchecked. A running member of the queue overwrites it soon: `reset` handles that."""
        if offset < 0:
            raise ClientError(f"offset {offset}: an offset is 0 or more")
        broker = await self._requests.broker_of_queue(queue)
        await self._requests.call(
            broker.address, UpdateConsumerOffset(group, queue.topic, queue.queue_id, QueueOffset(offset), seek=True)
        )

    # --- resets -----------------------------------------------------------------------------------------------------

    async def preview(self, group: str, topic: str, to: To) -> ResetPlan:
        """What `reset` would do, queue by queue. Changes nothing."""
        return await self._resets.plan(group, topic, to)

    async def reset(self, group: str, topic: str, to: To, *, force: bool = True) -> ResetPlan:
        """Resets the group, whether its members run or not: to "earliest", "latest", a time, or an offset by queue.

        Without `force` no offset moves forward. Returns what was done; does nothing if a broker does not respond.
        """
        return await self._resets.reset(group, topic, to, force=force)

    async def skip(self, group: str, topic: str) -> ResetPlan:
        """Skips all messages that the group has not consumed yet."""
        return await self._resets.reset(group, topic, "latest", force=True)

    async def clone(self, source: str, target: str, topic: str | None = None, *, offline: bool = False) -> list[Broker]:
        """Copies the offsets of `source` to `target`. Stop the members of `target` first: they would overwrite them.

        `offline` also copies topics that `source`, being online, no longer subscribes to.
        """
        brokers = await (self._requests.brokers() if topic is None else self._requests.brokers_of_topic(topic))
        request = CloneGroupOffset(src_group=source, dest_group=target, topic=topic, offline=offline)
        return (await self._requests.each(brokers, request)).all(f"copying offsets of {source}")

    async def correction(self, topic: str, compare_group: str) -> dict[MessageQueue, int | None]:
        """For each queue, the smallest offset of the topic's groups; None if all are ahead of `compare_group`."""
        # The request can exclude groups. Apache's broker of 4.x then deletes their offsets, so this is never used.
        request = GetCorrectionOffsets(compare_group=compare_group, topic=topic)
        responses = await self._requests.each(await self._requests.brokers_of_topic(topic), request)
        responses.all(f"offsets of the groups of {topic}")
        return {
            MessageQueue(topic=topic, broker_name=broker.name, queue_id=queue_id): None
            if offset == _NO_LIMIT
            else offset
            for broker, response in responses.responses.items()
            for queue_id, offset in sorted(response.body.correction_offsets.items())
        }
