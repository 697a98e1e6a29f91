"""A query, run by duckdb in this process. Nothing is loaded beforehand: it reads as far as the query needs."""

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
from ariane.sql.rows import QueryResult, once_each, rows_of
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

# --- duckdb_faults ---
#
# What duckdb says about a query that it cannot run, in one sentence with the place, and with our exit codes.
#
# Its errors are asked for as JSON, because in its texts a long line is cut and the place is lost.

_WRONG_QUERY = frozenset({"Parser", "Binder", "Catalog"})
_KIND = re.compile(r"^(\w+(?: \w+)?) Error: ")


def as_ours(error: Exception, sql: str) -> ArianeError:
    """ExpressionError for a query that no data can make right, ClientError when it fails on this data."""
    told = _told(str(error))
    reason, kind = _sentence(told["exception_message"]), told.get("exception_type", "")
    if kind == "Catalog" and told.get("type") == "Table":
        return MissingTable(told.get("name", "?"))
    if kind in _WRONG_QUERY and told.get("position", "").isdigit():
        position = int(told["position"])
        return ExpressionError(f"{reason}{_line(sql, position)}", position + 1)
    if kind in _WRONG_QUERY:
        return SettingsError(f"the query is wrong: {reason}")
    return ClientError(f"the query failed: {reason}")


def _told(text: str) -> Mapping[str, str]:
    """Also when it comes through Arrow, which puts words before it, or when it is no JSON."""
    start = text.find("{")
    try:
        told = json.JSONDecoder().raw_decode(text, start)[0] if start >= 0 else None
    except ValueError:
        told = None
    if isinstance(told, dict) and "exception_message" in told:
        return {name: str(value) for name, value in told.items()}
    kind = _KIND.match(text)
    return {"exception_message": text, "exception_type": kind[1] if kind else ""}


def _sentence(text: str) -> str:
    return " ".join(text.split()).rstrip(".!")


def _line(sql: str, position: int) -> str:
    """Which line, in a query of several."""
    if "\n" not in sql.strip():
        return ""
    before = sql[:position]
    line, column = before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1
    return f" (line {line}, column {column})"


# --- dataset ---
#
# A table of messages as duckdb sees it: a dataset of Arrow, which it asks for columns and for rows that fit.
#
# It asks once for each place where a query names the table, in whatever thread is free; every time a new scan begins.

_WORD = re.compile(r"\w+")


class MessageDataset(ds.Dataset):  # type: ignore[misc]
    """Derived from Arrow's own class because duckdb looks for it; nothing of it is used."""

    def __init__(self, table: MessageTable, columns: Sequence[str]) -> None:
        self._table = table
        self._columns = list(columns)
        self.failure: BaseException | None = None
        """What ended a scan: duckdb only keeps its text."""

    @property
    def schema(self) -> pa.Schema:
        return message_schema(self._columns)

    def scanner(self, columns: Sequence[str] | None = None, filter: ds.Expression = None, **_: object) -> "Scanner":
        given = self._columns if columns is None else list(columns)
        return Scanner(message_schema(given), self._batches(given, filter))

    def _batches(self, columns: list[str], condition: ds.Expression) -> Iterator[pa.RecordBatch]:
        """A column may be needed for the condition alone."""
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
    """The one method of Arrow's scanner that is called. Arrow's own would read far ahead of a query with a limit."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.projected_schema = schema
        self._batches = batches

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches)


# --- interruptible ---
#
# Long calls into an engine, in a thread of their own, so that Ctrl-C ends them.
#
# Python runs signal handlers between its own steps in the main thread. An engine that computes for minutes takes none.

T = TypeVar("T")


class Interruptible:
    """All calls run in one thread, one after the other. `interrupt` makes the one that is under way end."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._thread = ThreadPoolExecutor(1, "ariane-sql")

    def call(self, work: Callable[[], T]) -> T:
        under_way = self._thread.submit(work)
        try:
            return under_way.result()
        finally:
            if not under_way.done():  # Ctrl-C: not the call has ended, but the wait for it
                self._interrupt()
                wait([under_way])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:  # it may have come before anybody waited
            self._interrupt()
        self._thread.shutdown()


# ---

_SETTINGS = (
    "SET errors_as_json = true",
    "SET TimeZone = 'UTC'",
    "SET python_enable_replacements = false",  # a table must not be some variable of ours that has its name
    "SET autoinstall_known_extensions = false",  # nothing is fetched from the network unasked
    "SET preserve_insertion_order = true",
)
_TABLES_MAX = 64
Watch = Callable[[Progress], None]
_BODY_COLUMNS = {
    BODY_TEXT: f"TRY(decode(body)) AS {BODY_TEXT}",
    BODY_JSON: f"CASE WHEN json_valid(TRY(decode(body))) THEN TRY(decode(body))::JSON END AS {BODY_JSON}",
}


@contextmanager
def answer_by_duckdb(sql: str, catalog: Catalog, watch: Watch = lambda progress: None) -> Iterator[QueryResult]:
    """The rows must be read inside. Errors are those of errors.py, also while rows are read.

    `watch` gets the progress of each table when it is known, which is before anything of it is read.
    """
    with tempfile.TemporaryDirectory(prefix="ariane-sql-") as spill:
        connection = _connect(spill)
        try:
            with Interruptible(connection.interrupt) as engine:
                yield _Query(connection, engine, sql, catalog, watch).answer()
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
        self._answer = QueryResult((), iter(()))

    def answer(self) -> QueryResult:
        with self._our_errors():
            self._check_one_statement()
            reader = self._engine.call(self._reader)
            if reader is not None:
                self._answer.columns = once_each(reader.schema.names)
                self._answer.rows = self._rows(reader)
        return self._answer

    def _reader(self) -> pa.RecordBatchReader | None:
        """None for a statement that has no rows: it is done."""
        relation = self._relation()
        return None if relation is None else pa.RecordBatchReader.from_stream(relation)

    def _check_one_statement(self) -> None:
        count = len(self._connection.extract_statements(self._sql))
        if count != 1:
            raise SettingsError(f"the query has {count} statements: give one, or run the command for each")

    def _rows(self, reader: pa.RecordBatchReader) -> Iterator[dict[str, object]]:
        columns = list(self._answer.columns)
        with self._our_errors():
            while (batch := self._engine.call(lambda: next(reader, None))) is not None:
                yield from rows_of(batch, columns)

    # --- errors -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _our_errors(self) -> Iterator[None]:
        import duckdb

        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._cause(error) from error

    def _cause(self, error: Exception) -> BaseException:
        """A scan's own failure where there is one: duckdb only tells that reading failed."""
        failures = [one.failure for one in self._datasets if one.failure is not None]
        return failures[0] if failures else as_ours(error, self._sql)

    # --- tables -----------------------------------------------------------------------------------------------------

    def _relation(self) -> Any:
        """duckdb names one table that it misses; it is made, and the query tried again."""
        topics: list[str] | None = None
        for _ in range(_TABLES_MAX):
            try:
                return self._bound()
            except MissingTable as missing:
                topics = self._catalog.topics() if topics is None else topics
                if not self._add(missing.name, topics):
                    raise missing.explained(topics, self._catalog.fact_names(), self._catalog.place) from None
        raise SettingsError(f"the query has more than {_TABLES_MAX} tables: ask for less at a time")

    def _bound(self) -> Any:
        import duckdb

        try:
            return self._connection.sql(self._sql)
        except (duckdb.BinderException, duckdb.CatalogException) as error:
            raise as_ours(self._with_place(error), self._sql) from error

    def _with_place(self, error: Exception) -> Exception:
        """`sql` streams and `execute` does not, but only the latter tells where a mistake is. It runs in neither."""
        import duckdb

        try:
            self._connection.execute(self._sql)
        except duckdb.Error as better:
            return better
        return error

    def _add(self, name: str, topics: list[str]) -> bool:
        """Whether there is such a table."""
        topic = _find(name, topics)
        if topic is not None:
            self._add_messages(name, topic)
            return True
        facts = self._catalog.facts(name.lower())
        if facts is not None:
            self._connection.register(name, facts)
        return facts is not None

    def _add_messages(self, name: str, topic: str) -> None:
        table, columns, source = self._catalog.messages(topic), named_columns(self._sql), f"scan {len(self._datasets)}"
        dataset = MessageDataset(table, cheapest_first(columns))
        self._datasets.append(dataset)
        self._answer.scanned.append(table.progress)
        self._watch(table.progress)
        self._connection.register(source, dataset)
        shown = ", ".join([*columns, *(_BODY_COLUMNS[one] for one in named_body_columns(self._sql))])
        view = name.replace('"', '""')
        self._connection.execute(f'CREATE TEMP VIEW "{view}" AS SELECT {shown} FROM "{source}"')  # noqa: S608 - quoted


def _find(name: str, topics: list[str]) -> str | None:
    """The topic itself, or the only one that differs by case alone: SQL's names do not know it."""
    if name in topics:
        return name
    alike = [topic for topic in topics if topic.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None
