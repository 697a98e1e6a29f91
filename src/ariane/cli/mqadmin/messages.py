"""mqadmin's commands that print, query, send and consume messages, in Apache's output format."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

import click
import msgspec

from ariane.cli.common.admin import report_missing
from ariane.cli.common.parameters import queue_named
from ariane.cli.mqadmin.commands import TOPIC, Option, apache, optional_time, print_json, print_table
from ariane.cli.mqadmin.format import (
    day_and_millisecond,
    java,
    java_map,
    message_words,
    queue_words,
    sent_words,
    track_words,
    write_body,
)
from ariane.client.admin import Admin
from ariane.client.admin.messages import FoundMessages
from ariane.client.consumer.message import Received
from ariane.client.consumer.subscriptions import ALL
from ariane.client.core.queue_bounds import readable_queues
from ariane.client.producer.producer import Producer
from ariane.client.producer.result import SendResult
from ariane.errors import ArianeError, ClientError
from ariane.model.message import Property
from ariane.model.route import MessageQueue
from ariane.wire.requests.clients import ConsumeOutcome
from ariane.wire.requests.messages import ConsumeQueueEntry

# --- printing all messages of a topic or a queue ---

_BEGIN = Option("b", "beginTimestamp", "begin", "Milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS.")
_END = Option("e", "endTimestamp", "end", "Milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS.")
_TAGS = Option("s", "subExpression", "tags", "Only messages with one of these tags: a || b.", default=ALL)
_BODY = Option("d", "printBody", "with_body", "Print bodies.", type=bool, default=True)
_CHARSET = Option("c", "charsetName", "charset", "Character set of the bodies.", default="UTF-8")
_MESSAGE_RULE = "-" * 56


@apache("printMsg", TOPIC, _CHARSET, _TAGS, _BEGIN, _END, _BODY)
async def print_msg(
    admin: Admin, topic: str, charset: str, tags: str, begin: str | None, end: str | None, with_body: bool
) -> None:
    """Print the messages of a topic, queue after queue, without consuming them."""
    begin_ms, end_ms = optional_time(begin), optional_time(end)
    ends = await _ends(admin, topic, begin_ms, end_ms)
    for queue in readable_queues(topic, await admin.topics.route(topic)):
        first, last = ends[queue]
        click.echo(f"minOffset={first}, maxOffset={last}, {queue_words(queue)}")
        scan = admin.queues.scan(topic, begin=begin_ms, end=end_ms, expression=tags, queues=[queue])
        if not await _print_all(scan, charset if with_body else None) and first < last:
            click.echo(f"{queue_words(queue)} no matched msg. status=NO_MATCHED_MSG, offset={last}")
        click.echo(_MESSAGE_RULE)


async def _print_all(scan: AsyncGenerator[Received, None], charset: str | None) -> int:
    """Returns the number of messages."""
    count = 0
    async with aclosing(scan) as messages:
        async for message in messages:
            print_message(message, charset)
            count += 1
    return count


async def _ends(
    admin: Admin, topic: str, begin_ms: int | None, end_ms: int | None
) -> dict[MessageQueue, tuple[int, int]]:
    """For each queue the first offset and the one after the last, by time if one is given."""
    stats = (await admin.topics.stats(topic)).by_queue()
    first = {} if begin_ms is None else await admin.queues.at_time(topic, begin_ms)
    last = {} if end_ms is None else await admin.queues.at_time(topic, end_ms)
    return {
        queue: (first.get(queue, stat.min_offset), last.get(queue, stat.max_offset)) for queue, stat in stats.items()
    }


@apache(
    "printMsgByQueue",
    TOPIC,
    Option("a", "brokerName", "broker", "Name of the broker.", example="broker-a"),
    Option("i", "queueId", "queue_id", "Queue id.", example="0", type=int),
    _CHARSET,
    _TAGS,
    _BEGIN,
    _END,
    Option("p", "printMsg", "with_messages", "Print messages.", type=bool, default=False),
    Option("d", "printBody", "with_body", "Print bodies.", type=bool, default=False),
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
    queue = MessageQueue(topic=topic, broker_name=broker, queue_id=queue_id)
    scan = admin.queues.scan(topic, begin=optional_time(begin), end=optional_time(end), expression=tags, queues=[queue])
    counts: dict[str, int] = {}
    async with aclosing(scan) as messages:
        async for message in messages:
            counts[message.tags or ""] = counts.get(message.tags or "", 0) + 1
            if with_messages:
                print_message(message, charset if with_body else None)
    for tag, count in sorted(counts.items(), key=lambda pair: -pair[1]) if by_tag else ():
        click.echo(f"Tag: {tag:<30} Count: {count}")


def print_message(message: Received, charset: str | None) -> None:
    """One line; without the body if there is no charset."""
    body = "NOT PRINT BODY" if charset is None else body_in(message.body, charset)
    click.echo(f"MSGID: {message.message_id} {message_words(message)} BODY: {body}")


def body_in(body: bytes, charset: str) -> str:
    """Decoded as Java does: invalid bytes become the replacement character."""
    try:
        return body.decode(charset, errors="replace")
    except LookupError:
        raise click.UsageError(f"unknown character set {charset}", click.get_current_context()) from None


# --- queries ---

_ID = Option("i", "msgId", "message_id", "Message id.", example="7F0000010E6C4F6B5E2D1A3B00000000")
_TO_GROUP = Option("g", "consumerGroup", "group", "With -d: deliver it to a member of this group.")
_CLIENT = Option("d", "clientId", "client", "Member to deliver it to.")
_RULE = "=" * 38


@apache(
    "queryMsgById",
    _ID,
    _TO_GROUP,
    _CLIENT,
    Option("s", "sendMessage", "again", "Send a copy.", type=bool, default=False),
    Option("u", "unitName", "unit", "Ignored."),
)
async def query_by_id(
    admin: Admin, message_id: str, group: str | None, client: str | None, again: bool, unit: str | None
) -> int:
    """Show a message by the id that the broker assigned; several ids are separated by commas."""
    status = 0
    for id_ in filter(None, message_id.split(",")):
        message = await admin.messages.by_id(id_)
        if again:
            click.echo(f"prepare resend msg. originalMsgId={id_}", nl=False)
            click.echo(sent_words(await admin.messages.resend(message)))
        elif group and client:
            status |= await _deliver(admin, message, group, client)
        else:
            await _print_whole(admin, message)
    return status


@apache("queryMsgByKey", TOPIC, Option("k", "msgKey", "key", "Key.", example="order-1001"))
async def query_by_key(admin: Admin, topic: str, key: str) -> int:
    """Show the ids and offsets of messages with a key."""
    found = await admin.messages.by_key(topic, key)
    status = _end(found, f"no message of {topic} has the key {key}")
    print_table(
        "%-50s %4s %40s",
        ["Message ID", "QID", "Offset"],
        [(message.message_id, message.queue.queue_id, message.queue_offset) for message in found.messages],
    )
    return status


@apache("queryMsgByUniqueKey", TOPIC, _ID, _TO_GROUP, _CLIENT)
async def query_by_unique_key(admin: Admin, topic: str, message_id: str, group: str | None, client: str | None) -> int:
    """Show a message by the id that the producer assigned."""
    found = await admin.messages.by_unique_key(topic, message_id)
    status = _end(found, f"topic {topic} has no message with id {message_id}")
    if group and client:
        return await _deliver(admin, found.messages[-1], group, client) or status
    if len(found.messages) > 1:
        count = len(found.messages)
        hint = f"`ariane msg find {topic} --key {message_id}` lists all"
        click.echo(f"{count} messages have this id, only the first is shown: {hint}", err=True)
    for message in found.messages[:1]:
        await _print_whole(admin, message, with_offset_id=False)
    return status


@apache(
    "queryMsgByOffset",
    TOPIC,
    Option("b", "brokerName", "broker", "Name of the broker.", example="broker-a"),
    Option("i", "queueId", "queue_id", "Queue id.", example="0", type=int),
    Option("o", "offset", "offset", "Queue offset.", example="0", type=int),
)
async def query_by_offset(admin: Admin, topic: str, broker: str, queue_id: int, offset: int) -> None:
    """Show the message at an offset of a queue."""
    message = await admin.messages.by_offset(_queue(topic, broker, queue_id), offset)
    if message is None:
        raise ClientError(f"queue {queue_id} of {topic} on {broker} has no message at offset {offset}")
    await _print_whole(admin, message)


@apache(
    "queryCq",
    TOPIC,
    Option("q", "queue", "queue_id", "Queue id.", example="0", type=int),
    Option("i", "index", "index", "First entry.", example="0", type=int),
    Option("c", "count", "count", "Number of entries.", type=click.IntRange(1), default=10),
    Option("b", "broker", "broker", "Address or name of the broker."),
    Option("g", "consumer", "group", "Also evaluate this group's filter."),
)
async def query_cq(
    admin: Admin, topic: str, queue_id: int, index: int, count: int, broker: str | None, group: str | None
) -> None:
    """Show entries of a consume queue."""
    names = {target.address: target.name for target in await admin.cluster.brokers()}
    name = f"{names.get(broker, broker)}:{queue_id}" if broker else str(queue_id)
    queue = queue_named(name, readable_queues(topic, await admin.topics.route(topic)))
    page = await admin.queues.entries(queue, index, count, group=group)
    if page.subscription is not None:
        click.echo("Subscription data: ")
        print_json(msgspec.to_builtins(page.subscription))
        click.echo(_RULE)
    if page.note:
        click.echo(f"Filter data: \n{page.note}\n{_RULE}")
    click.echo(f"Queue data: \nmax: {page.max_offset}, min: {page.min_offset}\n{_RULE}")
    for number, entry in enumerate(page.entries, index):
        click.echo(f"idx: {number}\n{_entry_words(entry)}\n{_RULE}")


def _entry_words(entry: ConsumeQueueEntry) -> str:
    return (
        f"ConsumeQueueData{{physicOffset={entry.physic_offset}, physicSize={entry.physic_size}, "
        f"tagsCode={entry.tags_code}, extendDataJson='{java(entry.extend_data_json)}', bitMap='{java(entry.bit_map)}', "
        f"eval={java(entry.eval)}, msg='{java(entry.msg)}'}}"
    )


def _queue(topic: str, broker: str, queue_id: int) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker, queue_id=queue_id)


def _end(found: FoundMessages, none: str) -> int:
    if not found.messages and found.is_complete:
        raise ClientError(none)
    if found.is_cut:
        click.echo("there may be more messages than one query returns", err=True)
    return report_missing(found.failures)


async def _deliver(admin: Admin, message: Received, group: str, client: str) -> int:
    response = await admin.messages.consume_directly(group, message, client_id=client)
    click.echo(
        f"ConsumeMessageDirectlyResult [order={java(response.order)}, autoCommit={java(response.auto_commit)}, "
        f"consumeResult={java(response.consume_result)}, remark={java(response.remark)}, "
        f"spentTimeMills={response.spent_time_mills}]"
    )
    return 0 if response.consume_result in (ConsumeOutcome.CR_SUCCESS, ConsumeOutcome.CR_COMMIT) else 1


async def _print_whole(admin: Admin, message: Received, *, with_offset_id: bool = True) -> None:
    pairs = {
        **({"OffsetID": message.offset_message_id} if with_offset_id else {}),
        "Topic": message.queue.topic,
        "Tags": f"[{java(message.tags)}]",
        "Keys": f"[{java(message.properties.get(Property.KEYS))}]",
        "Queue ID": message.queue.queue_id,
        "Queue Offset": message.queue_offset,
        "CommitLog Offset": message.physical_offset,
        "Reconsume Times": message.reconsume_times,
        "Born Timestamp": day_and_millisecond(message.born_timestamp_ms),
        "Store Timestamp": day_and_millisecond(message.store_timestamp_ms),
        "Born Host": message.born_host,
        "Store Host": message.store_host,
        "System Flag": message.sys_flag,
        "Properties": java_map(message.properties),
        "Message Body Path": write_body(message),
        "Message Body": body_in(message.body, "utf-8"),
    }
    for name, value in pairs.items():
        click.echo(f"{name + ':':<20} {value}")
    tracks = await admin.messages.tracks(message)
    click.echo("\n" if tracks else "\n\nWARN: No Consumer")
    for track in tracks:
        click.echo(track_words(track))


# --- sending and consuming ---

_GROUP = "TOOLS_PRODUCER"
_SENT = "%-32s  %-4s  %-20s    %s"


@apache(
    "sendMessage",
    TOPIC,
    Option("p", "body", "body", "Message body.", example="hello"),
    Option("k", "key", "key", "Message key."),
    Option("c", "tags", "tags", "Message tag."),
    Option("b", "broker", "broker", "Name of the broker."),
    Option("i", "qid", "queue_id", "With -b: queue id.", type=int),
)
async def send_message(
    admin: Admin, topic: str, body: str, key: str | None, tags: str | None, broker: str | None, queue_id: int | None
) -> int:
    """Send a message."""
    if queue_id is not None and broker is None:
        raise click.UsageError("-i needs -b, the broker's name", click.get_current_context())
    async with Producer(settings=admin.client_settings, group=_GROUP) as producer:
        queues = await producer.queues(topic)
        matches = [
            queue for queue in queues if broker in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
        ]
        if not matches:
            raise ClientError(f"broker {broker} has no queue {'' if queue_id is None else queue_id} of {topic}")
        queue = matches[0] if broker is not None else None
        sent = await producer.send(topic, body.encode(), keys=[key] if key else (), tags=tags, queue=queue)
    print_table(
        _SENT,
        ["Broker Name", "QID", "Send Result", "MsgId"],
        [(sent.queue.broker_name, sent.queue.queue_id, sent.status, sent.message_id)],
    )
    return 0 if sent.is_ok else 1


@apache(
    "consumeMessage",
    TOPIC,
    Option("b", "brokerName", "broker", "Name of the broker."),
    Option("i", "queueId", "queue_id", "With -b: queue id.", type=int),
    Option("o", "offset", "offset", "With -i: first offset.", type=int),
    Option("g", "consumerGroup", "group", "Ignored: no offset moves."),
    Option("s", "beginTimestamp", "begin", "Milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS."),
    Option("e", "endTimestamp", "end", "Milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS."),
    Option("c", "MessageNumber", "count", "Maximum number of messages.", type=click.IntRange(1), default=128),
)
async def consume_message(
    admin: Admin,
    topic: str,
    broker: str | None,
    queue_id: int | None,
    offset: int | None,
    group: str | None,
    begin: str | None,
    end: str | None,
    count: int,
) -> None:
    """Print messages of a topic or a queue, without moving any group's offset."""
    queues = await _queues(admin, topic, broker, queue_id)
    ends = (await admin.topics.stats(topic)).by_queue()
    begin_ms, end_ms, left = optional_time(begin), optional_time(end), count
    first = offset if offset is not None and len(queues) == 1 else 0
    for queue in queues:
        scan = _at_least(admin.queues.scan(topic, begin=begin_ms, end=end_ms, queues=[queue]), first)
        left -= await _print_queue(scan, queue, ends[queue].max_offset, left)
        if not left:
            click.echo(f"stopped after {count} messages: there may be more", err=True)
            break


async def _print_queue(scan: AsyncGenerator[Received, None], queue: MessageQueue, end: int, limit: int) -> int:
    """Returns the number of messages, at most `limit`."""
    count = 0
    async with aclosing(scan) as messages:
        async for message in messages:
            if count == 0:
                click.echo("Consume ok")
            print_message(message, "utf-8")
            count += 1
            if count == limit:
                end = message.queue_offset + 1
                break
    click.echo(f"{queue_words(queue)} print msg finished. status=NO_NEW_MSG, offset={end}")
    return count


async def _queues(admin: Admin, topic: str, broker: str | None, queue_id: int | None) -> list[MessageQueue]:
    queues = readable_queues(topic, await admin.topics.route(topic))
    if queue_id is not None:
        return [queue_named(f"{broker}:{queue_id}" if broker else str(queue_id), queues)]
    return [queue for queue in queues if broker in (None, queue.broker_name)]


async def _at_least(scan: AsyncGenerator[Received, None], offset: int) -> AsyncGenerator[Received, None]:
    async with aclosing(scan) as messages:
        async for message in messages:
            if message.queue_offset >= offset:
                yield message


@apache(
    "checkMsgSendRT",
    TOPIC,
    Option("s", "size", "size", "Size of a message in bytes.", example="128", type=click.IntRange(0)),
    Option("a", "amount", "amount", "Number of entries.", type=click.IntRange(1), default=100),
)
async def check_msg_send_rt(admin: Admin, topic: str, size: int, amount: int) -> int:
    """Send messages to a topic, one after another, and show how long each took. They stay in the topic."""
    async with Producer(settings=admin.client_settings, group=_GROUP) as producer:
        queues = await producer.queues(topic)
        rows, spent = [], []
        for number in range(amount):
            queue = queues[number % len(queues)]
            sent, spent_ms = await _send_timed(producer, queue, size)
            is_ok = sent is not None and sent.is_ok
            rows.append((queue.broker_name, queue.queue_id, java(is_ok), f"{spent_ms:.0f}"))
            spent.append(spent_ms)
    print_table(_SENT, ["Broker Name", "QID", "Send Result", "RT"], rows)
    counted = spent[1:] or spent  # without the first, which opens the connection, as in Apache's tool
    click.echo(f"Avg RT: {sum(counted) / len(counted):.2f}")
    return 0 if all(row[2] == "true" for row in rows) else 1


@apache(
    "sendMsgStatus",
    Option("b", "brokerName", "broker", "Name of the broker.", example="broker-a"),
    Option("s", "messageSize", "size", "Size of a message in bytes.", type=click.IntRange(0), default=128),
    Option("c", "count", "count", "Number of messages.", type=click.IntRange(1), default=50),
)
async def send_msg_status(admin: Admin, broker: str, size: int, count: int) -> int:
    """Send test messages to a broker, to the topic with its name, and show how long each took."""
    async with Producer(settings=admin.client_settings, group=_GROUP) as producer:
        status = 0
        queues = await producer.queues(broker)
        for number in range(count):
            sent, spent_ms = await _send_timed(producer, queues[number % len(queues)], size)
            if sent is not None:
                click.echo(f"rt={spent_ms:.0f}ms, SendResult={sent_words(sent)}")
            status |= 0 if sent is not None and sent.is_ok else 1
        return status


async def _send_timed(producer: Producer, queue: MessageQueue, size: int) -> tuple[SendResult | None, float]:
    """The result and the time in milliseconds. A failed send is reported on stderr and has no result."""
    began = time.perf_counter()
    try:
        sent = await producer.send(queue.topic, b"a" * size, queue=queue)
    except ArianeError as error:
        click.echo(f"{queue.broker_name}:{queue.queue_id}: {error}", err=True)
        sent = None
    return sent, (time.perf_counter() - began) * 1000
