"""`ariane msg explain`: where a message is, and why each group has consumed it or has not."""

from collections.abc import Mapping
from enum import StrEnum

import click
import msgspec

from ariane.cli.common.admin import run_admin, tell_missing
from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import Form, Row, output_option, render
from ariane.cli.msg.command import Search, by_id_or_key
from ariane.cli.tree import msg
from ariane.client.admin import Admin
from ariane.client.admin.members import GroupMembers
from ariane.client.admin.messages import FoundMessages, Track, TrackState
from ariane.client.admin.requests import Failure
from ariane.client.consumer.message import Received
from ariane.errors import ArianeError, NoRoute
from ariane.model.group import ExpressionType, Subscription
from ariane.model.ids import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ariane.model.message import Property
from ariane.model.system_topics import SCHEDULE
from ariane.store.offline.annotate import time_text
from ariane.wire.hashes import tags_code

# --- explaining ---
#
# For each group: why it has consumed a message, or why it has not.
#
# A failed attempt leaves copies of the message, all under the id that its producer gave it: in the topic of delayed
# messages until the retry is due, in %RETRY%group when it is, and in %DLQ%group when there will be no more. The newest
# copy tells where the message is now; without copies the group's offset in the queue tells.

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
    topics = (f"{DEAD_LETTER_PREFIX}{group}", retry_topic, SCHEDULE)
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
    configs = (await admin.groups.configs(group)).responses.values()
    return max((config.retry_max_times for config in configs), default=_RETRY_MAX)


# --- by what the group subscribes to --------------------------------------------------------------------------------


async def _mismatch(admin: Admin, topic: str, members: GroupMembers) -> str | None:
    """Members of a group must all subscribe alike: the broker keeps what the last of them said."""
    if not members.subscribes_to(topic):
        named = ", ".join(one.topic for one in members.subscriptions if not one.topic.startswith(RETRY_PREFIX))
        return f"its members do not subscribe to {topic}, but to {named or 'nothing'}"
    try:
        infos = (await admin.clients.running_infos(members.group)).responses
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


# --- message_place ---
#
# Where a message lies in its broker's files.
#
# physical offset 1073742080, files of 1073741824 bytes
# └──▶ commitlog/00000000001073741824, byte 256
#
# queue offset 300001, files of 300000 entries of 20 bytes
# └──▶ consumequeue/TOPIC/QUEUE/00000000000006000000, byte 20: where it is (8), how long (4), hash of its tag (8)

_ENTRY_BYTES = 20
_LOG_SIZE, _QUEUE_SIZE = "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"


class MessagePlace(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker does not tell is None."""

    log_file: str | None
    log_byte: int | None
    queue_file: str | None
    queue_byte: int | None
    tags_code: int
    """As it follows from the tag."""
    entry: str
    """What the entry of the queue says about it."""


async def place_of(admin: Admin, message: Received) -> MessagePlace:
    sizes = await _settings(admin, message.queue.broker_name)
    queue = f"consumequeue/{message.queue.topic}/{message.queue.queue_id}"
    log_file, log_byte = file_and_byte("commitlog", message.physical_offset, _number(sizes, _LOG_SIZE))
    queue_file, queue_byte = file_and_byte(queue, message.queue_offset * _ENTRY_BYTES, _number(sizes, _QUEUE_SIZE))
    return MessagePlace(
        log_file=log_file,
        log_byte=log_byte,
        queue_file=queue_file,
        queue_byte=queue_byte,
        tags_code=tags_code(message.tags),
        entry=await _entry(admin, message),
    )


def file_and_byte(directory: str, position: int, file_bytes: int | None) -> tuple[str | None, int | None]:
    """Files are named after the position of their first byte."""
    if not file_bytes:
        return None, None
    base = position - position % file_bytes
    return f"{directory}/{base:020d}", position - base


async def _settings(admin: Admin, broker: str) -> Mapping[str, str]:
    try:
        (settings,) = (await admin.brokers.config(broker=broker)).responses.values()
    except (ArianeError, ValueError):  # a broker may keep its settings from us: the rest is worth telling
        return {}
    return settings


def _number(settings: Mapping[str, str], name: str) -> int | None:
    text = settings.get(name, "")
    return int(text) if text.isdecimal() else None


async def _entry(admin: Admin, message: Received) -> str:
    try:
        (entry,) = (await admin.queues.entries(message.queue, message.queue_offset, 1)).entries[:1]
    except (ArianeError, ValueError) as error:
        return f"not told: {error}"
    if entry.physic_offset != message.physical_offset:
        return f"points to byte {entry.physic_offset} of the log, where another message is: run `ariane store verify`"
    return f"{entry.physic_size} bytes at {entry.physic_offset}, tag hash {entry.tags_code}"


# ---

Explained = tuple[Received, MessagePlace, list[Explanation]]


@msg.command("explain", short_help="Where a message lies, and why groups have it or not.")
@click.argument("id_or_key", metavar="ID|KEY")
@click.option("-t", "--topic", metavar="TOPIC", help="Where to look; without it, in every topic.")
@click.option("--limit", type=click.IntRange(1), default=5, show_default=True, help="Explain at most so many messages.")
@connected
@output_option()
def explain_message(id_or_key: str, topic: str | None, limit: int, connection: Connection, form: Form) -> int:
    """Tell where a message lies, and for each group why it has consumed it or has not.

    The place is the file and byte of the commit log, the entry of the queue and the hash of the tag. A group has
    consumed it, waits behind others, filtered it, is at one of its retries, has given it up as a dead letter, or its
    members subscribe to something else. -o json has one object for each message.

    \b
    Examples:
      ariane msg explain 7F0000010E6C4F6B5E2D1A3B00000000
      ariane msg explain order-1001 --topic orders
      ariane msg explain order-1001 -o json
    """

    async def work(admin: Admin) -> tuple[Search, list[Explained]]:
        found = await by_id_or_key(admin, id_or_key, topic, limit)
        return found, [(one, await place_of(admin, one), await explain(admin, one)) for one in found.messages]

    found, explained = run_admin(connection, work)
    if form is Form.TABLE:
        for number, one in enumerate(explained):
            click.echo("", nl=number > 0)
            _print(*one)
    else:
        render([_row(*one) for one in explained], form)
    if found.note is not None:
        click.echo(found.note, err=True)
    failures = [*found.failures, *(failure for *_, groups in explained for one in groups for failure in one.failures)]
    return tell_missing({failure.server: failure for failure in failures}.values())


def _print(message: Received, place: MessagePlace, explanations: list[Explanation]) -> None:
    """Nothing is cut on a terminal either: an id or a reason of which the end is missing explains nothing."""
    fields = [{"field": name, "value": value} for name, value in _place_row(message, place).items()]
    render(fields, Form.TABLE, is_whole=True)
    click.echo("")
    if explanations:
        render(map(_group_row, explanations), Form.TABLE, ("group", "online", "verdict", "why"), is_whole=True)
    else:
        click.echo("no group consumes this topic, or has ever done so")


def _row(message: Received, place: MessagePlace, explanations: list[Explanation]) -> Row:
    return {**_place_row(message, place), "groups": [_group_row(one) for one in explanations]}


def _place_row(message: Received, place: MessagePlace) -> dict[str, object]:
    return {
        "msgId": message.message_id,
        "offsetMsgId": message.offset_message_id,
        "topic": message.queue.topic,
        "tags": message.tags,
        "keys": list(message.keys),
        "storeTime": time_text(message.store_timestamp_ms),
        "brokerName": message.queue.broker_name,
        "physicalOffset": message.physical_offset,
        "storedSize": message.stored_size,
        "commitLogFile": place.log_file,
        "commitLogByte": place.log_byte,
        "queueId": message.queue.queue_id,
        "queueOffset": message.queue_offset,
        "consumeQueueFile": place.queue_file,
        "consumeQueueByte": place.queue_byte,
        "consumeQueueEntry": place.entry,
        "tagsCode": place.tags_code,
    }


def _group_row(one: Explanation) -> Row:
    return {"group": one.group, "verdict": str(one.verdict), "why": one.why, "online": one.is_online}
