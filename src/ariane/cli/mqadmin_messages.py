"""mqadmin's commands that find stored messages and print them."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import click

from ariane.cli.asking import tell_missing
from ariane.cli.message_search import queue_named
from ariane.cli.messages import hand_over
from ariane.cli.mqadmin_shape import TOPIC, Option, apache, optional_moment, print_columns
from ariane.cli.tail_rows import body_text
from ariane.client.admin import Admin
from ariane.client.admin.messages import FoundMessages
from ariane.client.queue_ends import readable_queues
from ariane.client.received import Received
from ariane.client.subscriptions import ALL
from ariane.errors import ClientError
from ariane.model.route import MessageQueue
from ariane.store.annotate import time_text

_ID = Option("i", "msgId", "message_id", "The message's id.", example="7F0000010E6C4F6B5E2D1A3B00000000")
_TO_GROUP = Option("g", "consumerGroup", "group", "With -d: hand it to a member of this group.")
_CLIENT = Option("d", "clientId", "client", "The member that it is handed to.")
_BEGIN = Option("b", "beginTimestamp", "begin", "Milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS.")
_END = Option("e", "endTimestamp", "end", "Milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS.")
_TAGS = Option("s", "subExpression", "tags", "Only messages with one of these tags: a || b.", default=ALL)
_BODY = Option("d", "printBody", "with_body", "Whether to print bodies.", type=bool, default=True)
_CHARSET = Option("c", "charsetName", "charset", "How bodies are written.", default="UTF-8")


@apache(
    "queryMsgById",
    _ID,
    _TO_GROUP,
    _CLIENT,
    Option("s", "sendMessage", "again", "Send a copy.", type=bool, default=False),
    Option("u", "unitName", "unit", "Has no effect."),
)
async def query_by_id(
    admin: Admin, message_id: str, group: str | None, client: str | None, again: bool, unit: str | None
) -> int:
    """Show the message with an id that a broker gave it; several ids are joined by commas."""
    status = 0
    for one in filter(None, message_id.split(",")):
        message = await admin.messages.by_id(one)
        if again:
            click.echo(f"prepare resend msg. originalMsgId={one}\n{await admin.messages.resend(message)}")
        elif group and client:
            status |= await _hand_over(admin, message, group, client)
        else:
            await _print_whole(admin, message)
    return status


@apache("queryMsgByKey", TOPIC, Option("k", "msgKey", "key", "The key.", example="order-1001"))
async def query_by_key(admin: Admin, topic: str, key: str) -> int:
    """Show the ids and places of messages with a key."""
    found = await admin.messages.by_key(topic, key)
    _print_places(found)
    return _end(found, f"no message of {topic} has the key {key}")


@apache("queryMsgByUniqueKey", TOPIC, _ID, _TO_GROUP, _CLIENT)
async def query_by_unique_key(admin: Admin, topic: str, message_id: str, group: str | None, client: str | None) -> int:
    """Show the message with an id that its producer gave it."""
    found = await admin.messages.by_unique_key(topic, message_id)
    status = _end(found, f"there is no message {message_id} in {topic}")
    if group and client:
        return await _hand_over(admin, found.messages[-1], group, client) or status
    for message in found.messages:
        await _print_whole(admin, message)
    return status


@apache(
    "queryMsgByOffset",
    TOPIC,
    Option("b", "brokerName", "broker", "The broker's name.", example="broker-a"),
    Option("i", "queueId", "queue_id", "The queue.", example="0", type=int),
    Option("o", "offset", "offset", "The offset in the queue.", example="0", type=int),
)
async def query_by_offset(admin: Admin, topic: str, broker: str, queue_id: int, offset: int) -> None:
    """Show the message at an offset of a queue."""
    message = await admin.messages.by_offset(_queue(topic, broker, queue_id), offset)
    if message is None:
        raise ClientError(f"queue {queue_id} of {topic} at {broker} has no message {offset}")
    await _print_whole(admin, message)


@apache(
    "queryCq",
    TOPIC,
    Option("q", "queue", "queue_id", "The queue.", example="0", type=int),
    Option("i", "index", "index", "The first entry.", example="0", type=int),
    Option("c", "count", "count", "How many.", type=click.IntRange(1), default=10),
    Option("b", "broker", "broker", "The broker's address, or its name."),
    Option("g", "consumer", "group", "Also whether this group's filter lets each pass."),
)
async def query_cq(
    admin: Admin, topic: str, queue_id: int, index: int, count: int, broker: str | None, group: str | None
) -> None:
    """Show entries of a queue's index as they are."""
    names = {one.address: one.name for one in await admin.cluster.brokers()}
    place = f"{names.get(broker, broker)}:{queue_id}" if broker else str(queue_id)
    queue = queue_named(place, readable_queues(topic, await admin.topics.route(topic)))
    page = await admin.queues.entries(queue, index, count, group=group)
    click.echo(f"Queue data:\n======\nmin offset: {page.min_offset}, max offset: {page.max_offset}")
    for number, entry in enumerate(page.entries, index):
        passes = f", passes: {entry.eval}" if group else ""
        click.echo(f"{number}: {entry.physic_offset}, {entry.physic_size}, {entry.tags_code}{passes}")


@apache("printMsg", TOPIC, _CHARSET, _TAGS, _BEGIN, _END, _BODY)
async def print_msg(
    admin: Admin, topic: str, charset: str, tags: str, begin: str | None, end: str | None, with_body: bool
) -> None:
    """Print the messages of a topic, queue after queue, without consuming them."""
    scan = admin.queues.scan(topic, begin=optional_moment(begin), end=optional_moment(end), expression=tags)
    await print_all(scan, charset if with_body else None)


@apache(
    "printMsgByQueue",
    TOPIC,
    Option("a", "brokerName", "broker", "The broker's name.", example="broker-a"),
    Option("i", "queueId", "queue_id", "The queue.", example="0", type=int),
    _CHARSET,
    _TAGS,
    _BEGIN,
    _END,
    Option("p", "printMsg", "with_messages", "Whether to print messages.", type=bool, default=False),
    Option("d", "printBody", "with_body", "Whether to print bodies.", type=bool, default=False),
    Option("f", "calculate", "by_tag", "Count messages by tag.", type=bool, default=False),
)
async def print_msg_by_queue(
    admin: Admin,
    topic: str,
    broker: str,
    queue_id: int,
    charset: str,
    tags: str,
    begin: str | None,
    end: str | None,
    with_messages: bool,
    with_body: bool,
    by_tag: bool,
) -> None:
    """Print or count the messages of one queue, without consuming them."""
    queue = _queue(topic, broker, queue_id)
    scan = admin.queues.scan(
        topic, begin=optional_moment(begin), end=optional_moment(end), expression=tags, queues=[queue]
    )
    counts: dict[str, int] = {}
    async with aclosing(scan) as messages:
        async for message in messages:
            counts[message.tags or ""] = counts.get(message.tags or "", 0) + 1
            if with_messages:
                print_message(message, charset if with_body else None)
    for tag, count in sorted(counts.items(), key=lambda pair: -pair[1]) if by_tag else ():
        click.echo(f"Tag: {tag:<30} Count: {count}")


# --- shared with the commands that send and consume -----------------------------------------------------------------


async def print_all(scan: AsyncGenerator[Received, None], charset: str | None, limit: int | None = None) -> int:
    """How many there were."""
    count = 0
    async with aclosing(scan) as messages:
        async for message in messages:
            if count == limit:
                click.echo(f"stopped after {limit} messages: there are more", err=True)
                break
            print_message(message, charset)
            count += 1
    return count


def print_message(message: Received, charset: str | None) -> None:
    """A line for each; without a charset, without its body."""
    body = "NOT PRINT BODY" if charset is None else _text(message.body, charset)
    click.echo(
        f"MSGID: {message.message_id} queueId={message.queue.queue_id} queueOffset={message.queue_offset} "
        f"storeTime={time_text(message.store_timestamp_ms)} properties={message.properties} BODY: {body}"
    )


def _text(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset)
    except UnicodeDecodeError:
        return f"base64:{body_text(body)[0]}"
    except LookupError:
        raise click.UsageError(f"{charset} is no charset that is known", click.get_current_context()) from None


def _queue(topic: str, broker: str, queue_id: int) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker, queue_id=queue_id)


def _print_places(found: FoundMessages) -> None:
    print_columns(
        [("Message ID", 50), ("QID", 4), ("Offset", 12)],
        [(one.message_id, one.queue.queue_id, one.queue_offset) for one in found.messages],
    )


def _end(found: FoundMessages, none: str) -> int:
    if not found.messages and found.is_complete:
        raise ClientError(none)
    if found.is_cut:
        click.echo("there may be more messages than a broker tells at a time", err=True)
    return tell_missing(found.failures)


async def _hand_over(admin: Admin, message: Received, group: str, client: str) -> int:
    row, is_ok = await hand_over(admin, message, group, client)
    click.echo(", ".join(f"{name}={value}" for name, value in row.items()))
    return 0 if is_ok else 1


async def _print_whole(admin: Admin, message: Received) -> None:
    pairs = {
        "OffsetID": message.offset_message_id,
        "Topic": message.queue.topic,
        "Tags": f"[{message.tags}]",
        "Keys": f"[{' '.join(message.keys)}]",
        "Queue ID": message.queue.queue_id,
        "Queue Offset": message.queue_offset,
        "CommitLog Offset": message.physical_offset,
        "Reconsume Times": message.reconsume_times,
        "Born Timestamp": time_text(message.born_timestamp_ms),
        "Store Timestamp": time_text(message.store_timestamp_ms),
        "Born Host": message.born_host,
        "Store Host": message.store_host,
        "System Flag": message.sys_flag,
        "Properties": message.properties,
        "Message Body": _text(message.body, "utf-8"),
    }
    for name, value in pairs.items():
        click.echo(f"{name + ':':<20} {value}")
    click.echo("")
    for track in await admin.messages.tracks(message):
        click.echo(f"MessageTrack [consumerGroup={track.group}, trackType={track.state}]")
