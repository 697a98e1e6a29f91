"""For each group: why it has consumed a message, or why it has not.

A failed attempt leaves copies of the message, all under the id that its producer gave it: in the topic of delayed
messages until the retry is due, in %RETRY%group when it is, and in %DLQ%group when there will be no more. The newest
copy tells where the message is now; without copies the group's offset in the queue tells.
"""

from enum import StrEnum

import msgspec

from ariane.client.admin import Admin
from ariane.client.admin.members import GroupMembers
from ariane.client.admin.messages import FoundMessages
from ariane.client.admin.servers import Failure
from ariane.client.admin.tracks import Track, TrackState
from ariane.client.received import Received
from ariane.errors import ArianeError, NoRoute
from ariane.model.group import ExpressionType, Subscription
from ariane.model.ids import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ariane.model.message import Property
from ariane.store.delay_levels import SCHEDULE_TOPIC

_RETRY_MAX = 16


class Verdict(StrEnum):
    CONSUMED = "consumed"
    WAITING = "waiting"
    FILTERED = "filtered"
    RETRY = "retry"
    DEAD_LETTER = "dead letter"
    MISMATCH = "subscription mismatch"
    BROADCAST = "broadcast"
    UNKNOWN = "unknown"


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    verdict: Verdict
    why: str
    is_online: bool
    failures: tuple[Failure, ...] = ()
    """Brokers that did not tell whether they have copies of the message."""


async def explain(admin: Admin, message: Received) -> list[Explanation]:
    """In the order of the groups' names."""
    return [await _explain(admin, message, track) for track in await admin.messages.tracks(message)]


async def _explain(admin: Admin, message: Received, track: Track) -> Explanation:
    members = await admin.groups.members(track.group)
    copies = await _copies(admin, message, track.group)
    verdict, why = await _verdict(admin, message, track, members, copies)
    return Explanation(group=track.group, verdict=verdict, why=why, is_online=track.is_online, failures=copies.failures)


async def _verdict(
    admin: Admin, message: Received, track: Track, members: GroupMembers, copies: "_Copies"
) -> tuple[Verdict, str]:
    failed = await _after_failure(admin, track.group, copies)
    if failed is not None:
        return failed
    if members.is_online:
        mismatch = await _mismatch(admin, message.queue.topic, members)
        if mismatch is not None:
            return Verdict.MISMATCH, mismatch
    return await _by_offset(admin, message, track, members)


# --- by its copies --------------------------------------------------------------------------------------------------


class _Copies(msgspec.Struct, frozen=True, kw_only=True):
    """Of one message, made by the failures of one group."""

    letters: tuple[Received, ...] = ()
    due: tuple[Received, ...] = ()
    delayed: tuple[Received, ...] = ()
    failures: tuple[Failure, ...] = ()


async def _copies(admin: Admin, message: Received, group: str) -> _Copies:
    if message.unique_key is None:  # a client so old that it gives no ids: copies cannot be told apart
        return _Copies()
    retry_topic = f"{RETRY_PREFIX}{group}"
    topics = (f"{DEAD_LETTER_PREFIX}{group}", retry_topic, SCHEDULE_TOPIC)
    letters, due, delayed = [await _in_topic(admin, topic, message.unique_key) for topic in topics]
    return _Copies(
        letters=letters.messages,
        due=due.messages,
        delayed=tuple(one for one in delayed.messages if one.properties.get(Property.REAL_TOPIC) == retry_topic),
        failures=(*letters.failures, *due.failures, *delayed.failures),
    )


async def _in_topic(admin: Admin, topic: str, key: str) -> FoundMessages:
    """None at all when the topic was never needed."""
    try:
        return await admin.messages.by_unique_key(topic, key)
    except NoRoute:
        return FoundMessages(messages=())


async def _after_failure(admin: Admin, group: str, copies: _Copies) -> tuple[Verdict, str] | None:
    if copies.letters:
        attempts = copies.letters[-1].reconsume_times
        return Verdict.DEAD_LETTER, f"given up after {attempts} attempts; see `ariane dlq show {group}`"
    attempts = max((one.reconsume_times for one in (*copies.due, *copies.delayed)), default=0)
    if not attempts:
        return None
    retry = f"in retry {attempts} of {await _retry_max(admin, group)}"
    newest = next((one for one in copies.due if one.reconsume_times == attempts), None)
    if newest is None:
        return Verdict.RETRY, f"{retry}, which is not due yet"
    offset = (await admin.offsets.get(group, newest.queue.topic)).offsets.get(newest.queue)
    if offset is None:
        return Verdict.RETRY, f"{retry}, which is due; the group has no offset among its retries yet"
    if offset <= newest.queue_offset:
        return Verdict.RETRY, f"{retry}, which is due and waits behind {newest.queue_offset - offset} messages"
    return Verdict.CONSUMED, retry


async def _retry_max(admin: Admin, group: str) -> int:
    configs = (await admin.groups.configs(group)).answers.values()
    return max((config.retry_max_times for config in configs), default=_RETRY_MAX)


# --- by what the group subscribes to --------------------------------------------------------------------------------


async def _mismatch(admin: Admin, topic: str, members: GroupMembers) -> str | None:
    """Members of a group must all subscribe alike: the broker keeps what the last of them said."""
    if not members.subscribes_to(topic):
        named = ", ".join(one.topic for one in members.subscriptions if not one.topic.startswith(RETRY_PREFIX))
        return f"its members do not subscribe to {topic}, but to {named or 'nothing'}"
    try:
        infos = (await admin.clients.running_infos(members.group)).answers
    except ArianeError:  # members that cannot tell are no reason to tell nothing
        return None
    told = {
        client: next((_text(one) for one in info.subscription_set if one.topic == topic), "nothing")
        for client, info in infos.items()
    }
    if len(set(told.values())) < 2:
        return None
    return "its members subscribe differently: " + ", ".join(f"{client} to {text}" for client, text in told.items())


def _text(subscription: Subscription) -> str:
    return f"{subscription.expression_type} {subscription.sub_string!r}"


# --- by its offset --------------------------------------------------------------------------------------------------


async def _by_offset(admin: Admin, message: Received, track: Track, members: GroupMembers) -> tuple[Verdict, str]:
    match track.state:
        case TrackState.BROADCASTING:
            return Verdict.BROADCAST, "each member gets it and keeps its own offsets: the broker does not know"
        case TrackState.UNKNOWN:
            return Verdict.UNKNOWN, "the group has no offset in this queue yet"
        case TrackState.WAITING:
            return Verdict.WAITING, _waiting(track)
    wanted = next((one for one in members.subscriptions if one.topic == message.queue.topic), None)
    if track.state is TrackState.FILTERED and wanted is not None:
        return Verdict.FILTERED, f"its tag is {message.tags or 'none'}, the group wants {wanted.sub_string}"
    if wanted is not None and wanted.expression_type == ExpressionType.SQL92:
        return await _by_sql(admin, message, wanted, track.group)
    offline = "" if track.is_online else "; what it subscribed to is not known while nobody is online"
    return Verdict.CONSUMED, f"the group's offset is past it{offline}"


def _waiting(track: Track) -> str:
    online = "" if track.is_online else "; none of its members is online"
    return f"waits behind {track.behind} messages of its queue{online}"


async def _by_sql(admin: Admin, message: Received, wanted: Subscription, group: str) -> tuple[Verdict, str]:
    try:
        page = await admin.queues.entries(message.queue, message.queue_offset, 1, group=group)
    except ArianeError as error:
        return (
            Verdict.UNKNOWN,
            f"the group is past it, and whether {wanted.sub_string!r} let it pass is not told: {error}",
        )
    if page.entries[0].eval:
        return Verdict.CONSUMED, f"the group's offset is past it, and {wanted.sub_string!r} lets it pass"
    return Verdict.FILTERED, f"{wanted.sub_string!r} does not let it pass"
