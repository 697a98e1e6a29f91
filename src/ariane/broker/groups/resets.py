"""Moving a group to another place: to a time, to the end, to an offset.

Where its members are connected, they are told: each drops its queues, waits for work in hand, and goes on from the new
offset. The broker's own offsets are set, too. That alone moves a group that is not connected, or whose members do not
read the topic, and it outlives a member that dies between the notice and its next commit. (Apache's broker leaves that
to the tool, which writes each offset by itself when it hears CONSUMER_NOT_ONLINE; the outcome is the same.)
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
from ariane.model.group import MessageModel
from ariane.model.ids import QueueOffset
from ariane.model.route import MessageQueue
from ariane.model.topic import TopicConfig
from ariane.rpc.caller import ask_peer, tell_peer
from ariane.store.blocking_io import run_in_executor
from ariane.store.message_store import MessageStore
from ariane.wire.codes import Language, ResponseCode
from ariane.wire.requests.offsets import GetClientStatus, OffsetsByQueue, ResetClientOffset, ResetOffsets, as_list

log = logging.getLogger(__name__)

TO_THE_END = -1
"""Instead of a time."""
_ANY = -1  # how 5.x leaves out a queue or an offset
_CLIENT_VERSION_MIN = 28  # 3.0.7-SNAPSHOT: older clients know neither RESET_CONSUMER_CLIENT_OFFSET nor the status call


def reset_target(current: int, wanted: int, *, force: bool) -> int:
    """Where one queue goes: only back, unless forced. Without an offset there is nothing to be lost by moving."""
    return wanted if force or current == NO_OFFSET or wanted < current else current


def check_client_versions(group: ConsumerGroup) -> None:
    """All members or none: half a group that moves would be worse than none."""
    for member in group.members.values():
        if member.version < _CLIENT_VERSION_MIN:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"client {member.client_id} of group {group.name} is too old for this (version {member.version}, "
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
        """Moves the group and returns where to. RequestFailed, with nothing moved, when that cannot be."""
        targets = await self._targets(request)
        online = self.clients.group(request.group)
        if online is not None and request.topic in online.subscriptions:
            check_client_versions(online)
            self._tell(online, request, self._by_queue(request.topic, targets))
        # Members that broadcast keep their offsets to themselves: one here would only look like a lag.
        if online is None or online.message_model is not MessageModel.BROADCASTING:
            for queue_id, offset in targets.items():
                self.offsets.commit(request.group, request.topic, queue_id, offset)
        log.info("offsets reset", extra={"group": request.group, "topic": request.topic, "online": online is not None})
        return self._by_queue(request.topic, targets)

    async def _targets(self, request: ResetOffsets) -> dict[int, int]:
        config = self.topics.get(request.topic)
        if config is None:
            raise RequestFailed(ResponseCode.TOPIC_NOT_EXIST, f"topic {request.topic} does not exist on this broker")
        self._check_known(request.group)
        if request.offset is not None and request.offset != _ANY:
            return self._to_offset(request, config, request.offset)
        wanted = {
            queue_id: await self._by_time(request.topic, queue_id, request.timestamp)
            for queue_id in self._queues(request, config)
        }
        # Only now, when nothing more is waited for: members go on committing meanwhile.
        return {
            queue_id: reset_target(
                self.offsets.get(request.group, request.topic, queue_id), offset, force=request.is_force
            )
            for queue_id, offset in wanted.items()
        }

    def _check_known(self, group: str) -> None:
        """A misspelt group would be moved without a word, and the right one left where it is."""
        if self.groups.get(group) is None and self.clients.group(group) is None and not self.offsets.topics_of(group):
            raise RequestFailed(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"group {group} has neither settings nor offsets nor members on this broker",
            )

    def _to_offset(self, request: ResetOffsets, config: TopicConfig, offset: int) -> dict[int, int]:
        """Whoever names one queue and one offset means it: forwards, too."""
        if request.queue_id is None or request.queue_id == _ANY:
            raise RequestFailed(ResponseCode.INVALID_PARAMETER, f"offset {offset} of which queue? queueId is missing")
        (queue_id,) = self._queues(request, config)
        queue = self.store.components.queues.get(request.topic, queue_id)
        low, high = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
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

    async def _by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        queue = self.store.components.queues.get(topic, queue_id)
        if queue is None:
            return 0
        if timestamp_ms == TO_THE_END:
            return queue.max_offset
        return await run_in_executor(self.store.lookup.offset_by_time_steps(topic, queue_id, timestamp_ms))

    def _tell(self, group: ConsumerGroup, request: ResetOffsets, offsets: OffsetsByQueue) -> None:
        for member in group.members.values():
            tell_peer(member.connection, _notice(request, member, offsets))

    def _by_queue(self, topic: str, targets: Mapping[int, int]) -> OffsetsByQueue:
        return OffsetsByQueue(
            offset_table={
                MessageQueue(topic=topic, broker_name=self.broker_name, queue_id=queue_id): QueueOffset(offset)
                for queue_id, offset in targets.items()
            }
        )


def _notice(request: ResetOffsets, member: Member, offsets: OffsetsByQueue) -> ResetClientOffset:
    is_cpp = member.language is Language.CPP
    return ResetClientOffset(
        topic=request.topic,
        group=request.group,
        timestamp=request.timestamp,
        is_force=request.is_force,
        body=as_list(offsets) if is_cpp else offsets,
    )


# --- member_status ---
#
# Asking the members of a group where they are: all at once, and those that stay silent are left out.

_TIMEOUT_S = 5.0

Positions = dict[MessageQueue, QueueOffset]


async def offsets_of_members(group: ConsumerGroup, topic: str, client_id: str | None) -> dict[str, Positions]:
    """By client id; of `client_id` alone when it is given."""
    check_client_versions(group)
    asked = {
        member.client_id: member
        for member in group.members.values()
        if client_id is None or member.client_id == client_id
    }
    responses = await asyncio.gather(*(_positions(member, group.name, topic) for member in asked.values()))
    return {name: found for name, found in zip(asked, responses, strict=True) if found is not None}


async def _positions(member: Member, group: str, topic: str) -> Positions | None:
    try:
        response = await ask_peer(member.connection, GetClientStatus(topic=topic, group=group), _TIMEOUT_S)
    except ArianeError as error:
        log.warning("client does not tell its offsets", extra={"client": member.client_id, "reason": str(error)})
        return None
    return response.body.message_queue_table
