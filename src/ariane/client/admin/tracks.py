"""Which groups have consumed a message: told by comparing its place in its queue with their offsets."""

from enum import StrEnum

import msgspec

from ariane.client.admin.desk import Desk
from ariane.client.admin.members import GroupMembers, members_of
from ariane.client.admin.stored_offsets import stored_offsets_at
from ariane.client.received import Received
from ariane.client.subscriptions import passes
from ariane.model.group import MessageModel
from ariane.wire.requests.groups import ListGroupsOfTopic


class TrackState(StrEnum):
    CONSUMED = "CONSUMED"
    FILTERED = "FILTERED"
    """The group is past it, but does not subscribe to its tag."""
    WAITING = "WAITING"
    BROADCASTING = "BROADCASTING"
    """Each member keeps its own offsets: the broker cannot know."""
    UNKNOWN = "UNKNOWN"
    """The group has no offset in the message's queue."""


class Track(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    state: TrackState
    is_online: bool
    behind: int | None = None
    """While it waits: how many messages of the queue come before it."""


async def tracks_of(desk: Desk, message: Received) -> tuple[Track, ...]:
    """Asks the broker of the message's queue: no other one knows how far groups are in it."""
    broker = await desk.of_queue(message.queue)
    groups = (await desk.ask(broker.address, ListGroupsOfTopic(message.queue.topic))).body.group_list
    return tuple(await desk.together(_track(desk, group, message) for group in sorted(groups)))


async def _track(desk: Desk, group: str, message: Received) -> Track:
    members = await members_of(desk, group)
    queue = message.queue
    stored = await stored_offsets_at(desk, await desk.of_queue(queue), group)
    offset = stored.get(queue.topic, {}).get(queue.queue_id)
    state = _state(members, offset, message)
    behind = message.queue_offset - offset if offset is not None and state is TrackState.WAITING else None
    return Track(group=group, state=state, is_online=members.is_online, behind=behind)


def _state(members: GroupMembers, offset: int | None, message: Received) -> TrackState:
    if members.message_model is MessageModel.BROADCASTING:
        return TrackState.BROADCASTING
    if offset is None:
        return TrackState.UNKNOWN
    if offset <= message.queue_offset:
        return TrackState.WAITING
    subscription = next((one for one in members.subscriptions if one.topic == message.queue.topic), None)
    wanted = subscription is None or passes(subscription, message)
    return TrackState.CONSUMED if wanted else TrackState.FILTERED
