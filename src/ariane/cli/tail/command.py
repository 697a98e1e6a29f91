"""`ariane tail`: shows the stored and the new messages of a topic."""

from typing import TYPE_CHECKING

import click

from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import OutputFormat, output_option
from ariane.cli.common.parameters import TIME_FORMATS, time_or

if TYPE_CHECKING:
    from ariane.cli.tail.run import TailSession


@click.command(short_help="Show the messages of a topic without consuming them.")
@click.argument("topic")
@click.option(
    "--from",
    "start",
    metavar="earliest|latest|TIME",
    default="latest",
    show_default=True,
    callback=time_or("earliest", "latest"),
    help=f"Where to begin. A time is {TIME_FORMATS}.",
)
@click.option(
    "--follow/--exit-at-end",
    "follow",
    default=True,
    help="Wait for new messages until Ctrl-C (default), or exit after the last stored message.",
)
@click.option("--limit", "--count", type=click.IntRange(1), metavar="N", help="Stop after N messages.")
@click.option("-t", "--tags", metavar="'A || B'", help="Only messages with one of these tags.")
@click.option("--sql", metavar="CONDITION", help="Only messages whose properties match, such as \"region = 'eu'\".")
@click.option("--format", "template", metavar="TEXT", help="Format of a line, such as '{queueOffset} {keys} {body}'.")
@connected
@output_option()
def tail(
    topic: str,
    start: int | str,
    follow: bool,
    limit: int | None,
    tags: str | None,
    sql: str | None,
    template: str | None,
    output: OutputFormat,
    connection: Connection,
) -> None:
    """Show the messages of a topic without consuming them: no group's offset moves.

    Stored messages are ordered by time over all queues; new ones are shown as they arrive. Bodies are shown as text, or
    as base64 if they are not UTF-8; `bodyEncoding` (in a table: `base64:`) says which. The fields of --format are those
    of `-o jsonl`, and {property.NAME}.

    \b
    Examples:
      ariane tail orders
      ariane tail orders --from earliest --exit-at-end -o jsonl
      ariane tail orders --from -15m --tags 'paid || shipped' --limit 20
      ariane tail orders --sql "amount > 100" --format '{storeTime} {keys} {body}'
    """
    from ariane.cli.tail.run import TailSession

    if tags is not None and sql is not None:
        raise click.UsageError("--tags and --sql exclude each other: in SQL a tag is TAGS", click.get_current_context())
    if template is not None and output is not OutputFormat.TABLE:
        raise click.UsageError("--format and -o exclude each other", click.get_current_context())
    session = TailSession(topic=topic, start=start, follow=follow, limit=limit, tags=tags, sql=sql)
    _run(session, connection, output, template)


def _run(session: "TailSession", connection: Connection, output: OutputFormat, template: str | None) -> None:
    from ariane.cli.tail.output import printing

    with printing(output, template) as show:
        left = connection.run(lambda settings: session.run(settings, show))
    if left is not None:
        click.echo(left, err=True)
