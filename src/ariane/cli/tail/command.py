"""`ariane tail`: the messages of a topic, those that are stored and those that come."""

from typing import TYPE_CHECKING

import click

from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import Form, output_option
from ariane.cli.common.parameters import FORMS, moment_or

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
    callback=moment_or("earliest", "latest"),
    help=f"Where to begin. A time is {FORMS}.",
)
@click.option(
    "--follow/--exit-at-end",
    "follow",
    default=True,
    help="Wait for more messages until Ctrl-C (default), or leave when all that is stored now was shown.",
)
@click.option("--limit", "--count", type=click.IntRange(1), metavar="N", help="Stop after so many messages.")
@click.option("-t", "--tags", metavar="'A || B'", help="Only messages with one of these tags.")
@click.option("--sql", metavar="CONDITION", help="Only messages whose properties fit, such as \"region = 'eu'\".")
@click.option("--format", "template", metavar="TEXT", help="A line of your own, such as '{queueOffset} {keys} {body}'.")
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
    form: Form,
    connection: Connection,
) -> None:
    """Show the messages of a topic without consuming them: no group's offset moves.

    What is stored comes by time over all queues, what arrives as it arrives. Bodies are shown as text, or in base64
    when they are not UTF-8; `bodyEncoding` (in a table: `base64:`) says which. Fields for --format are those of
    `-o jsonl`, and {property.NAME}.

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
    if template is not None and form is not Form.TABLE:
        raise click.UsageError("--format and -o exclude each other", click.get_current_context())
    session = TailSession(topic=topic, start=start, follow=follow, limit=limit, tags=tags, sql=sql)
    _run(session, connection, form, template)


def _run(session: "TailSession", connection: Connection, form: Form, template: str | None) -> None:
    from ariane.cli.tail.output import printing

    with printing(form, template) as show:
        left = connection.run(lambda settings: session.run(settings, show))
    if left is not None:
        click.echo(left, err=True)
