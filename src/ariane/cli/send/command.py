"""`ariane send`: sends messages from arguments, stdin and files."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import OutputFormat, output_option
from ariane.cli.common.parameters import TIME_FORMATS, name_value_pairs, time_or

if TYPE_CHECKING:
    from ariane.cli.send.run import SendSession

_STDIN = "-"
_TEMPLATE_OPTIONS = ("tags", "keys", "properties", "sharding_key", "delay_level", "deliver_at")


@click.command()
@click.argument("topic")
@click.argument("body", required=False, metavar="[BODY|-]")
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Send the content of a file as one message; can be repeated.",
)
@click.option("--lines", is_flag=True, help="Send each line of the files as one message.")
@click.option(
    "--jsonl", is_flag=True, help="Lines are JSON objects with body, tags, keys, ... as `tail -o jsonl` prints."
)
@click.option("-t", "--tags", metavar="TAG", help="Tag, by which consumers can filter.")
@click.option("-k", "--keys", multiple=True, metavar="KEY", help="Key to find the message by; can be repeated.")
@click.option(
    "-p",
    "--property",
    "properties",
    multiple=True,
    callback=name_value_pairs,
    metavar="NAME=VALUE",
    help="Property of the message; can be repeated.",
)
@click.option("--sharding-key", metavar="KEY", help="Messages with the same key go to the same queue, in order.")
@click.option(
    "--delay", "delay_level", type=click.IntRange(0), default=0, metavar="LEVEL", help="Delay level; 1: 1s, 2: 5s, ..."
)
@click.option(
    "--deliver-at", metavar="TIME", callback=time_or(), help=f"Do not deliver before this time: {TIME_FORMATS}."
)
@click.option("--queue", metavar="[BROKER:]ID", help="Send to this queue; by default to each in turn.")
@click.option(
    "--count",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Send it this many times; {n} becomes the number.",
)
@click.option("--rate", type=click.FloatRange(0.001, 1_000_000), metavar="N", help="Send at most N messages a second.")
@click.option(
    "--transaction",
    "outcome",
    type=click.Choice(["commit", "rollback"]),
    help="Send in transactions, and end them like this.",
)
@click.option("--oneway", is_flag=True, help="Do not wait for the broker's response.")
@click.option("--group", default="ariane-cli", show_default=True, help="Producer group.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0.01, 3600),
    default=3.0,
    show_default=True,
    help="Timeout of a send in seconds.",
)
@connected
@output_option()
def send(
    topic: str,
    body: str | None,
    files: tuple[Path, ...],
    lines: bool,
    output: OutputFormat,
    connection: Connection,
    **options: Any,
) -> None:
    """Send messages: BODY, each line of stdin (-), or files.

    Prints the id, queue and offset of each message; a table of more than 20 messages has one line for each queue.

    Exits with 0 if all messages are stored, 1 if some are stored but not yet safe on disk or on a replica, 2 if a
    message is invalid, 3 if no broker could be reached, 4 if a broker refused a message.

    \b
    Examples:
      ariane send orders '{"id": 17}' -t paid -k order-17
      cat events.txt | ariane send events -
      ariane send reminders 'call back' --deliver-at +10m
      ariane send load 'message {n}' --count 10000 --rate 500
      ariane tail orders --from earliest --exit-at-end -o jsonl | ariane send copy - --jsonl
    """
    _check(body, files, lines, options)
    session = _session(topic, body, files, lines, options)
    _run(session, connection, output)


def _check(body: str | None, files: tuple[Path, ...], lines: bool, options: dict[str, Any]) -> None:
    by_line = body == _STDIN or lines or options["jsonl"]
    problems = {
        "nothing to send: give a BODY, - for stdin, or --file": body is None and not files,
        "--lines needs --file; stdin (-) is always read line by line": lines and not files,
        "--jsonl needs lines: use - for stdin, or --file": options["jsonl"] and body not in (None, _STDIN),
        "--count repeats a BODY or whole files, not lines": options["count"] > 1 and by_line,
        "--oneway and --transaction exclude each other": options["oneway"] and options["outcome"],
    }
    for problem, is_present in problems.items():
        if is_present:
            raise click.UsageError(problem, click.get_current_context())


def _session(
    topic: str, body: str | None, files: tuple[Path, ...], lines: bool, options: dict[str, Any]
) -> "SendSession":
    from ariane.cli.send.input import MessageSource, MessageTemplate
    from ariane.cli.send.run import SendSession

    template = MessageTemplate(topic=topic, **{name: options.pop(name) for name in _TEMPLATE_OPTIONS})
    by_line = lines or options["jsonl"]
    bodies = [] if body is None or body == _STDIN else [body.encode("utf-8", "surrogateescape")]
    whole = [] if by_line else [file.read_bytes() for file in files]
    stdin = [sys.stdin.fileno()] if body == _STDIN else []
    source = MessageSource(
        template=template,
        bodies=(*bodies, *whole),
        files=(*stdin, *(files if by_line else ())),
        is_json=options.pop("jsonl"),
        count=options.pop("count"),
    )
    return SendSession(source=source, **options)


def _run(session: "SendSession", connection: Connection, output: OutputFormat) -> None:
    from ariane.cli.common.output import late_progress
    from ariane.cli.send.run import Results, reason_of

    results = Results(output)
    try:
        with late_progress(
            "sending", session.source.total, rows_scroll_by=output in (OutputFormat.JSONL, OutputFormat.CSV)
        ) as progress:
            connection.run(lambda settings: session.run(settings, results, progress))
    except Exception as error:
        raise reason_of(error) from error
    finally:
        if results.count or output is OutputFormat.JSON:
            results.finish()
    if not results.count and not session.oneway:
        click.echo("nothing was sent: the input is empty", err=True)
    results.check()
