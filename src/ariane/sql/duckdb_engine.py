"""Runs a query with duckdb in this process. No data is loaded beforehand: tables are scanned as far as needed.

Tables appear to duckdb as Arrow datasets. It scans a dataset once for each place where a query names the table, from
any of its threads, with the columns and conditions of the query.
"""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds

from ariane.arrow.schema import message_schema
from ariane.errors import ArianeError, ClientError, ExpressionError, SettingsError
from ariane.sql.catalog import MissingTable
from ariane.sql.rows import QueryResult, rows_of, unique_names
from ariane.sql.tables import (
    BODY_JSON,
    BODY_TEXT,
    Catalog,
    MessageTable,
    Progress,
    cheapest_first,
    named_body_columns,
    named_columns,
)

# --- errors of duckdb, as errors of ariane.errors with one sentence and the position in the query ---
#
# duckdb reports them as JSON, because its plain texts truncate long lines and lose the position.

_WRONG_QUERY = frozenset({"Parser", "Binder", "Catalog"})
_KIND = re.compile(r"^(\w+(?: \w+)?) Error: ")


def to_ariane_error(error: Exception, sql: str) -> ArianeError:
    """ExpressionError for a query that is wrong for any data, ClientError when it fails on this data."""
    details = _parse_error(str(error))
    reason, kind = _sentence(details["exception_message"]), details.get("exception_type", "")
    if kind == "Catalog" and details.get("type") == "Table":
        return MissingTable(details.get("name", "?"))
    if kind in _WRONG_QUERY and details.get("position", "").isdigit():
        position = int(details["position"])
        return ExpressionError(f"{reason}{_line(sql, position)}", position + 1)
    if kind in _WRONG_QUERY:
        return SettingsError(f"the query is wrong: {reason}")
    return ClientError(f"the query failed: {reason}")


def _parse_error(text: str) -> Mapping[str, str]:
    """Accepts an error that comes through Arrow, which adds a prefix, and one that is not JSON."""
    start = text.find("{")
    try:
        details = json.JSONDecoder().raw_decode(text, start)[0] if start >= 0 else None
    except ValueError:
        details = None
    if isinstance(details, dict) and "exception_message" in details:
        return {name: str(value) for name, value in details.items()}
    kind = _KIND.match(text)
    return {"exception_message": text, "exception_type": kind[1] if kind else ""}


def _sentence(text: str) -> str:
    return " ".join(text.split()).rstrip(".!")


def _line(sql: str, position: int) -> str:
    """Line and column, if the query has several lines."""
    if "\n" not in sql.strip():
        return ""
    before = sql[:position]
    line, column = before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1
    return f" (line {line}, column {column})"


# --- a table of messages as an Arrow dataset ---

_WORD = re.compile(r"\w+")


class MessageDataset(ds.Dataset):  # type: ignore[misc]
    """Derived from Arrow's class because duckdb checks for it; nothing is inherited."""

    def __init__(self, table: MessageTable, columns: Sequence[str]) -> None:
        self._table = table
        self._columns = list(columns)
        self.failure: BaseException | None = None
        """The exception that ended a scan: duckdb keeps only its text."""

    @property
    def schema(self) -> pa.Schema:
        return message_schema(self._columns)

    def scanner(self, columns: Sequence[str] | None = None, filter: ds.Expression = None, **_: object) -> "Scanner":
        names = self._columns if columns is None else list(columns)
        return Scanner(message_schema(names), self._batches(names, filter))

    def _batches(self, columns: list[str], condition: ds.Expression) -> Iterator[pa.RecordBatch]:
        """Columns that only the condition needs are read too."""
        words = set(_WORD.findall(str(condition))) if condition is not None else set()
        read = [name for name in self._columns if name in columns or name in words]
        try:
            for batch in self._table.batches(read, self._table.progress.begin()):
                yield (batch if condition is None else batch.filter(condition)).select(columns)
        except GeneratorExit:
            raise
        except BaseException as error:
            self.failure = error
            raise


class Scanner:
    """Has the only method of Arrow's scanner that duckdb calls. Arrow's own reads far ahead of a query with a limit."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.projected_schema = schema
        self._batches = batches

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches)


# --- interruptible calls ---

T = TypeVar("T")


class Interruptible:
    """Runs long calls into an engine one after the other in another thread, so that Ctrl-C can end them.

    Python runs signal handlers only between Python instructions of the main thread, so a call that computes for minutes
    would block them. `interrupt` makes the running call end.
    """

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._thread = ThreadPoolExecutor(1, "ariane-sql")

    def call(self, work: Callable[[], T]) -> T:
        future = self._thread.submit(work)
        try:
            return future.result()
        finally:
            if not future.done():  # Ctrl-C ended the wait, but not the call
                self._interrupt()
                wait([future])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:  # it may have come before the wait began
            self._interrupt()
        self._thread.shutdown()


# --- queries ---

_SETTINGS = (
    "SET errors_as_json = true",
    "SET TimeZone = 'UTC'",
    "SET python_enable_replacements = false",  # a table name must not resolve to a Python variable
    "SET autoinstall_known_extensions = false",  # no downloads
    "SET preserve_insertion_order = true",
)
_TABLES_MAX = 64
Watch = Callable[[Progress], None]
_BODY_COLUMNS = {
    BODY_TEXT: f"TRY(decode(body)) AS {BODY_TEXT}",
    BODY_JSON: f"CASE WHEN json_valid(TRY(decode(body))) THEN TRY(decode(body))::JSON END AS {BODY_JSON}",
}


@contextmanager
def run_duckdb_query(sql: str, catalog: Catalog, watch: Watch = lambda progress: None) -> Iterator[QueryResult]:
    """Rows must be read inside the block. Errors are those of ariane.errors, also while rows are read.

    `watch` is called with the progress of each table before the table is read.
    """
    with tempfile.TemporaryDirectory(prefix="ariane-sql-") as spill:
        connection = _connect(spill)
        try:
            with Interruptible(connection.interrupt) as engine:
                yield _Query(connection, engine, sql, catalog, watch).run()
        finally:
            connection.close()


def _connect(spill: str) -> Any:
    try:
        import duckdb
    except ImportError:
        raise SettingsError(
            "SQL needs the package duckdb, which is not installed: run pip install 'ariane[sql]'"
        ) from None
    connection = duckdb.connect(config={"temp_directory": spill})
    for setting in _SETTINGS:
        connection.execute(setting)
    return connection


class _Query:
    def __init__(self, connection: Any, engine: Interruptible, sql: str, catalog: Catalog, watch: Watch) -> None:
        self._connection = connection
        self._engine = engine
        self._sql = sql
        self._catalog = catalog
        self._watch = watch
        self._datasets: list[MessageDataset] = []
        self._result = QueryResult((), iter(()))

    def run(self) -> QueryResult:
        with self._ariane_errors():
            self._check_one_statement()
            reader = self._engine.call(self._reader)
            if reader is not None:
                self._result.columns = unique_names(reader.schema.names)
                self._result.rows = self._rows(reader)
        return self._result

    def _reader(self) -> pa.RecordBatchReader | None:
        """None for a statement without rows, which has been executed."""
        relation = self._relation()
        return None if relation is None else pa.RecordBatchReader.from_stream(relation)

    def _check_one_statement(self) -> None:
        count = len(self._connection.extract_statements(self._sql))
        if count != 1:
            raise SettingsError(f"the query has {count} statements: give one, or run the command once for each")

    def _rows(self, reader: pa.RecordBatchReader) -> Iterator[dict[str, object]]:
        columns = list(self._result.columns)
        with self._ariane_errors():
            while (batch := self._engine.call(lambda: next(reader, None))) is not None:
                yield from rows_of(batch, columns)

    # --- errors -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _ariane_errors(self) -> Iterator[None]:
        import duckdb

        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._cause(error) from error

    def _cause(self, error: Exception) -> BaseException:
        """The exception of a scan if there is one: duckdb only reports that reading failed."""
        failures = [dataset.failure for dataset in self._datasets if dataset.failure is not None]
        return failures[0] if failures else to_ariane_error(error, self._sql)

    # --- tables -----------------------------------------------------------------------------------------------------

    def _relation(self) -> Any:
        """duckdb reports one missing table at a time; add it, and try the query again."""
        topics: list[str] | None = None
        for _ in range(_TABLES_MAX):
            try:
                return self._bound()
            except MissingTable as missing:
                topics = self._catalog.topics() if topics is None else topics
                if not self._add(missing.name, topics):
                    raise missing.with_hint(topics, self._catalog.metadata_names(), self._catalog.location) from None
        raise SettingsError(f"the query has more than {_TABLES_MAX} tables: split it into smaller ones")

    def _bound(self) -> Any:
        import duckdb

        try:
            return self._connection.sql(self._sql)
        except (duckdb.BinderException, duckdb.CatalogException) as error:
            raise to_ariane_error(self._with_position(error), self._sql) from error

    def _with_position(self, error: Exception) -> Exception:
        """`sql` streams its result, but only the error of `execute` has a position. The query fails in both."""
        import duckdb

        try:
            self._connection.execute(self._sql)
        except duckdb.Error as better:
            return better
        return error

    def _add(self, name: str, topics: list[str]) -> bool:
        """Registers a table; False when there is none of this name."""
        topic = _find(name, topics)
        if topic is not None:
            self._add_messages(name, topic)
            return True
        metadata = self._catalog.metadata(name.lower())
        if metadata is not None:
            self._connection.register(name, metadata)
        return metadata is not None

    def _add_messages(self, name: str, topic: str) -> None:
        table, columns, source = self._catalog.messages(topic), named_columns(self._sql), f"scan {len(self._datasets)}"
        dataset = MessageDataset(table, cheapest_first(columns))
        self._datasets.append(dataset)
        self._result.scanned.append(table.progress)
        self._watch(table.progress)
        self._connection.register(source, dataset)
        shown = ", ".join([*columns, *(_BODY_COLUMNS[name] for name in named_body_columns(self._sql))])
        view = name.replace('"', '""')
        self._connection.execute(f'CREATE TEMP VIEW "{view}" AS SELECT {shown} FROM "{source}"')  # noqa: S608 - quoted


def _find(name: str, topics: list[str]) -> str | None:
    """The topic of this name, or the only one that differs in case: SQL names are not case-sensitive."""
    if name in topics:
        return name
    alike = [topic for topic in topics if topic.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None
