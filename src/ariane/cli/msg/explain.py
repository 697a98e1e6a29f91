"""`ariane msg explain`: where a message is stored, and for each group why it has consumed the message or not.

A failed attempt leaves copies of the message, all with the id that the producer assigned: in the topic of delayed
messages until the retry is due, then in %RETRY%group, and in %DLQ%group after the last retry. The newest copy shows
where the message is now; without copies the group's offset in the queue decides.

Where a message is stored in its broker's files:

    physical offset 1073742080, files of 1073741824 bytes
    └──▶ commitlog/00000000001073741824, byte 256

    queue offset 300001, files of 300000 entries of 20 bytes
    └──▶ consumequeue/TOPIC/QUEUE/00000000000006000000, byte 20: log offset (8), size (4), hash of the tag (8)
"""

from collections.abc import Mapping
from enum import StrEnum

import click
import msgspec

from ariane.cli.common.admin import report_missing, run_admin
from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import OutputFormat, Row, output_option, render
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

_RETRY_MAX = 16


class ConsumeState(StrEnum):
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
    state: ConsumeState
    why: str
    is_online: bool
    failures: tuple[Failure, ...] = ()
    """Brokers that did not report whether they have copies of the message."""


async def explain(admin: Admin, message: Received) -> list[Explanation]:
    """Ordered by group name."""
    return [await _explain(admin, message, track) for track in await admin.messages.tracks(message)]


async def _explain(admin: Admin, message: Received, track: Track) -> Explanation:
    members = await admin.groups.members(track.group)
    copies = await _copies(admin, message, track.group)
    state, why = await _state(admin, message, track, members, copies)
    return Explanation(group=track.group, state=state, why=why, is_online=track.is_online, failures=copies.failures)


async def _state(
    admin: Admin, message: Received, track: Track, members: GroupMembers, copies: "_Copies"
) -> tuple[ConsumeState, str]:
    failed = await _after_failure(admin, track.group, copies)
    if failed is not None:
        return failed
    if members.is_online:
        mismatch = await _mismatch(admin, message.queue.topic, members)
        if mismatch is not None:
            return ConsumeState.MISMATCH, mismatch
    return await _by_offset(admin, message, track, members)


# --- by the copies of the message ---


class _Copies(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of one message, made when one group failed to consume it."""

    letters: tuple[Received, ...] = ()
    due: tuple[Received, ...] = ()
    delayed: tuple[Received, ...] = ()
    failures: tuple[Failure, ...] = ()


async def _copies(admin: Admin, message: Received, group: str) -> _Copies:
    if message.unique_key is None:  # an old client that assigns no ids: its copies cannot be found
        return _Copies()
    retry_topic = f"{RETRY_PREFIX}{group}"
    topics = (f"{DEAD_LETTER_PREFIX}{group}", retry_topic, SCHEDULE)
    letters, due, delayed = [await _in_topic(admin, topic, message.unique_key) for topic in topics]
    return _Copies(
        letters=letters.messages,
        due=due.messages,
        delayed=tuple(copy for copy in delayed.messages if copy.properties.get(Property.REAL_TOPIC) == retry_topic),
        failures=(*letters.failures, *due.failures, *delayed.failures),
    )


async def _in_topic(admin: Admin, topic: str, key: str) -> FoundMessages:
    """Empty when the topic does not exist: it is created on first use."""
    try:
        return await admin.messages.by_unique_key(topic, key)
    except NoRoute:
        return FoundMessages(messages=())


async def _after_failure(admin: Admin, group: str, copies: _Copies) -> tuple[ConsumeState, str] | None:
    if copies.letters:
        attempts = copies.letters[-1].reconsume_times
        return ConsumeState.DEAD_LETTER, f"failed {attempts} retries; see `ariane dlq show {group}`"
    attempts = max((copy.reconsume_times for copy in (*copies.due, *copies.delayed)), default=0)
    if not attempts:
        return None
    retry = f"in retry {attempts} of {await _retry_max(admin, group)}"
    newest = next((copy for copy in copies.due if copy.reconsume_times == attempts), None)
    if newest is None:
        return ConsumeState.RETRY, f"{retry}, which is not due yet"
    offset = (await admin.offsets.get(group, newest.queue.topic)).offsets.get(newest.queue)
    if offset is None:
        return ConsumeState.RETRY, f"{retry}, which is due; the group has no offset in its retry topic yet"
    if offset <= newest.queue_offset:
        return ConsumeState.RETRY, f"{retry}, which is due, after {newest.queue_offset - offset} other messages"
    return ConsumeState.CONSUMED, retry


async def _retry_max(admin: Admin, group: str) -> int:
    configs = (await admin.groups.configs(group)).responses.values()
    return max((config.retry_max_times for config in configs), default=_RETRY_MAX)


# --- by the group's subscriptions ---


async def _mismatch(admin: Admin, topic: str, members: GroupMembers) -> str | None:
    """All members of a group must have the same subscriptions: the broker keeps those of the last heartbeat."""
    if not members.subscribes_to(topic):
        topics = [sub.topic for sub in members.subscriptions if not sub.topic.startswith(RETRY_PREFIX)]
        return f"its members do not subscribe to {topic}, but to {', '.join(topics) or 'nothing'}"
    try:
        infos = (await admin.clients.running_infos(members.group)).responses
    except ArianeError:  # explain without this check when the members do not respond
        return None
    by_client = {
        client: next((_text(sub) for sub in info.subscription_set if sub.topic == topic), "nothing")
        for client, info in infos.items()
    }
    if len(set(by_client.values())) < 2:
        return None
    return "its members subscribe differently: " + ", ".join(
        f"{client} to {text}" for client, text in by_client.items()
    )


def _text(subscription: Subscription) -> str:
    return f"{subscription.expression_type} {subscription.sub_string!r}"


# --- by the group's offset ---


async def _by_offset(admin: Admin, message: Received, track: Track, members: GroupMembers) -> tuple[ConsumeState, str]:
    match track.state:
        case TrackState.BROADCASTING:
            return (
                ConsumeState.BROADCAST,
                "each member gets it and keeps its own offset, which the broker does not know",
            )
        case TrackState.UNKNOWN:
            return ConsumeState.UNKNOWN, "the group has no offset in this queue yet"
        case TrackState.WAITING:
            return ConsumeState.WAITING, _waiting(track)
    subscription = next((sub for sub in members.subscriptions if sub.topic == message.queue.topic), None)
    if track.state is TrackState.FILTERED and subscription is not None:
        tag = message.tags or "none"
        return ConsumeState.FILTERED, f"its tag is {tag}, the group subscribes to {subscription.sub_string}"
    if subscription is not None and subscription.expression_type == ExpressionType.SQL92:
        return await _by_sql(admin, message, subscription, track.group)
    offline = "" if track.is_online else "; its subscription is unknown while no member is online"
    return ConsumeState.CONSUMED, f"the group's offset is past it{offline}"


def _waiting(track: Track) -> str:
    online = "" if track.is_online else "; the group has no online members"
    return f"waits behind {track.behind} messages of its queue{online}"


async def _by_sql(admin: Admin, message: Received, subscription: Subscription, group: str) -> tuple[ConsumeState, str]:
    expression = repr(subscription.sub_string)
    try:
        page = await admin.queues.entries(message.queue, message.queue_offset, 1, group=group)
    except ArianeError as error:
        return (
            ConsumeState.UNKNOWN,
            f"the group's offset is past it; whether {expression} matched is unknown: {error}",
        )
    if page.entries[0].eval:
        return ConsumeState.CONSUMED, f"the group's offset is past it, and {expression} matches it"
    return ConsumeState.FILTERED, f"{expression} does not match it"


# --- where the message is stored ---

_ENTRY_BYTES = 20
_LOG_SIZE, _QUEUE_SIZE = "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"


class StoredAt(msgspec.Struct, frozen=True, kw_only=True):
    """None for what the broker does not report."""

    log_file: str | None
    log_byte: int | None
    queue_file: str | None
    queue_byte: int | None
    tags_code: int
    """Computed from the tag."""
    entry: str
    """The contents of the consume queue entry, or why it is not available."""


async def stored_at(admin: Admin, message: Received) -> StoredAt:
    sizes = await _settings(admin, message.queue.broker_name)
    queue = f"consumequeue/{message.queue.topic}/{message.queue.queue_id}"
    log_file, log_byte = file_and_byte("commitlog", message.physical_offset, _number(sizes, _LOG_SIZE))
    queue_file, queue_byte = file_and_byte(queue, message.queue_offset * _ENTRY_BYTES, _number(sizes, _QUEUE_SIZE))
    return StoredAt(
        log_file=log_file,
        log_byte=log_byte,
        queue_file=queue_file,
        queue_byte=queue_byte,
        tags_code=tags_code(message.tags),
        entry=await _entry(admin, message),
    )


def file_and_byte(directory: str, position: int, file_bytes: int | None) -> tuple[str | None, int | None]:
    """A file's name is the position of its first byte."""
    if not file_bytes:
        return None, None
    base = position - position % file_bytes
    return f"{directory}/{base:020d}", position - base


async def _settings(admin: Admin, broker: str) -> Mapping[str, str]:
    try:
        (settings,) = (await admin.brokers.config(broker=broker)).responses.values()
    except (ArianeError, ValueError):  # a broker may refuse to show its settings: show the rest
        return {}
    return settings


def _number(settings: Mapping[str, str], name: str) -> int | None:
    text = settings.get(name, "")
    return int(text) if text.isdecimal() else None


async def _entry(admin: Admin, message: Received) -> str:
    try:
        (entry,) = (await admin.queues.entries(message.queue, message.queue_offset, 1)).entries[:1]
    except (ArianeError, ValueError) as error:
        return f"not available: {error}"
    if entry.physic_offset != message.physical_offset:
        return f"wrong: it points to byte {entry.physic_offset} of the log, another message; run `ariane store verify`"
    return f"{entry.physic_size} bytes at {entry.physic_offset}, tag hash {entry.tags_code}"


# --- command ---

Explained = tuple[Received, StoredAt, list[Explanation]]


@msg.command("explain", short_help="Show where a message is stored and why groups got it or not.")
@click.argument("id_or_key", metavar="ID|KEY")
@click.option("-t", "--topic", metavar="TOPIC", help="Search this topic only; by default all topics.")
@click.option(
    "--limit", type=click.IntRange(1), default=5, show_default=True, help="Explain at most this many messages."
)
@connected
@output_option()
def explain_message(id_or_key: str, topic: str | None, limit: int, connection: Connection, output: OutputFormat) -> int:
    """Show where a message is stored, and for each group why it has consumed the message or not.

    Shows the file and byte in the commit log, the consume queue entry and the hash of the tag. For each group:
    consumed, waiting, filtered, in retry, dead letter, subscription mismatch, broadcast or unknown. -o json prints one
    object for each message.

    \b
    Examples:
      ariane msg explain 7F0000010E6C4F6B5E2D1A3B00000000
      ariane msg explain order-1001 --topic orders
      ariane msg explain order-1001 -o json
    """

    async def work(admin: Admin) -> tuple[Search, list[Explained]]:
        found = await by_id_or_key(admin, id_or_key, topic, limit)
        return found, [
            (message, await stored_at(admin, message), await explain(admin, message)) for message in found.messages
        ]

    found, explained = run_admin(connection, work)
    if output is OutputFormat.TABLE:
        for number, explanation in enumerate(explained):
            click.echo("", nl=number > 0)
            _print(*explanation)
    else:
        render([_row(*explanation) for explanation in explained], output)
    if found.note is not None:
        click.echo(found.note, err=True)
    failures = [
        *found.failures,
        *(failure for *_, groups in explained for group in groups for failure in group.failures),
    ]
    return report_missing({failure.server: failure for failure in failures}.values())


def _print(message: Received, place: StoredAt, explanations: list[Explanation]) -> None:
    """Not truncated on a terminal: an incomplete id or reason explains nothing."""
    fields = [{"field": name, "value": value} for name, value in _message_row(message, place).items()]
    render(fields, OutputFormat.TABLE, truncate=False)
    click.echo("")
    if explanations:
        render(map(_group_row, explanations), OutputFormat.TABLE, ("group", "online", "verdict", "why"), truncate=False)
    else:
        click.echo("no group consumes this topic or has consumed it before")


def _row(message: Received, place: StoredAt, explanations: list[Explanation]) -> Row:
    return {**_message_row(message, place), "groups": [_group_row(explanation) for explanation in explanations]}


def _message_row(message: Received, place: StoredAt) -> dict[str, object]:
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


def _group_row(explanation: Explanation) -> Row:
    return {
        "group": explanation.group,
        "verdict": str(explanation.state),
        "why": explanation.why,
        "online": explanation.is_online,
    }
