"""Moving a group to another place: first a plan that can be shown, then the move.

A group whose members run is moved by its brokers, which tell the members. A group that is offline is moved by storing
its offsets, which every release allows. To move running members to an offset of one's choice takes a broker that knows
the fields of 5.x; one that does not ignores them, so the request is worded in such a way that it then moves nothing,
and the answer shows it.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec

from ariane.client.admin.desk import Desk
from ariane.client.admin.members import GroupMembers, members_of
from ariane.client.admin.queues import QueueAdmin
from ariane.client.admin.servers import Broker
from ariane.client.admin.stored_offsets import stored_offsets_at
from ariane.client.admin.topic_stats import QueueStats, topic_stats
from ariane.client.queue_ends import to_timestamp_ms
from ariane.errors import ClientError
from ariane.model.ids import QueueOffset
from ariane.model.route import MessageQueue
from ariane.wire.requests.groups import GetGroupTable
from ariane.wire.requests.offsets import UpdateConsumerOffset
from ariane.wire.requests.resets import ResetOffsets

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
    def __init__(self, desk: Desk) -> None:
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
            ask = ResetOffsets(topic=topic, group=group, timestamp=_moment(to), is_force=force)
            (await self._desk.each(by_name.values(), ask)).all(f"moving {group}")
        return plan

    # --- planning ---------------------------------------------------------------------------------------------------

    async def _current(
        self, brokers: list[Broker], group: str, members: GroupMembers, topic: str
    ) -> dict[MessageQueue, int]:
        told = await self._desk.gather(brokers, lambda one: stored_offsets_at(self._desk, one, group))
        told.all(f"offsets of {group}")
        if not members.is_online and not any(told.answers.values()):
            await self._check_known(group)
        return {
            MessageQueue(topic=topic, broker_name=broker.name, queue_id=queue_id): offset
            for broker, table in told.answers.items()
            for queue_id, offset in table.get(topic, {}).items()
        }

    async def _check_known(self, group: str) -> None:
        """A misspelt group would be moved without a word, and the right one left where it is."""
        tables = await self._desk.each(await self._desk.brokers(), GetGroupTable())
        if not any(group in answer.body.subscription_group_table for answer in tables.answers.values()):
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
        ask = UpdateConsumerOffset(plan.group, plan.topic, move.queue.queue_id, QueueOffset(move.target))
        await self._desk.ask(brokers[move.queue.broker_name].address, ask)

    async def _tell_offset(self, brokers: dict[str, Broker], plan: ResetPlan, move: Move) -> None:
        broker = brokers[move.queue.broker_name]
        ask = ResetOffsets(
            topic=plan.topic,
            group=plan.group,
            # To a broker that knows only times this says: to the end, but not forward. So nothing moves.
            timestamp=_THE_END,
            is_force=False,
            queue_id=move.queue.queue_id,
            offset=QueueOffset(move.target),
        )
        done = (await self._desk.ask(broker.address, ask)).body.offset_table
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
