"""`ariane sql`: SQL queries over topics and store directories."""

import sys
from pathlib import Path
from typing import TextIO

import click

from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import OutputFormat, output_option
from ariane.cli.common.parameters import TIME_FORMATS, time_or

_TIME = time_or()


@click.command()
@click.argument("query", required=False, metavar="QUERY|-")
@click.option(
    "-f", "--file", type=click.File(encoding="utf-8"), help="Read the query from a file instead of the command line."
)
@click.option(
    "--store",
    "stores",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Read a store directory, Ariane's or Apache RocketMQ's, instead of brokers; can be repeated.",
)
@click.option(
    "--since", metavar="TIME", callback=_TIME, help=f"Only messages stored at this time or later: {TIME_FORMATS}."
)
@click.option("--until", metavar="TIME", callback=_TIME, help="Only messages stored before this time.")
@click.option("-t", "--tags", metavar="'A || B'", help="Only messages with one of these tags.")
@click.option("-k", "--keys", metavar="KEY[,KEY]", help="Only messages with one of these keys.")
@click.option("--limit-scan", type=click.IntRange(1), metavar="N", help="Scan at most N messages of each topic.")
@click.option(
    "--engine",
    type=click.Choice(["duckdb", "spark"]),
    default="duckdb",
    show_default=True,
    help="duckdb starts fast; spark is for data that is too large for one process, and uses Spark's SQL dialect.",
)
@click.option(
    "--master", metavar="URL", help="With --engine spark: the Spark master; by default all cores of this machine."
)
@connected
@output_option()
def sql(
    query: str | None,
    file: TextIO | None,
    stores: tuple[Path, ...],
    since: int | None,
    until: int | None,
    tags: str | None,
    keys: str | None,
    limit_scan: int | None,
    engine: str,
    master: str | None,
    connection: Connection,
    output: OutputFormat,
) -> int:
    """Query topics with SQL, without consuming them. A topic is a table; quote names such as "%RETRY%billing".

    Columns are topic, brokerName, queueId, queueOffset, msgId, tags, keys, body, bornTimestamp and storeTimestamp.
    More columns exist if the query names them: body_text and body_json (null if the body is not text or JSON),
    properties, reconsumeTimes, storeSize and others, see docs/sql.md. The tables topics, queues and groups describe the
    cluster.

    Reports on stderr what was scanned and whether that is complete. --since, --until, --tags and --keys make a scan
    shorter; a condition in the query does not. Exits with 1 if messages were damaged or had expired.

    \b
    Examples:
      ariane sql "select tags, count(*) from orders group by tags"
      ariane sql "select body_json->>'user' u, sum((body_json->>'amount')::double) from orders group by u" --since -1h
      ariane sql 'select * from "%DLQ%billing" limit 5' -o jsonl
      ariane sql --store store "select count(*) from orders"
      ariane sql - -o csv < report.sql
    """
    text = _query_text(query, file)
    from ariane.cli.sql.run import print_result
    from ariane.sql.tables import ScanFilter

    scan_filter = ScanFilter(
        since_ms=since, until_ms=until, tags=_words(tags, "||"), keys=_words(keys, ","), limit=limit_scan
    )
    if master is not None and engine != "spark":
        raise click.UsageError("--master needs --engine spark", click.get_current_context())
    return print_result(text, connection, stores, scan_filter, output, master, by_spark=engine == "spark")


def _query_text(query: str | None, file: TextIO | None) -> str:
    if (query is None) == (file is None):
        raise click.UsageError("give either a query, - for stdin, or --file", click.get_current_context())
    text = file.read() if file is not None else sys.stdin.read() if query == "-" else query
    if not text or not text.strip():
        raise click.UsageError("the query is empty", click.get_current_context())
    return str(text)


def _words(text: str | None, separator: str) -> frozenset[str] | None:
    """None selects everything: no option, or a `*` among the tags."""
    words = frozenset(word.strip() for word in (text or "").split(separator)) - {""}
    return None if not words or "*" in words else words
