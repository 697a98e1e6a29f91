"""The rows of a query on stdout, and what was scanned for them on stderr."""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from ariane.cli.common.connection import Connection
from ariane.cli.common.output import OutputFormat, Row, render
from ariane.errors import SettingsError

if TYPE_CHECKING:
    from ariane.sql.rows import QueryResult
    from ariane.sql.tables import Progress, ScanFilter


# --- sql_progress ---
#
# How far the scans of a query are, for a person who waits at a terminal for more than two seconds.

_LATE_S = 2.0
_REFRESH_S = 0.2


class ScanBar:
    """Counts in a thread of its own, while the query's rows are waited for. Leave it before rows are printed."""

    def __init__(self, late_s: float = _LATE_S) -> None:
        self._late_s = late_s
        self._tables: list[Progress] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ariane-sql-progress", daemon=True)
        self.shown = threading.Event()

    def watch(self, progress: "Progress") -> None:
        self._tables.append(progress)

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        if self._over.wait(self._late_s):
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
            task = bar.add_task("scanning", total=None)
            while not self._over.wait(_REFRESH_S):
                bar.update(task, completed=self.scanned, total=self.total)
                self.shown.set()

    @property
    def scanned(self) -> int:
        return sum(scan.scanned for table in self._tables for scan in table.scans)

    @property
    def total(self) -> int | None:
        """None while no scan has begun."""
        return sum((table.total - table.left_out) * len(table.scans) for table in self._tables) or None


# ---

INCOMPLETE = 1


def print_answer(
    text: str,
    connection: Connection,
    stores: Sequence[Path],
    wanted: "ScanFilter",
    output: OutputFormat,
    master: str | None,
    *,
    by_spark: bool,
) -> int:
    """The exit code: messages that could not be read are a failure, a limit that was asked for is none."""
    asked = _by_spark if by_spark else _by_duckdb
    with ExitStack() as kept:
        with ScanBar() as bar:
            response = kept.enter_context(asked(text, connection, stores, wanted, master, bar))
            rows = _first_rows(response, output)
        _print(rows, response.columns, output)
    for sentence in response.sentences():
        click.echo(sentence, err=True)
    return 0 if response.is_complete else INCOMPLETE


def _first_rows(response: "QueryResult", output: OutputFormat) -> Iterator[Row]:
    """All of them where they are printed together, else as soon as there is one."""
    if output in (OutputFormat.TABLE, OutputFormat.JSON):
        return iter(list(response.rows))
    return chain(list(islice(response.rows, 1)), response.rows)


def _by_duckdb(
    text: str, connection: Connection, stores: Sequence[Path], wanted: "ScanFilter", master: str | None, bar: ScanBar
) -> AbstractContextManager["QueryResult"]:
    try:
        from ariane.sql.catalog import ClusterCatalog, StoreCatalog
        from ariane.sql.duckdb_engine import run_duckdb_query
    except ImportError as error:
        raise SettingsError(
            f"SQL needs the package {error.name}, which is not installed: run pip install 'ariane[sql]'"
        ) from None
    catalog = StoreCatalog(stores, wanted) if stores else ClusterCatalog(connection.settings, wanted)
    return run_duckdb_query(text, catalog, bar.watch)


def _by_spark(
    text: str, connection: Connection, stores: Sequence[Path], wanted: "ScanFilter", master: str | None, bar: ScanBar
) -> AbstractContextManager["QueryResult"]:
    try:
        from ariane.sql.spark_engine import SparkTables, run_spark_query
    except ImportError as error:
        raise SettingsError(
            f"--engine spark needs the package {error.name}, which is not installed: run pip install 'ariane[spark]'"
        ) from None
    return run_spark_query(text, SparkTables(connection.settings, stores, wanted), master)


def _print(rows: Iterator[Row], columns: Sequence[str], output: OutputFormat) -> None:
    """A result without rows still has columns, which a table and CSV show."""
    first = next(rows, None)
    if first is not None:
        render(chain([first], rows), output, columns)
    elif output is OutputFormat.JSON:
        render([], output)
    elif columns and output in (OutputFormat.TABLE, OutputFormat.CSV):
        click.echo(("," if output is OutputFormat.CSV else "  ").join(columns))
