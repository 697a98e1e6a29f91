"""mqadmin's commands that send and consume."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import click

from ariane.cli.message_search import queue_named
from ariane.cli.mqadmin_messages import print_all
from ariane.cli.mqadmin_shape import TOPIC, Option, apache, optional_moment, print_columns
from ariane.client.admin import Admin
from ariane.client.producer import Producer
from ariane.client.queue_ends import readable_queues
from ariane.client.received import Received
from ariane.errors import ArianeError, ClientError
from ariane.model.route import MessageQueue

_GROUP = "TOOLS_PRODUCER"


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
    print_columns(
        [("Broker Name", 32), ("QID", 4), ("Send Result", 20), ("MsgId", 32)],
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
    if offset is not None and len(queues) == 1:
        await _from_offset(admin, queues[0], offset, count)
        return
    scan = admin.queues.scan(topic, begin=optional_moment(begin), end=optional_moment(end), queues=queues)
    await print_all(scan, "utf-8", count)


async def _queues(admin: Admin, topic: str, broker: str | None, queue_id: int | None) -> list[MessageQueue]:
    queues = readable_queues(topic, await admin.topics.route(topic))
    if queue_id is not None:
        return [queue_named(f"{broker}:{queue_id}" if broker else str(queue_id), queues)]
    return [one for one in queues if broker in (None, one.broker_name)]


async def _from_offset(admin: Admin, queue: MessageQueue, offset: int, count: int) -> None:
    await print_all(_at_least(admin.queues.scan(queue.topic, queues=[queue]), offset), "utf-8", count)


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
        return await _send_and_time(producer, await producer.queues(topic), amount, size)


@apache(
    "sendMsgStatus",
    Option("b", "brokerName", "broker", "The broker's name.", example="broker-a"),
    Option("s", "messageSize", "size", "Bytes of a message.", type=click.IntRange(0), default=128),
    Option("c", "count", "count", "How many.", type=click.IntRange(1), default=50),
)
async def send_msg_status(admin: Admin, broker: str, size: int, count: int) -> int:
    """Send test messages to a broker, to the topic that has its name, and tell how long each took."""
    async with Producer(settings=admin.client_settings, group=_GROUP) as producer:
        return await _send_and_time(producer, await producer.queues(broker), count, size)


async def _send_and_time(producer: Producer, queues: Sequence[MessageQueue], count: int, size: int) -> int:
    rows, spent = [], []
    for number in range(count):
        queue = queues[number % len(queues)]
        began = time.perf_counter()
        try:
            is_ok = (await producer.send(queue.topic, b"a" * size, queue=queue)).is_ok
        except ArianeError as error:
            click.echo(f"{queue.broker_name}:{queue.queue_id}: {error}", err=True)
            is_ok = False
        spent.append((time.perf_counter() - began) * 1000)
        rows.append((queue.broker_name, queue.queue_id, str(is_ok).lower(), f"{spent[-1]:.2f}"))
    print_columns([("Broker Name", 32), ("QID", 4), ("Send Result", 20), ("RT", 10)], rows)
    click.echo(f"Avg RT: {sum(spent) / len(spent):.2f}")
    return 0 if all(row[2] == "true" for row in rows) else 1
