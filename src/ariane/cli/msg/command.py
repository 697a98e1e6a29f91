"""`ariane msg get|find|trace|resend`. `ariane msg explain` is in msg/explain.py."""

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click

from ariane.cli.common.admin import report_missing, run_admin
from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import OutputFormat, Row, output_option, render
from ariane.cli.common.parameters import TIME_FORMATS, queue_named, time_or
from ariane.cli.tail.output import row_of, table_row
from ariane.cli.tree import msg
from ariane.client.admin import Admin
from ariane.client.admin.messages import FoundMessages
from ariane.client.admin.requests import Failure
from ariane.client.admin.traces import MessageTrace
from ariane.client.consumer.message import Received
from ariane.client.consumer.subscriptions import ALL, matches, subscription_of
from ariane.client.core.queue_bounds import readable_queues
from ariane.client.producer.result import SendResult
from ariane.client.producer.tracing import TRACE_TOPIC
from ariane.errors import ClientError, NoRoute, RecordError
from ariane.model.ids import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ariane.store.offline.annotate import time_text
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.requests.clients import ConsumeOutcome

# --- rows of messages and traces, for `ariane msg` and `ariane dlq` ---

MESSAGE_COLUMNS = ("storeTime", "queue", "queueOffset", "tags", "keys", "msgId", "text")


def show_messages(messages: Sequence[Received], output: OutputFormat) -> None:
    """A table has one line for each message; the other formats have all fields."""
    rows = map(row_of, messages)
    render(map(table_row, rows) if output is OutputFormat.TABLE else rows, output, MESSAGE_COLUMNS)


def show_whole(messages: Sequence[Received], output: OutputFormat) -> None:
    """All fields. As a table: one table for each message, one line for each field, never truncated."""
    rows = map(full_row, messages)
    if output is not OutputFormat.TABLE:
        render(rows, output)
        return
    for row in rows:
        render([{"field": name, "value": value} for name, value in row.items()], output, truncate=False)


def full_row(message: Received) -> dict[str, object]:
    return row_of(message) | {
        "queueTopic": message.queue.topic,
        "bornTime": time_text(message.born_timestamp_ms),
        "bornHost": str(message.born_host),
        "storeHost": str(message.store_host),
        "physicalOffset": message.physical_offset,
        "storedSize": message.stored_size,
        "sysFlag": message.sys_flag,
        "bodyCrc": message.body_crc,
    }


def sent_row(original: Received, result: SendResult) -> Row:
    return {
        "msgId": original.message_id,
        "newMsgId": result.message_id,
        "sendStatus": str(result.status),
        "topic": result.queue.topic,
        "brokerName": result.queue.broker_name,
        "queueId": result.queue.queue_id,
        "queueOffset": result.queue_offset,
    }


def trace_rows(trace: MessageTrace) -> Iterable[Row]:
    """In the order of events."""
    return sorted(_trace_rows(trace), key=lambda row: str(row["time"]))


def _trace_rows(trace: MessageTrace) -> Iterable[Row]:
    for sent in trace.published:
        yield _event(
            "sent", sent.timestamp_ms, sent.group, sent.success, sent.cost_ms, f"{sent.topic} at {sent.store_host}"
        )
    for read in trace.consumed:
        detail = None if read.retries is None else f"attempt {read.retries + 1}"
        yield _event("consumed", read.began_ms, read.group, read.success, read.cost_ms, detail)
    for end in trace.transactions:
        yield _event("transaction ended", end.timestamp_ms, end.group, None, None, end.state)


def _event(
    event: str, at_ms: int | None, group: str | None, success: bool | None, cost_ms: int | None, detail: str | None
) -> Row:
    """What a client did not report is None: if it died, the result of its attempt is unknown."""
    return {
        "event": event,
        "time": None if at_ms is None else time_text(at_ms),
        "group": group,
        "success": success,
        "costMs": cost_ms,
        "detail": detail,
    }


# --- search by message id (of either kind), key, queue offset or time ---


@dataclass(slots=True)
class Search:
    """The messages found, and everything that makes the result incomplete."""

    messages: list[Received]
    is_cut: bool = False
    failures: tuple[Failure, ...] = ()
    scanned: int | None = None
    """Number of messages scanned; None for a search by index."""
    total: int = 0

    @property
    def note(self) -> str | None:
        if not self.is_cut:
            return None
        if self.scanned is None:
            return f"stopped at --limit: {len(self.messages)} messages shown, there may be more"
        return f"scanned {self.scanned:,} of {self.total:,} messages, stopped at --limit"


async def by_any_id(admin: Admin, message_id: str, topic: str | None) -> Search:
    """Both kinds of id look alike. It is a broker's id if it contains the address of a broker, else a producer's."""
    if topic is None and await _has_broker_address(admin, message_id):
        return Search([await admin.messages.by_id(message_id)])
    found = await _in_topics(admin, message_id, [topic] if topic else await _topics_to_search(admin), is_key=False)
    if not found.messages and not found.failures:
        where = f"in topic {topic}" if topic else "in any topic, and no broker has the address in it"
        raise ClientError(f"no message with id {message_id} {where}: it may have expired")
    return found


async def by_id_or_key(admin: Admin, text: str, topic: str | None, limit: int) -> Search:
    """Tries each kind of search in turn, until one finds something."""
    if topic is None and await _has_broker_address(admin, text):
        return Search([await admin.messages.by_id(text)])
    topics = [topic] if topic else await _topics_to_search(admin)
    found = await _in_topics(admin, text, topics, is_key=True)
    if not found.messages and not found.failures:
        where = f"topic {topic}" if topic else "any topic"
        raise ClientError(f"no message in {where} has the id or key {text}: it may have expired")
    return Search(found.messages[:limit], found.is_cut or len(found.messages) > limit, found.failures)


async def by_key(admin: Admin, topic: str, key: str, begin: int | None, end: int | None, limit: int) -> Search:
    found = await admin.messages.by_key(topic, key, begin=begin, end=end, count=limit)
    is_cut = found.is_cut or len(found.messages) > limit
    return Search(list(found.messages[:limit]), is_cut, found.failures)


async def by_offset(admin: Admin, topic: str, queue_name: str, offset: int) -> Search:
    queue = queue_named(queue_name, readable_queues(topic, await admin.topics.route(topic)))
    message = await admin.messages.by_offset(queue, offset)
    if message is None:
        stats = (await admin.topics.stats(topic)).by_queue()[queue]
        raise ClientError(
            f"queue {queue_name} of {topic} has no message at offset {offset}: its offsets go from {stats.min_offset} "
            f"to {stats.max_offset} (exclusive)"
        )
    return Search([message])


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Scans the messages of a topic that were stored between two times."""

    topic: str
    begin: int | None = None
    end: int | None = None
    tags: str | None = None
    text: str | None = None
    limit: int = 20

    async def run(self, admin: Admin) -> Search:
        subscription = subscription_of(self.topic, self.tags or ALL)
        found = Search([], scanned=0, total=await self._total(admin))
        scanned = 0
        async for message in admin.queues.scan(self.topic, begin=self.begin, end=self.end):
            if len(found.messages) == self.limit:
                found.is_cut = True
                break
            scanned += 1
            if matches(subscription, message) and self._has_text(message):
                found.messages.append(message)
        found.scanned = scanned
        return found

    def _has_text(self, message: Received) -> bool:
        return self.text is None or self.text.encode() in message.body

    async def _total(self, admin: Admin) -> int:
        ends = (await admin.topics.stats(self.topic)).by_queue()
        begins = {queue: stats.min_offset for queue, stats in ends.items()}
        if self.begin is not None:
            begins = await admin.queues.at_time(self.topic, self.begin)
        until = {queue: stats.max_offset for queue, stats in ends.items()}
        if self.end is not None and self.end < time.time_ns() // 1_000_000:
            until = await admin.queues.at_time(self.topic, self.end)
        return sum(max(0, until[queue] - begins[queue]) for queue in ends)


async def _has_broker_address(admin: Admin, message_id: str) -> bool:
    try:
        address = str(decode_offset_message_id(message_id).store_host)
    except RecordError:
        return False
    return address in {broker.address for broker in await admin.cluster.brokers()}


async def _topics_to_search(admin: Admin) -> list[str]:
    """Without retry and dead letter topics: their messages are copies."""
    system = set(await admin.topics.system_names())
    names = await admin.topics.names()
    return [name for name in names if name not in system and not name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))]


async def _in_topics(admin: Admin, text: str, topics: list[str], *, is_key: bool) -> Search:
    found = Search([])
    for topic in topics:
        result = await _in_topic(admin, text, topic, is_key=is_key, is_only=len(topics) == 1)
        found.messages += result.messages
        found.is_cut |= result.is_cut
        found.failures += result.failures
    return found


async def _in_topic(admin: Admin, text: str, topic: str, *, is_key: bool, is_only: bool) -> FoundMessages:
    try:
        result = await admin.messages.by_unique_key(topic, text)
        return result if result.messages or not is_key else await admin.messages.by_key(topic, text)
    except NoRoute:
        if is_only:
            raise
        return FoundMessages(messages=())  # deleted since the topics were listed


# --- commands ---

_TOPIC = click.option("-t", "--topic", metavar="TOPIC", help="Search this topic only; by default all topics.")


@msg.command("get", short_help="Show one message, by its id.")
@click.argument("message_id", metavar="ID")
@_TOPIC
@click.option("--body", "only_body", is_flag=True, help="Print only the body, byte for byte.")
@connected
@output_option()
def get(message_id: str, topic: str | None, only_body: bool, connection: Connection, output: OutputFormat) -> int:
    """Show one message, by the id that its producer or its broker assigned.

    \b
    Examples:
      ariane msg get 7F0000010E6C4F6B5E2D1A3B00000000
      ariane msg get 7F0000010E6C4F6B5E2D1A3B00000000 --topic orders --body > order.json
    """
    found = run_admin(connection, lambda admin: by_any_id(admin, message_id, topic))
    if only_body:
        sys.stdout.buffer.write(_newest(found).body)
    else:
        show_whole(found.messages, output)
    return report_missing(found.failures)


@msg.command("find", short_help="Find messages of a topic by key, offset, time or text.")
@click.argument("topic")
@click.option("-k", "--key", metavar="KEY", help="Key or message id assigned by the producer.")
@click.option("--queue", metavar="[BROKER:]ID", help="With --offset: the queue of the message.")
@click.option("--offset", type=click.IntRange(0), help="The offset in --queue.")
@click.option(
    "--from", "begin", metavar="TIME", callback=time_or(), help=f"Stored at this time or later: {TIME_FORMATS}."
)
@click.option("--until", "end", metavar="TIME", callback=time_or(), help="Stored before this time.")
@click.option("--tags", metavar="'A || B'", help="With one of these tags.")
@click.option("--contains", "text", metavar="TEXT", help="With this text in its body.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Show at most this many.")
@connected
@output_option()
def find(
    topic: str,
    key: str | None,
    queue: str | None,
    offset: int | None,
    begin: int | None,
    end: int | None,
    tags: str | None,
    text: str | None,
    limit: int,
    connection: Connection,
    output: OutputFormat,
) -> int:
    """Find messages of a topic: by key, by queue offset, or by scanning all that were stored in a period of time.

    Exits with 1 if there are none. Reports what was not scanned.

    \b
    Examples:
      ariane msg find orders --key order-1001
      ariane msg find orders --from -1h --tags 'paid || shipped' --limit 100 -o jsonl
      ariane msg find orders --contains '"customer": 17' --from 2026-03-01T09:00 --until 2026-03-01T10:00
      ariane msg find orders --queue broker-a:2 --offset 1200
    """
    if (queue is None) != (offset is None) or (key is not None and (queue or tags or text)):
        problem = "use either --key, or --queue with --offset, or the other conditions"
        raise click.UsageError(problem, click.get_current_context())

    async def work(admin: Admin) -> Search:
        if key is not None:
            return await by_key(admin, topic, key, begin, end, limit)
        if queue is not None and offset is not None:
            return await by_offset(admin, topic, queue, offset)
        return await Scan(topic=topic, begin=begin, end=end, tags=tags, text=text, limit=limit).run(admin)

    found = run_admin(connection, work)
    show_messages(found.messages, output)
    if not found.messages and not found.failures:
        scanned = "" if found.scanned is None else f": scanned {found.scanned:,} of {found.total:,} messages"
        raise ClientError(f"no message of {topic} matches{scanned}")
    if found.note is not None:
        click.echo(found.note, err=True)
    return report_missing(found.failures)


@msg.command("trace", short_help="Show the trace of a message: sends and consumptions.")
@click.argument("message_id", metavar="ID")
@click.option("--trace-topic", default=TRACE_TOPIC, show_default=True, help="Topic to which clients write traces.")
@connected
@output_option()
def trace(message_id: str, trace_topic: str, connection: Connection, output: OutputFormat) -> int:
    """Show the trace of a message: when it was sent, and each attempt to consume it.

    Only clients with tracing enabled report this. ID is the id that the producer assigned. Exits with 1 if there is no
    trace; `msg explain` does not need one.

    \b
    Examples:
      ariane msg trace 7F0000010E6C4F6B5E2D1A3B00000000
      ariane msg trace 7F0000010E6C4F6B5E2D1A3B00000000 -o json
    """
    found = run_admin(connection, lambda admin: admin.messages.trace(message_id, topic=trace_topic))
    rows = list(trace_rows(found))
    render(rows, output)
    if found.unreadable:
        click.echo(f"incomplete: {found.unreadable} trace records cannot be decoded", err=True)
    if found.is_cut:
        click.echo("incomplete: there may be more trace records than one query returns", err=True)
    if not rows and not found.failures:
        raise ClientError(f"message {message_id} has no trace: try `ariane msg explain {message_id}`")
    return report_missing(found.failures)


@msg.command("resend", short_help="Send a copy, or deliver it to a member of a group.")
@click.argument("message_id", metavar="ID")
@_TOPIC
@click.option("--to", "target", metavar="TOPIC", help="Send the copy to another topic.")
@click.option(
    "--to-group", "group", metavar="GROUP", help="Deliver it to a member of this group now, instead of sending a copy."
)
@click.option("--client", metavar="CLIENT_ID", help="With --to-group: to this member.")
@connected
@output_option()
def resend(
    message_id: str,
    topic: str | None,
    target: str | None,
    group: str | None,
    client: str | None,
    connection: Connection,
    output: OutputFormat,
) -> int:
    """Send a copy of a message to its topic, so to all groups of the topic. The copy is a new message with a new id.

    With --to-group no copy is sent: one member of the group consumes the message now, and its result is shown.

    \b
    Examples:
      ariane msg resend 7F0000010E6C4F6B5E2D1A3B00000000
      ariane msg resend 7F0000010E6C4F6B5E2D1A3B00000000 --to orders-replayed
      ariane msg resend 7F0000010E6C4F6B5E2D1A3B00000000 --to-group billing
    """
    if group is not None and target is not None:
        raise click.UsageError("--to and --to-group exclude each other", click.get_current_context())

    async def work(admin: Admin) -> tuple[dict[str, object], bool]:
        message = _newest(await by_any_id(admin, message_id, topic))
        if group is None:
            return dict(sent_row(message, await admin.messages.resend(message, topic=target))), True
        return await deliver_to_member(admin, message, group, client)

    row, is_ok = run_admin(connection, work)
    render([row], output)
    return 0 if is_ok else 1


async def deliver_to_member(
    admin: Admin, message: Received, group: str, client: str | None = None
) -> tuple[dict[str, object], bool]:
    """The member's response, and whether it has consumed the message."""
    response = await admin.messages.consume_directly(group, message, client_id=client)
    row: dict[str, object] = {
        "msgId": message.message_id,
        "group": group,
        "consumeResult": response.consume_result,
        "costMs": response.spent_time_mills,
        "remark": response.remark,
    }
    return row, response.consume_result in (ConsumeOutcome.CR_SUCCESS, ConsumeOutcome.CR_COMMIT)


def _newest(found: Search) -> Received:
    if not found.messages:
        raise found.failures[0].error
    return found.messages[-1]
