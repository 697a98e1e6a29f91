"""The rows of a query on stdout, and what was scanned for them on stderr."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ariane.cli.connection import Connection
from ariane.cli.render import Form, Row, render
from ariane.cli.sql_progress import ScanBar
from ariane.errors import SettingsError

if TYPE_CHECKING:
    from ariane.sql.answers import Answer
    from ariane.sql.wanted import Wanted

INCOMPLETE = 1


def print_answer(
    text: str,
    connection: Connection,
    stores: Sequence[Path],
    wanted: "Wanted",
    form: Form,
    master: str | None,
    *,
    by_spark: bool,
) -> int:
    """The exit code: messages that could not be read are a failure, a limit that was asked for is none."""
    asked = _by_spark if by_spark else _by_duckdb
    with ExitStack() as kept:
        with ScanBar() as bar:
            answer = kept.enter_context(asked(text, connection, stores, wanted, master, bar))
            rows = _first_rows(answer, form)
        _print(rows, answer.columns, form)
    for sentence in answer.sentences():
        click.echo(sentence, err=True)
    return 0 if answer.is_whole else INCOMPLETE


def _first_rows(answer: "Answer", form: Form) -> Iterator[Row]:
    """All of them where they are printed together, else as soon as there is one."""
    if form in (Form.TABLE, Form.JSON):
        return iter(list(answer.rows))
    return chain(list(islice(answer.rows, 1)), answer.rows)


def _by_duckdb(
    text: str, connection: Connection, stores: Sequence[Path], wanted: "Wanted", master: str | None, bar: ScanBar
) -> AbstractContextManager["Answer"]:
    try:
        from ariane.sql.catalogs import ClusterCatalog, StoreCatalog
        from ariane.sql.duckdb_engine import answer_by_duckdb
    except ImportError as error:
        raise SettingsError(
            f"SQL needs the package {error.name}, which is not installed: run pip install 'ariane[sql]'"
        ) from None
    catalog = StoreCatalog(stores, wanted) if stores else ClusterCatalog(connection.settings, wanted)
    return answer_by_duckdb(text, catalog, bar.watch)


def _by_spark(
    text: str, connection: Connection, stores: Sequence[Path], wanted: "Wanted", master: str | None, bar: ScanBar
) -> AbstractContextManager["Answer"]:
    try:
        from ariane.sql.spark_engine import answer_by_spark
        from ariane.sql.spark_options import SparkPlace
    except ImportError as error:
        raise SettingsError(
            f"--engine spark needs the package {error.name}, which is not installed: run pip install 'ariane[spark]'"
        ) from None
    return answer_by_spark(text, SparkPlace(connection.settings, stores, wanted), master)


def _print(rows: Iterator[Row], columns: Sequence[str], form: Form) -> None:
    """A result without rows still has columns, which a table and CSV show."""
    first = next(rows, None)
    if first is not None:
        render(chain([first], rows), form, columns)
    elif form is Form.JSON:
        render([], form)
    elif columns and form in (Form.TABLE, Form.CSV):
        click.echo(("," if form is Form.CSV else "  ").join(columns))
