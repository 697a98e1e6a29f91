"""`ariane send`: messages from arguments, stdin and files."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import Form, output_option
from ariane.cli.common.parameters import FORMS, moment_or, name_value_pairs

if TYPE_CHECKING:
    from ariane.cli.send.run import SendSession

_STDIN = "-"
_SHAPING = ("tags", "keys", "properties", "sharding_key", "delay_level", "deliver_at")


@click.command()
@click.argument("topic")
@click.argument("body", required=False, metavar="[BODY|-]")
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Send a file's whole content as one message; may be repeated.",
)
@click.option("--lines", is_flag=True, help="Send each line of the files as a message.")
@click.option("--jsonl", is_flag=True, help="Lines are JSON objects with body, tags, keys, ... as `tail -o jsonl` has.")
@click.option("-t", "--tags", metavar="TAG", help="The tag that consumers can choose by.")
@click.option("-k", "--keys", multiple=True, metavar="KEY", help="A key to find the message by; may be repeated.")
@click.option(
    "-p",
    "--property",
    "properties",
    multiple=True,
    callback=name_value_pairs,
    metavar="NAME=VALUE",
    help="May be repeated.",
)
@click.option("--sharding-key", metavar="KEY", help="Messages with the same one go to the same queue, in order.")
@click.option("--delay", "delay_level", type=click.IntRange(0), default=0, metavar="LEVEL", help="1: 1s, 2: 5s, ...")
@click.option("--deliver-at", metavar="TIME", callback=moment_or(), help=f"Deliver not before this time: {FORMS}.")
@click.option("--queue", metavar="[BROKER:]ID", help="Send to this queue; without it to each in turn.")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="How often; {n} is the number.")
@click.option("--rate", type=click.FloatRange(0.001, 1_000_000), metavar="N", help="At most so many a second.")
@click.option(
    "--transaction", "outcome", type=click.Choice(["commit", "rollback"]), help="Send in transactions that end so."
)
@click.option("--oneway", is_flag=True, help="Do not wait to hear whether messages were stored.")
@click.option("--group", default="ariane-cli", show_default=True, help="The producer group.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0.01, 3600), default=3.0, show_default=True, help="Seconds."
)
@connected
@output_option()
def send(
    topic: str,
    body: str | None,
    files: tuple[Path, ...],
    lines: bool,
    form: Form,
    connection: Connection,
    **options: Any,
) -> None:
    """Send messages: BODY, each line of stdin (-), or files.

    Prints the id, queue and offset of each message; more than a few as a table are told by queue. Exits with 0 when
    everything is stored, 1 when it is stored but not as safely as it should be, 2 when a message can never be sent, 3
    when nobody could be reached, 4 when a broker refused.

    \b
    Examples:
      ariane send orders '{"id": 17}' -t paid -k order-17
      cat events.txt | ariane send events -
      ariane send reminders 'call back' --deliver-at +10m
      ariane send load 'message {n}' --count 10000 --rate 500
      ariane tail orders --from earliest --exit-at-end -o jsonl | ariane send copy - --jsonl
    """
    _check(body, files, lines, options)
    errand = _errand(topic, body, files, lines, options)
    _run(errand, connection, form)


def _check(body: str | None, files: tuple[Path, ...], lines: bool, options: dict[str, Any]) -> None:
    by_line = body == _STDIN or lines or options["jsonl"]
    faults = {
        "there is nothing to send: give a BODY, - for stdin, or --file": body is None and not files,
        "--lines is about --file; stdin (-) is always read by lines": lines and not files,
        "--jsonl is about lines: use - for stdin, or --file": options["jsonl"] and body not in (None, _STDIN),
        "--count repeats a BODY or whole files, not lines": options["count"] > 1 and by_line,
        "--oneway and --transaction exclude each other": options["oneway"] and options["outcome"],
    }
    for fault, is_there in faults.items():
        if is_there:
            raise click.UsageError(fault, click.get_current_context())


def _errand(
    topic: str, body: str | None, files: tuple[Path, ...], lines: bool, options: dict[str, Any]
) -> "SendSession":
    from ariane.cli.send.input import MessageSource, MessageTemplate
    from ariane.cli.send.run import SendSession

    shape = MessageTemplate(topic=topic, **{name: options.pop(name) for name in _SHAPING})
    by_line = lines or options["jsonl"]
    bodies = [] if body is None or body == _STDIN else [body.encode("utf-8", "surrogateescape")]
    whole = [] if by_line else [file.read_bytes() for file in files]
    stdin = [sys.stdin.fileno()] if body == _STDIN else []
    source = MessageSource(
        shape=shape,
        bodies=(*bodies, *whole),
        files=(*stdin, *(files if by_line else ())),
        is_json=options.pop("jsonl"),
        count=options.pop("count"),
    )
    return SendSession(source=source, **options)


def _run(errand: "SendSession", connection: Connection, form: Form) -> None:
    from ariane.cli.common.output import late_progress
    from ariane.cli.send.run import Results, reason_of

    results = Results(form)
    try:
        with late_progress("sending", errand.source.total, rows_scroll_by=form in (Form.JSONL, Form.CSV)) as progress:
            connection.run(lambda settings: errand.run(settings, results, progress))
    except Exception as error:
        raise reason_of(error) from error
    finally:
        if results.count or form is Form.JSON:
            results.finish()
    if not results.count and not errand.oneway:
        click.echo("nothing was sent: the input has no line with anything in it", err=True)
    results.check()
