"""mqadmin's commands that send and consume."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

import click

from ariane.cli.message_search import queue_named
from ariane.cli.mqadmin_prints import print_message
from ariane.cli.mqadmin_shape import TOPIC, Option, apache, optional_moment, print_table
from ariane.cli.mqadmin_words import java, queue_words, sent_words
from ariane.client.admin import Admin
from ariane.client.producer import Producer
from ariane.client.queue_ends import readable_queues
from ariane.client.received import Received
from ariane.client.send_result import SendResult
from ariane.errors import ArianeError, ClientError
from ariane.model.route import MessageQueue

_GROUP = "TOOLS_PRODUCER"
_SENT = "%-32s  %-4s  %-20s    %s"


@apache(
    "sendMessage",
    TOPIC,
    Option("p", "body", "body", "The body.", example="hello"),
    Option("k", "key", "key", "A key."),
    Option("c", "tags", "tags", "The tag."),
    Option("b", "broker", "broker", "The broker's name."),
    Option("i", "qid", "queue_id", "With -b: the queue.", type=int),
)
async def send_message(
    admin: Admin, topic: str, body: str, key: str | None, tags: str | None, broker: str | None, queue_id: int | None
) -> int:
    """Send a message."""
    if queue_id is not None and broker is None:
        raise click.UsageError("-i needs -b, the broker's name", click.get_current_context())
    async with Producer(settings=admin.client_settings, group=_GROUP) as producer:
        queues = await producer.queues(topic)
        fitting = [one for one in queues if broker in (None, one.broker_name) and queue_id in (None, one.queue_id)]
        if not fitting:
            raise ClientError(f"broker {broker} has no queue {'' if queue_id is None else queue_id} of {topic}")
        queue = fitting[0] if broker is not None else None
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
    Option("b", "brokerName", "broker", "The broker's name."),
    Option("i", "queueId", "queue_id", "With -b: the queue.", type=int),
    Option("o", "offset", "offset", "With -i: the first offset.", type=int),
    Option("g", "consumerGroup", "group", "Has no effect: nobody's offsets move."),
    Option("s", "beginTimestamp", "begin", "Milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS."),
    Option("e", "endTimestamp", "end", "Milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS."),
    Option("c", "MessageNumber", "count", "At most so many.", type=click.IntRange(1), default=128),
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
    begin_ms, end_ms, left = optional_moment(begin), optional_moment(end), count
    first = offset if offset is not None and len(queues) == 1 else 0
    for queue in queues:
        scan = _at_least(admin.queues.scan(topic, begin=begin_ms, end=end_ms, queues=[queue]), first)
        left -= await _print_queue(scan, queue, ends[queue].max_offset, left)
        if not left:
            click.echo(f"stopped after {count} messages: there may be more", err=True)
            break


async def _print_queue(scan: AsyncGenerator[Received, None], queue: MessageQueue, end: int, limit: int) -> int:
    """How many there were, `limit` at most."""
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
    return [one for one in queues if broker in (None, one.broker_name)]


async def _at_least(scan: AsyncGenerator[Received, None], offset: int) -> AsyncGenerator[Received, None]:
    async with aclosing(scan) as messages:
        async for message in messages:
            if message.queue_offset >= offset:
                yield message


@apache(
    "checkMsgSendRT",
    TOPIC,
    Option("s", "size", "size", "Bytes of a message.", example="128", type=click.IntRange(0)),
    Option("a", "amount", "amount", "How many.", type=click.IntRange(1), default=100),
)
async def check_msg_send_rt(admin: Admin, topic: str, size: int, amount: int) -> int:
    """Send messages to a topic, one after the other, and tell how long each took. They stay in the topic."""
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
    counted = spent[1:] or spent  # the first opens the connection: Apache's tool leaves it out, too
    click.echo(f"Avg RT: {sum(counted) / len(counted):.2f}")
    return 0 if all(row[2] == "true" for row in rows) else 1


@apache(
    "sendMsgStatus",
    Option("b", "brokerName", "broker", "The broker's name.", example="broker-a"),
    Option("s", "messageSize", "size", "Bytes of a message.", type=click.IntRange(0), default=128),
    Option("c", "count", "count", "How many.", type=click.IntRange(1), default=50),
)
async def send_msg_status(admin: Admin, broker: str, size: int, count: int) -> int:
    """Send test messages to a broker, to the topic that has its name, and tell how long each took."""
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
    """Milliseconds. A send that failed is told, and has no result."""
    began = time.perf_counter()
    try:
        sent = await producer.send(queue.topic, b"a" * size, queue=queue)
    except ArianeError as error:
        click.echo(f"{queue.broker_name}:{queue.queue_id}: {error}", err=True)
        sent = None
    return sent, (time.perf_counter() - began) * 1000
