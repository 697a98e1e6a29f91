"""mqadmin's commands that print all messages of a topic or a queue, and what consumeMessage shares with them."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import click

from ariane.cli.mqadmin_shape import TOPIC, Option, apache, optional_moment
from ariane.cli.mqadmin_words import message_words, queue_words
from ariane.client.admin import Admin
from ariane.client.queue_ends import readable_queues
from ariane.client.received import Received
from ariane.client.subscriptions import ALL
from ariane.model.route import MessageQueue

_BEGIN = Option("b", "beginTimestamp", "begin", "Milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS.")
_END = Option("e", "endTimestamp", "end", "Milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS.")
_TAGS = Option("s", "subExpression", "tags", "Only messages with one of these tags: a || b.", default=ALL)
_BODY = Option("d", "printBody", "with_body", "Whether to print bodies.", type=bool, default=True)
_CHARSET = Option("c", "charsetName", "charset", "How bodies are written.", default="UTF-8")
_RULE = "-" * 56


@apache("printMsg", TOPIC, _CHARSET, _TAGS, _BEGIN, _END, _BODY)
async def print_msg(
    admin: Admin, topic: str, charset: str, tags: str, begin: str | None, end: str | None, with_body: bool
) -> None:
    """Print the messages of a topic, queue after queue, without consuming them."""
    begin_ms, end_ms = optional_moment(begin), optional_moment(end)
    ends = await _ends(admin, topic, begin_ms, end_ms)
    for queue in readable_queues(topic, await admin.topics.route(topic)):
        first, last = ends[queue]
        click.echo(f"minOffset={first}, maxOffset={last}, {queue_words(queue)}")
        scan = admin.queues.scan(topic, begin=begin_ms, end=end_ms, expression=tags, queues=[queue])
        if not await _print_all(scan, charset if with_body else None) and first < last:
            click.echo(f"{queue_words(queue)} no matched msg. status=NO_MATCHED_MSG, offset={last}")
        click.echo(_RULE)


async def _print_all(scan: AsyncGenerator[Received, None], charset: str | None) -> int:
    """How many there were."""
    count = 0
    async with aclosing(scan) as messages:
        async for message in messages:
            print_message(message, charset)
            count += 1
    return count


async def _ends(
    admin: Admin, topic: str, begin_ms: int | None, end_ms: int | None
) -> dict[MessageQueue, tuple[int, int]]:
    """Of each queue the first offset and the one behind the last, by time where one is given."""
    stats = (await admin.topics.stats(topic)).by_queue()
    first = {} if begin_ms is None else await admin.queues.at_time(topic, begin_ms)
    last = {} if end_ms is None else await admin.queues.at_time(topic, end_ms)
    return {queue: (first.get(queue, one.min_offset), last.get(queue, one.max_offset)) for queue, one in stats.items()}


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
    queue = MessageQueue(topic=topic, broker_name=broker, queue_id=queue_id)
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


def print_message(message: Received, charset: str | None) -> None:
    """A line for each; without a charset, without its body."""
    body = "NOT PRINT BODY" if charset is None else body_in(message.body, charset)
    click.echo(f"MSGID: {message.message_id} {message_words(message)} BODY: {body}")


def body_in(body: bytes, charset: str) -> str:
    """As Java reads it: what does not fit the charset becomes a question mark in a diamond."""
    try:
        return body.decode(charset, errors="replace")
    except LookupError:
        raise click.UsageError(f"{charset} is no charset that is known", click.get_current_context()) from None
