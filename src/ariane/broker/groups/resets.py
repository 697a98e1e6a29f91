"""Resets the offsets of a group: to a time, to the end of the queues, or to an offset.

Connected members are notified: each drops its queues, waits for messages in progress, and continues at the new offset.
The broker's committed offsets are set too. That alone resets a group without connected members or whose members do not
subscribe to the topic, and it covers a member that dies between the notification and its next commit. (Apache's broker
leaves this to the tool, which writes each offset itself after CONSUMER_NOT_ONLINE; the result is the same.)
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from ariane.broker.groups.configs import Groups
from ariane.broker.groups.lag import queue_count
from ariane.broker.groups.members import Clients, ConsumerGroup, Member
from ariane.broker.groups.offsets import NO_OFFSET, ConsumerOffsets
from ariane.broker.topics import Topics
from ariane.errors import ArianeError, RequestFailed
from ariane.lifecycle import Slices
from ariane.model.group import MessageModel
from ariane.model.ids import QueueOffset
from ariane.model.route import MessageQueue
from ariane.model.topic import TopicConfig
from ariane.rpc.caller import call_peer, peer_notice
from ariane.store.blocking_io import run_in_executor
from ariane.store.message_store import MessageStore
from ariane.wire.codes import Language, ResponseCode
from ariane.wire.requests.offsets import GetClientStatus, OffsetsByQueue, ResetClientOffset, ResetOffsets, as_list

log = logging.getLogger(__name__)

TO_THE_END = -1
"""The value of `timestamp` that means the end of the queue."""
_ANY = -1  # 5.x sends this for a missing queue or offset
_CLIENT_VERSION_MIN = (
    28  # 3.0.7-SNAPSHOT: older clients support neither RESET_CONSUMER_CLIENT_OFFSET nor the status request
)


def reset_target(current: int, target: int, *, force: bool) -> int:
    """The new offset of one queue: only backwards, unless forced or the group has no offset."""
    return target if force or current == NO_OFFSET or target < current else current


def check_client_versions(group: ConsumerGroup) -> None:
    """RequestFailed unless all members support the request: resetting a part of a group would be worse than nothing."""
    for member in group.members.values():
        if member.version < _CLIENT_VERSION_MIN:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"client {member.client_id} of group {group.name} does not support this (version {member.version}, "
                f"at least {_CLIENT_VERSION_MIN} needed): upgrade it, or stop the group first",
            )


@dataclass(frozen=True)
class OffsetResets:
    broker_name: str
    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets
    clients: Clients
    store: MessageStore

    async def reset(self, request: ResetOffsets) -> OffsetsByQueue:
        """Resets the group and returns the new offsets. RequestFailed, with nothing changed, if it is not possible."""
        targets = await self._targets(request)
        online = self.clients.group(request.group)
        if online is not None and request.topic in online.subscriptions:
            check_client_versions(online)
            await self._notify(online, request, self._by_queue(request.topic, targets))
        # Broadcasting members store their offsets locally: an offset here would only show as lag.
        if online is None or online.message_model is not MessageModel.BROADCASTING:
            for queue_id, offset in targets.items():
                self.offsets.reset(request.group, request.topic, queue_id, offset)
        log.info("offsets reset", extra={"group": request.group, "topic": request.topic, "online": online is not None})
        return self._by_queue(request.topic, targets)

    async def _targets(self, request: ResetOffsets) -> dict[int, int]:
        config = self.topics.get(request.topic)
        if config is None:
            raise RequestFailed(ResponseCode.TOPIC_NOT_EXIST, f"topic {request.topic} does not exist on this broker")
        self._check_group_exists(request.group)
        if request.offset is not None and request.offset != _ANY:
            return self._to_offset(request, config, request.offset)
        target = {
            queue_id: await self._offset_at_time(request.topic, queue_id, request.timestamp)
            for queue_id in self._queues(request, config)
        }
        # After the last await: members keep committing meanwhile.
        return {
            queue_id: reset_target(
                self.offsets.get(request.group, request.topic, queue_id), offset, force=request.is_force
            )
            for queue_id, offset in target.items()
        }

    def _check_group_exists(self, group: str) -> None:
        """Rejects an unknown group: a misspelt name would otherwise be reset silently."""
        if self.groups.get(group) is None and self.clients.group(group) is None and not self.offsets.topics_of(group):
            raise RequestFailed(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"group {group} has neither settings nor offsets nor members on this broker",
            )

    def _to_offset(self, request: ResetOffsets, config: TopicConfig, offset: int) -> dict[int, int]:
        """An explicit queue and offset is always applied, also forwards."""
        if request.queue_id is None or request.queue_id == _ANY:
            raise RequestFailed(ResponseCode.INVALID_PARAMETER, f"offset {offset} needs a queueId")
        (queue_id,) = self._queues(request, config)
        queue = self.store.components.queues.get(request.topic, queue_id)
        low, high = (0, 0) if queue is None else (queue.min_offset, queue.visible_end)
        if not low <= offset <= high:
            raise RequestFailed(
                ResponseCode.INVALID_PARAMETER,
                f"offset {offset} is not in queue {queue_id} of {request.topic}, which goes from {low} to {high}",
            )
        return {queue_id: offset}

    def _queues(self, request: ResetOffsets, config: TopicConfig) -> range:
        count = queue_count(config)
        if request.queue_id is None or request.queue_id == _ANY:
            return range(count)
        if not 0 <= request.queue_id < count:
            raise RequestFailed(
                ResponseCode.INVALID_PARAMETER,
                f"topic {request.topic} has queues 0 to {count - 1}, not {request.queue_id}",
            )
        return range(request.queue_id, request.queue_id + 1)

    async def _offset_at_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        queue = self.store.components.queues.get(topic, queue_id)
        if queue is None:
            return 0
        if timestamp_ms == TO_THE_END:
            return queue.visible_end
        return await run_in_executor(self.store.lookup.offset_by_time_steps(topic, queue_id, timestamp_ms))

    async def _notify(self, group: ConsumerGroup, request: ResetOffsets, offsets: OffsetsByQueue) -> None:
        frames = {is_cpp: peer_notice(_notice(request, offsets, is_cpp=is_cpp)) for is_cpp in (False, True)}
        async with Slices() as slices:
            for member in tuple(group.members.values()):
                member.connection.write(frames[member.language is Language.CPP])
                await slices.pause()

    def _by_queue(self, topic: str, targets: Mapping[int, int]) -> OffsetsByQueue:
        return OffsetsByQueue(
            offset_table={
                MessageQueue(topic=topic, broker_name=self.broker_name, queue_id=queue_id): QueueOffset(offset)
                for queue_id, offset in targets.items()
            }
        )


def _notice(request: ResetOffsets, offsets: OffsetsByQueue, *, is_cpp: bool) -> ResetClientOffset:
    return ResetClientOffset(
        topic=request.topic,
        group=request.group,
        timestamp=request.timestamp,
        is_force=request.is_force,
        body=as_list(offsets) if is_cpp else offsets,
    )


# --- offsets of connected members ---

_TIMEOUT_S = 5.0

Positions = dict[MessageQueue, QueueOffset]


async def offsets_of_members(group: ConsumerGroup, topic: str, client_id: str | None) -> dict[str, Positions]:
    """Queries all members concurrently, or only `client_id`; by client id, without members that fail to respond."""
    check_client_versions(group)
    members = {
        member.client_id: member
        for member in group.members.values()
        if client_id is None or member.client_id == client_id
    }
    responses = await asyncio.gather(*(_positions(member, group.name, topic) for member in members.values()))
    return {name: offsets for name, offsets in zip(members, responses, strict=True) if offsets is not None}


async def _positions(member: Member, group: str, topic: str) -> Positions | None:
    try:
        response = await call_peer(member.connection, GetClientStatus(topic=topic, group=group), _TIMEOUT_S)
    except ArianeError as error:
        log.warning("client did not return its offsets", extra={"client": member.client_id, "reason": str(error)})
        return None
    return response.body.message_queue_table
