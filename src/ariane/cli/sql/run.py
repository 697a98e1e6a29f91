"""Runs `ariane sql`: prints the rows of the query on stdout and a report of the scan on stderr."""

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
from ariane.cli.common.output import OutputFormat, Row, progress_bar, render
from ariane.errors import SettingsError

if TYPE_CHECKING:
    from ariane.sql.rows import QueryResult
    from ariane.sql.tables import Progress, ScanFilter


# --- progress bar ---

_LATE_S = 2.0
_REFRESH_S = 0.2


class ScanBar:
    """Progress of the scans, shown on a terminal after two seconds.

    Updated by its own thread while the query runs. Leave the block before rows are printed.
    """

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
        with progress_bar() as bar:
            task = bar.add_task("scanning", total=None)
            while not self._over.wait(_REFRESH_S):
                bar.update(task, completed=self.scanned, total=self.total)
                self.shown.set()

    @property
    def scanned(self) -> int:
        return sum(scan.scanned for table in self._tables for scan in table.scans)

    @property
    def total(self) -> int | None:
        """None before the first scan begins."""
        return sum((table.total - table.left_out) * len(table.scans) for table in self._tables) or None


# --- query ---

INCOMPLETE = 1


def print_result(
    text: str,
    connection: Connection,
    stores: Sequence[Path],
    scan_filter: "ScanFilter",
    output: OutputFormat,
    master: str | None,
    *,
    by_spark: bool,
) -> int:
    """Returns the exit status: 1 if messages could not be read; a limit given by the user does not count."""
    query = _by_spark if by_spark else _by_duckdb
    with ExitStack() as stack:
        with ScanBar() as bar:
            result = stack.enter_context(query(text, connection, stores, scan_filter, master, bar))
            rows = _first_rows(result, output)
        _print(rows, result.columns, output)
    for sentence in result.sentences():
        click.echo(sentence, err=True)
    return 0 if result.is_complete else INCOMPLETE


def _first_rows(result: "QueryResult", output: OutputFormat) -> Iterator[Row]:
    """Waits for all rows if they are printed together, else for the first one."""
    if output in (OutputFormat.TABLE, OutputFormat.JSON):
        return iter(list(result.rows))
    return chain(list(islice(result.rows, 1)), result.rows)


def _by_duckdb(
    text: str,
    connection: Connection,
    stores: Sequence[Path],
    scan_filter: "ScanFilter",
    master: str | None,
    bar: ScanBar,
) -> AbstractContextManager["QueryResult"]:
    try:
        from ariane.sql.catalog import ClusterCatalog, StoreCatalog
        from ariane.sql.duckdb_engine import run_duckdb_query
    except ImportError as error:
        raise SettingsError(
            f"SQL needs the package {error.name}, which is not installed: run pip install 'ariane[sql]'"
        ) from None
    catalog = StoreCatalog(stores, scan_filter) if stores else ClusterCatalog(connection.settings, scan_filter)
    return run_duckdb_query(text, catalog, bar.watch)


def _by_spark(
    text: str,
    connection: Connection,
    stores: Sequence[Path],
    scan_filter: "ScanFilter",
    master: str | None,
    bar: ScanBar,
) -> AbstractContextManager["QueryResult"]:
    try:
        from ariane.sql.spark_engine import SparkTables, run_spark_query
    except ImportError as error:
        raise SettingsError(
            f"--engine spark needs the package {error.name}, which is not installed: run pip install 'ariane[spark]'"
        ) from None
    return run_spark_query(text, SparkTables(connection.settings, stores, scan_filter), master)


def _print(rows: Iterator[Row], columns: Sequence[str], output: OutputFormat) -> None:
    """A table and CSV show the columns even if there are no rows."""
    first = next(rows, None)
    if first is not None:
        render(chain([first], rows), output, columns)
    elif output is OutputFormat.JSON:
        render([], output)
    elif columns and output in (OutputFormat.TABLE, OutputFormat.CSV):
        click.echo(("," if output is OutputFormat.CSV else "  ").join(columns))
