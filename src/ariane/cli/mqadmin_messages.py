"""mqadmin's commands that find stored messages and show them."""

import click
import msgspec

from ariane.cli.asking import tell_missing
from ariane.cli.message_search import queue_named
from ariane.cli.mqadmin_bodies import write_body
from ariane.cli.mqadmin_prints import body_in
from ariane.cli.mqadmin_shape import TOPIC, Option, apache, print_json, print_table
from ariane.cli.mqadmin_words import day_and_millisecond, java, java_map, sent_words, track_words
from ariane.client.admin import Admin
from ariane.client.admin.messages import FoundMessages
from ariane.client.queue_ends import readable_queues
from ariane.client.received import Received
from ariane.errors import ClientError
from ariane.model.message import Property
from ariane.model.route import MessageQueue
from ariane.wire.requests.connections import ConsumeOutcome
from ariane.wire.requests.messages import ConsumeQueueEntry

_ID = Option("i", "msgId", "message_id", "The message's id.", example="7F0000010E6C4F6B5E2D1A3B00000000")
_TO_GROUP = Option("g", "consumerGroup", "group", "With -d: hand it to a member of this group.")
_CLIENT = Option("d", "clientId", "client", "The member that it is handed to.")
_RULE = "=" * 38


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
            click.echo(f"prepare resend msg. originalMsgId={one}", nl=False)
            click.echo(sent_words(await admin.messages.resend(message)))
        elif group and client:
            status |= await _hand_over(admin, message, group, client)
        else:
            await _print_whole(admin, message)
    return status


@apache("queryMsgByKey", TOPIC, Option("k", "msgKey", "key", "The key.", example="order-1001"))
async def query_by_key(admin: Admin, topic: str, key: str) -> int:
    """Show the ids and places of messages with a key."""
    found = await admin.messages.by_key(topic, key)
    status = _end(found, f"no message of {topic} has the key {key}")
    print_table(
        "%-50s %4s %40s",
        ["Message ID", "QID", "Offset"],
        [(one.message_id, one.queue.queue_id, one.queue_offset) for one in found.messages],
    )
    return status


@apache("queryMsgByUniqueKey", TOPIC, _ID, _TO_GROUP, _CLIENT)
async def query_by_unique_key(admin: Admin, topic: str, message_id: str, group: str | None, client: str | None) -> int:
    """Show the message with an id that its producer gave it."""
    found = await admin.messages.by_unique_key(topic, message_id)
    status = _end(found, f"there is no message {message_id} in {topic}")
    if group and client:
        return await _hand_over(admin, found.messages[-1], group, client) or status
    if len(found.messages) > 1:
        more = f"{len(found.messages)} messages have this id, and the first is shown"
        click.echo(f"{more}: `ariane msg find {topic} --key {message_id}` lists all", err=True)
    for message in found.messages[:1]:
        await _print_whole(admin, message, with_offset_id=False)
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
        click.echo("there may be more messages than a broker tells at a time", err=True)
    return tell_missing(found.failures)


async def _hand_over(admin: Admin, message: Received, group: str, client: str) -> int:
    told = await admin.messages.consume_directly(group, message, client_id=client)
    click.echo(
        f"ConsumeMessageDirectlyResult [order={java(told.order)}, autoCommit={java(told.auto_commit)}, "
        f"consumeResult={java(told.consume_result)}, remark={java(told.remark)}, "
        f"spentTimeMills={told.spent_time_mills}]"
    )
    return 0 if told.consume_result in (ConsumeOutcome.CR_SUCCESS, ConsumeOutcome.CR_COMMIT) else 1


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
