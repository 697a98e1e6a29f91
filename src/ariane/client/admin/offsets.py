"""Offsets of groups: asked, set, moved, copied."""

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

# --- resets ---
#
# Moving a group to another place: first a plan that can be shown, then the move.
#
# A group whose members run is moved by its brokers, which tell the members. A group that is offline is moved by storing
# its offsets, which every release allows. To move running members to an offset of one's choice takes a broker that
# knows the fields of 5.x; one that does not ignores them, so the request is worded in such a way that it then moves
# nothing, and the answer shows it.

To = Literal["earliest", "latest"] | datetime | int | Mapping[MessageQueue, int]
"""The oldest message, behind the newest, a time (milliseconds since 1970), or an offset for each of some queues."""

_THE_END = -1  # instead of a time


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One queue of a plan."""

    queue: MessageQueue
    current: int | None
    """None: the group has no offset here."""
    target: int
    min_offset: int
    max_offset: int

    @property
    def skips(self) -> int | None:
        """Messages that will not be consumed; None when nobody knows where the group would have gone on."""
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
    """Whether members that consume the topic run, and will be told."""

    @property
    def skips(self) -> int | None:
        return _sum([move.skips for move in self.moves])

    @property
    def repeats(self) -> int | None:
        return _sum([move.repeats for move in self.moves])


def _sum(counts: list[int | None]) -> int | None:
    return None if None in counts else sum(count for count in counts if count is not None)


class Resets:
    def __init__(self, desk: AdminRequests) -> None:
        self._desk = desk
        self._queues = QueueAdmin(desk)

    async def plan(self, group: str, topic: str, to: To) -> ResetPlan:
        brokers = await self._desk.of_topic(topic)
        members = await members_of(self._desk, group)
        current = await self._current(brokers, group, members, topic)
        ends = (await topic_stats(self._desk, topic)).by_queue()
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
        by_name = {broker.name: broker for broker in await self._desk.of_topic(topic)}
        if not plan.is_online:
            await self._desk.together(self._store(by_name, plan, move) for move in moves)
        elif isinstance(to, Mapping):
            await self._desk.together(self._tell_offset(by_name, plan, move) for move in moves)
        else:
            request = ResetOffsets(topic=topic, group=group, timestamp=_moment(to), is_force=force)
            (await self._desk.each(by_name.values(), request)).all(f"moving {group}")
        return plan

    # --- planning ---------------------------------------------------------------------------------------------------

    async def _current(
        self, brokers: list[Broker], group: str, members: GroupMembers, topic: str
    ) -> dict[MessageQueue, int]:
        told = await self._desk.gather(brokers, lambda one: stored_offsets_at(self._desk, one, group))
        told.all(f"offsets of {group}")
        if not members.is_online and not any(told.responses.values()):
            await self._check_known(group)
        return {
            MessageQueue(topic=topic, broker_name=broker.name, queue_id=queue_id): offset
            for broker, table in told.responses.items()
            for queue_id, offset in table.get(topic, {}).items()
        }

    async def _check_known(self, group: str) -> None:
        """A misspelt group would be moved without a word, and the right one left where it is."""
        tables = await self._desk.each(await self._desk.brokers(), GetGroupTable())
        if not any(group in response.body.subscription_group_table for response in tables.responses.values()):
            raise ClientError(
                f"group {group} has neither settings nor offsets nor members: check its name, or make it first, for "
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

    # --- moving -----------------------------------------------------------------------------------------------------

    async def _store(self, brokers: dict[str, Broker], plan: ResetPlan, move: Move) -> None:
        request = UpdateConsumerOffset(plan.group, plan.topic, move.queue.queue_id, QueueOffset(move.target))
        await self._desk.ask(brokers[move.queue.broker_name].address, request)

    async def _tell_offset(self, brokers: dict[str, Broker], plan: ResetPlan, move: Move) -> None:
        broker = brokers[move.queue.broker_name]
        request = ResetOffsets(
            topic=plan.topic,
            group=plan.group,
            # To a broker that knows only times this says: to the end, but not forward. So nothing moves.
            timestamp=_THE_END,
            is_force=False,
            queue_id=move.queue.queue_id,
            offset=QueueOffset(move.target),
        )
        done = (await self._desk.ask(broker.address, request)).body.offset_table
        if done.get(move.queue) != move.target:
            raise ClientError(
                f"broker {broker} cannot move running members to an offset: stop the members of {plan.group} and "
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


# ---

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
    def __init__(self, desk: AdminRequests) -> None:
        self._desk = desk
        self._resets = Resets(desk)

    async def get(self, group: str, topic: str) -> GroupOffsets:
        """As the brokers store them. Members that run are ahead of this by up to 5 s; see `clients.positions`."""
        brokers = await self._desk.of_topic(topic)
        told = await self._desk.gather(brokers, lambda one: stored_offsets_at(self._desk, one, group))
        offsets = {
            MessageQueue(topic=topic, broker_name=broker.name, queue_id=queue_id): offset
            for broker, table in told.some(f"offsets of {group}").responses.items()
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
        request = CloneGroupOffset(src_group=source, dest_group=target, topic=topic, offline=offline)
        return (await self._desk.each(brokers, request)).all(f"copying offsets of {source}")

    async def correction(self, topic: str, compare_group: str) -> dict[MessageQueue, int | None]:
        """Where the slowest of the topic's groups is, of each queue; None where all are ahead of `compare_group`."""
        # The request can name groups to leave out. Apache's broker of 4.x then deletes their offsets, so we never do.
        request = GetCorrectionOffsets(compare_group=compare_group, topic=topic)
        responses = await self._desk.each(await self._desk.of_topic(topic), request)
        responses.all(f"offsets of the groups of {topic}")
        return {
            MessageQueue(topic=topic, broker_name=broker.name, queue_id=queue_id): None if offset == _FREE else offset
            for broker, response in responses.responses.items()
            for queue_id, offset in sorted(response.body.correction_offsets.items())
        }
