"""Runs a query with Spark, for data that is too large for one process. The same tables, in Spark's SQL dialect."""

import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from ariane.arrow.log.files import open_queues
from ariane.client.settings import ClientSettings
from ariane.errors import ArianeError, ExpressionError, SettingsError, StoreError
from ariane.settings import Secret
from ariane.spark.offsets import QueueRange
from ariane.sql.catalog import ClusterCatalog, MissingTable, StoreCatalog
from ariane.sql.rows import QueryResult, unique_names
from ariane.sql.sources import plan_ranges
from ariane.sql.tables import BODY_JSON, BODY_TEXT, Catalog, ScanFilter, counted, named_body_columns, named_columns
from ariane.store.layout import Layout

# --- tables as options of the Spark data source ---

Options = dict[str, str]


@dataclass(frozen=True, slots=True)
class SparkTables:
    """The topics of a cluster or of stores, as options of the data source.

    The offsets of a topic on brokers are fixed here, so that the reported scan is what Spark reads and every task reads
    the same messages, however many arrive in between.
    """

    settings: ClientSettings
    stores: Sequence[Path]
    scan_filter: ScanFilter

    def __post_init__(self) -> None:
        if self.scan_filter.limit is not None:
            raise SettingsError("--limit-scan works only with --engine duckdb: Spark reads everything; leave it out")

    @property
    def catalog(self) -> Catalog:
        if self.stores:
            return StoreCatalog(self.stores, self.scan_filter)
        return ClusterCatalog(self.settings, self.scan_filter)

    def table(self, topic: str, columns: Sequence[str]) -> tuple[list[Options], str]:
        """The options of each part of the table, and a sentence on what is scanned, which is true if no part fails."""
        chosen = {"topic": topic, "columns": ",".join(columns), **_chosen(self.scan_filter)}
        if self.stores:
            return self._of_stores(topic, chosen)
        ranges = plan_ranges(self.settings, topic, self.scan_filter)
        options = {**chosen, **_connection(self.settings), **_offsets(ranges)}
        return [options], _scanned(topic, sum(map(len, ranges)), len(ranges))

    def _of_stores(self, topic: str, chosen: Options) -> tuple[list[Options], str]:
        """One part for each store that has the topic."""
        times = {"startingTimestamp": self.scan_filter.since_ms, "endingTimestamp": self.scan_filter.until_ms}
        bounds = {name: str(value) for name, value in times.items() if value is not None}
        queues = {root: list(open_queues(Layout.under(root), [topic])) for root in self.stores}
        parts = [{**chosen, **bounds, "storePath": str(root)} for root, of_root in queues.items() if of_root]
        every = [queue for of_root in queues.values() for queue in of_root]
        return parts, _scanned(topic, sum(map(len, every)), len(every))


def _scanned(topic: str, messages: int, queues: int) -> str:
    """Spark does not report how many messages it needed. If one were lost or damaged, the query would fail."""
    return f"scanned up to {messages:,} messages of {topic} ({counted(queues, 'queue')}) by Spark, complete"


def _chosen(scan_filter: ScanFilter) -> Options:
    tags = {"tags": " || ".join(sorted(scan_filter.tags))} if scan_filter.tags else {}
    return tags | ({"keys": ",".join(sorted(scan_filter.keys))} if scan_filter.keys else {})


def _offsets(ranges: Sequence[QueueRange]) -> Options:
    starts: dict[str, dict[str, dict[str, int]]] = {}
    ends: dict[str, dict[str, dict[str, int]]] = {}
    for bounds in ranges:
        queue = bounds.queue
        for table, offset in ((starts, bounds.start), (ends, bounds.end)):
            table.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return {"startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(ends)}


def _connection(settings: ClientSettings) -> Options:
    tls = settings.tls
    options: dict[str, object] = {
        "nameServer": settings.nameservers,
        "accessKey": settings.access_key,
        "secretKey": settings.secret_key,
        "securityToken": settings.security_token,
        "useTLS": "true" if tls.enable else None,
        "tls.client.trustCertPath": tls.trust,
        "tls.client.certPath": tls.certificate,
        "tls.client.keyPath": tls.key,
        "tls.client.authServer": None if tls.verify else "false",
    }
    return {name: _text(value) for name, value in options.items() if value is not None}


def _text(value: object) -> str:
    return value.reveal() if isinstance(value, Secret) else str(value)


# --- output of the JVM at its start ---

_STDERR = 2
_SHOWN_BYTES = 4000


@contextmanager
def capture_jvm_output() -> Iterator[None]:
    """Redirects stderr to a file while the JVM starts, and prints the end of it only if the start fails.

    The JVM keeps writing to the file as long as it lives; this process gets its stderr back.
    """
    with tempfile.TemporaryFile() as file:
        stderr = os.dup(_STDERR)
        os.dup2(file.fileno(), _STDERR)
        try:
            yield
        except Exception:
            os.write(stderr, _tail_of(file.fileno()))
            raise
        finally:
            sys.stderr.flush()
            os.dup2(stderr, _STDERR)
            os.close(stderr)


def _tail_of(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, _SHOWN_BYTES, max(0, size - _SHOWN_BYTES))


# --- queries ---

_MISSING = "TABLE_OR_VIEW_NOT_FOUND"
_NAME = re.compile(r"`((?:[^`]|``)*)`$")
_LINE_AND_POSITION = re.compile(r"line (\d+),? pos (\d+)")
_TABLES_MAX = 64
_WRONG_QUERY = ("ParseException", "AnalysisException")


@contextmanager
def run_spark_query(sql: str, tables: SparkTables, master: str | None) -> Iterator[QueryResult]:
    """Rows must be read inside the block. The session stays open for the next query of the process."""
    logging.getLogger("SQLQueryContextLogger").disabled = True  # pyspark's: a page of Java trace for each missing table
    query = _Query(_session(master), sql, tables)
    try:
        with query.ariane_errors():
            yield query.run()
    finally:
        query.drop_tables()


def _session(master: str | None) -> Any:
    try:
        from ariane.spark.spark_session import session
    except ImportError:
        raise SettingsError(
            "--engine spark needs the package pyspark, which is not installed: run pip install 'ariane[spark]'"
        ) from None
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    with capture_jvm_output():
        spark = session("ariane sql", master=master, **quiet)
    spark.sparkContext.setLogLevel("OFF")
    return spark


class _Query:
    def __init__(self, spark: Any, sql: str, tables: SparkTables) -> None:
        self._spark = spark
        self._sql = sql
        self._source = tables
        self._result = QueryResult((), iter(()))
        self._tables: list[str] = []

    def run(self) -> QueryResult:
        frame = self._frame()
        self._result.columns = unique_names(frame.columns)
        self._result.rows = self._rows(frame)
        return self._result

    def _frame(self) -> Any:
        """Spark reports one missing table at a time; add it, and try the query again."""
        from pyspark.errors import AnalysisException

        for _ in range(_TABLES_MAX):
            try:
                return self._spark.sql(self._sql)
            except AnalysisException as error:
                if error.getCondition() != _MISSING:
                    raise
                self._add_table(_missing_name(error.getMessageParameters() or {}))
        raise SettingsError(f"the query has more than {_TABLES_MAX} tables: split it into smaller ones")

    def _add_table(self, name: str) -> None:
        topics = self._source.catalog.topics()
        if name not in topics:
            raise MissingTable(name).with_hint(topics, (), self._source.catalog.location)
        parts, note = self._source.table(name, named_columns(self._sql))
        frames = [self._spark.read.format("rocketmq").options(**part).load() for part in parts]
        frame = _add_body_columns(reduce(lambda left, right: left.union(right), frames), self._sql)
        frame.createOrReplaceTempView(f"`{name.replace('`', '``')}`")
        self._tables.append(name)
        self._result.notes.append(note)

    def drop_tables(self) -> None:
        """The next query of the session may be for another cluster."""
        for name in self._tables:
            self._spark.catalog.dropTempView(name)

    def _rows(self, frame: Any) -> Iterator[dict[str, object]]:
        from ariane.sql.spark_values import converter

        names = list(self._result.columns)
        converts = [converter(field.dataType) for field in frame.schema.fields]
        for row in frame.toLocalIterator():
            yield {name: convert(value) for name, convert, value in zip(names, converts, row, strict=True)}

    @contextmanager
    def ariane_errors(self) -> Iterator[None]:
        from pyspark.errors import PySparkException

        try:
            yield
        except PySparkException as error:
            raise _to_ariane_error(error, self._sql) from error


def _add_body_columns(frame: Any, sql: str) -> Any:
    """Both as text: Spark reads JSON with functions. Null for a body that is not text or JSON, as with duckdb."""
    from pyspark.sql import functions as F

    text = F.try_validate_utf8(frame.body.cast("string"))
    made = {BODY_TEXT: text, BODY_JSON: F.when(F.try_parse_json(text).isNotNull(), text)}
    return frame.withColumns({name: made[name] for name in named_body_columns(sql)})


def _missing_name(parameters: Mapping[str, str]) -> str:
    match = _NAME.search(parameters.get("relationName", ""))
    return match[1].replace("``", "`") if match else parameters.get("relationName", "?")


def _to_ariane_error(error: Any, sql: str) -> ArianeError:
    text = str(error)
    if type(error).__name__ not in _WRONG_QUERY:
        return _task_error(error)
    reason = " ".join(text.split("SQLSTATE", 1)[0].split("\n\n", 1)[0].split()).rstrip(".")
    position = _position(text, sql)
    return SettingsError(f"the query is wrong: {reason}") if position is None else ExpressionError(reason, position)


def _task_error(error: Any) -> ArianeError:
    """The error of a task if it is an ArianeError. Its hint is a Spark option, which does not apply here."""
    from ariane.spark.pipeline.functions import to_ariane_error

    cause = to_ariane_error(error, "the query failed")
    reason, is_loss, _ = str(cause).partition(". The query stops because failOnDataLoss is true")
    if not is_loss:
        return cause
    return StoreError(f"{reason}; the result would be incomplete: --engine duckdb gives it without them, and says so")


def _position(text: str, sql: str) -> int | None:
    """Spark counts lines from 1 and the characters in them from 0."""
    match = _LINE_AND_POSITION.search(text)
    if match is None:
        return None
    before = sql.splitlines(keepends=True)[: int(match[1]) - 1]
    return sum(map(len, before)) + int(match[2]) + 1
