"""A query, run by duckdb in this process. Nothing is loaded beforehand: it reads as far as the query needs."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from ariane.errors import SettingsError
from ariane.sql.answers import Answer
from ariane.sql.columns import BODY_JSON, BODY_TEXT, cheapest_first, named_body_columns, named_columns
from ariane.sql.dataset import MessageDataset
from ariane.sql.duckdb_faults import as_ours
from ariane.sql.interruptible import Interruptible
from ariane.sql.missing_tables import MissingTable
from ariane.sql.progress import Progress
from ariane.sql.tables import Catalog
from ariane.sql.values import once_each, rows_of

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
def answer_by_duckdb(sql: str, catalog: Catalog, watch: Watch = lambda progress: None) -> Iterator[Answer]:
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
        self._answer = Answer((), iter(()))

    def answer(self) -> Answer:
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
