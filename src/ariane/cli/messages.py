"""`ariane msg get|find|trace|resend`. Why a message was consumed or not is told by explain.py."""

import sys

import click

from ariane.cli.asking import ask, tell_missing
from ariane.cli.connection import Connection, connected
from ariane.cli.message_rows import sent_row, show_messages, show_whole, trace_rows
from ariane.cli.message_search import Scan, Search, by_any_id, by_key, by_place
from ariane.cli.render import Form, output_option, render
from ariane.cli.tail_moments import FORMS, moment_or
from ariane.cli.tree import msg
from ariane.client.admin import Admin
from ariane.client.received import Received
from ariane.client.tracing import TRACE_TOPIC
from ariane.errors import ClientError
from ariane.wire.requests.connections import ConsumeOutcome

_TOPIC = click.option("-t", "--topic", metavar="TOPIC", help="Where to look; without it, in every topic.")


@msg.command("get", short_help="Show one message, by its id.")
@click.argument("message_id", metavar="ID")
@_TOPIC
@click.option("--body", "only_body", is_flag=True, help="Write the body, byte for byte, and nothing else.")
@connected
@output_option()
def get(message_id: str, topic: str | None, only_body: bool, connection: Connection, form: Form) -> int:
    """Show one message, by the id that its producer or its broker gave it.

    \b
    Examples:
      ariane msg get 7F0000010E6C4F6B5E2D1A3B00000000
      ariane msg get 7F0000010E6C4F6B5E2D1A3B00000000 --topic orders --body > order.json
    """
    found = ask(connection, lambda admin: by_any_id(admin, message_id, topic))
    if only_body:
        sys.stdout.buffer.write(_newest(found).body)
    else:
        show_whole(found.messages, form)
    return tell_missing(found.failures)


@msg.command("find", short_help="Find messages of a topic by key, place, time or text.")
@click.argument("topic")
@click.option("-k", "--key", metavar="KEY", help="A key, or an id, that its producer gave it.")
@click.option("--queue", metavar="[BROKER:]ID", help="With --offset: exactly this one.")
@click.option("--offset", type=click.IntRange(0), help="The offset in --queue.")
@click.option("--from", "begin", metavar="TIME", callback=moment_or(), help=f"Stored from then on: {FORMS}.")
@click.option("--until", "end", metavar="TIME", callback=moment_or(), help="Stored before then.")
@click.option("--tags", metavar="'A || B'", help="With one of these tags.")
@click.option("--contains", "text", metavar="TEXT", help="With this text in its body.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Show at most so many.")
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
    form: Form,
) -> int:
    """Find messages of a topic: by key, by place, or by looking at all that were stored in some time.

    Exits with 1 when there is none. Whatever was not looked at is told.

    \b
    Examples:
      ariane msg find orders --key order-1001
      ariane msg find orders --from -1h --tags 'paid || shipped' --limit 100 -o jsonl
      ariane msg find orders --contains '"customer": 17' --from 2026-03-01T09:00 --until 2026-03-01T10:00
      ariane msg find orders --queue broker-a:2 --offset 1200
    """
    if (queue is None) != (offset is None) or (key is not None and (queue or tags or text)):
        told = "one way to find: --key, or --queue with --offset, or the others"
        raise click.UsageError(told, click.get_current_context())

    async def work(admin: Admin) -> Search:
        if key is not None:
            return await by_key(admin, topic, key, begin, end, limit)
        if queue is not None and offset is not None:
            return await by_place(admin, topic, queue, offset)
        return await Scan(topic=topic, begin=begin, end=end, tags=tags, text=text, limit=limit).run(admin)

    found = ask(connection, work)
    show_messages(found.messages, form)
    if not found.messages and not found.failures:
        looked = "" if found.scanned is None else f": {found.scanned:,} of {found.total:,} were looked at"
        raise ClientError(f"no message of {topic} fits{looked}")
    if found.note is not None:
        click.echo(found.note, err=True)
    return tell_missing(found.failures)


@msg.command("trace", short_help="Show what clients that trace have told of a message.")
@click.argument("message_id", metavar="ID")
@click.option("--trace-topic", default=TRACE_TOPIC, show_default=True, help="Where clients file their traces.")
@connected
@output_option()
def trace(message_id: str, trace_topic: str, connection: Connection, form: Form) -> int:
    """Show what clients that trace have told of a message: when it was sent, and each attempt to consume it.

    ID is the id that its producer gave it. Without a trace the exit code is 1: `msg explain` needs none.

    \b
    Examples:
      ariane msg trace 7F0000010E6C4F6B5E2D1A3B00000000
      ariane msg trace 7F0000010E6C4F6B5E2D1A3B00000000 -o json
    """
    told = ask(connection, lambda admin: admin.messages.trace(message_id, topic=trace_topic))
    rows = list(trace_rows(told))
    render(rows, form)
    if told.unreadable:
        click.echo(f"incomplete: {told.unreadable} records of the trace cannot be read", err=True)
    if told.is_cut:
        click.echo("incomplete: there may be more records than a broker tells at a time", err=True)
    if not rows and not told.failures:
        raise ClientError(f"no client left a trace of {message_id}: see `ariane msg explain {message_id}`")
    return tell_missing(told.failures)


@msg.command("resend", short_help="Send a copy, or hand it to a member of a group.")
@click.argument("message_id", metavar="ID")
@_TOPIC
@click.option("--to", "target", metavar="TOPIC", help="Send the copy to another topic.")
@click.option("--to-group", "group", metavar="GROUP", help="Send nothing: hand it to a member of this group now.")
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
    form: Form,
) -> int:
    """Send a copy of a message, which is a new message with an id of its own, to all groups of its topic.

    With --to-group nothing is sent: one member of the group is handed the message, and its answer is told.

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
        return await hand_over(admin, message, group, client)

    row, is_ok = ask(connection, work)
    render([row], form)
    return 0 if is_ok else 1


async def hand_over(
    admin: Admin, message: Received, group: str, client: str | None = None
) -> tuple[dict[str, object], bool]:
    """The member's answer, and whether it has consumed the message."""
    told = await admin.messages.consume_directly(group, message, client_id=client)
    row: dict[str, object] = {
        "msgId": message.message_id,
        "group": group,
        "consumeResult": told.consume_result,
        "costMs": told.spent_time_mills,
        "remark": told.remark,
    }
    return row, told.consume_result in (ConsumeOutcome.CR_SUCCESS, ConsumeOutcome.CR_COMMIT)


def _newest(found: Search) -> Received:
    if not found.messages:
        raise found.failures[0].error
    return found.messages[-1]
