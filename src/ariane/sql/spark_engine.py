"""A query, run by Spark: for what is too large for one process. The same tables, in Spark's SQL."""

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
from ariane.sql.rows import QueryResult, once_each
from ariane.sql.sources import plan_ranges
from ariane.sql.tables import BODY_JSON, BODY_TEXT, Catalog, ScanFilter, counted, named_body_columns, named_columns
from ariane.store.layout import Layout

# --- spark_options ---
#
# Where Spark finds a table, as the options of its data source; and what it will be told to read.
#
# From brokers the offsets are settled here, so that what is said about a scan is what Spark reads, and every task reads
# the same however many messages come meanwhile.

Options = dict[str, str]


@dataclass(frozen=True, slots=True)
class SparkPlace:
    settings: ClientSettings
    stores: Sequence[Path]
    wanted: ScanFilter

    def __post_init__(self) -> None:
        if self.wanted.limit is not None:
            raise SettingsError("--limit-scan is for the embedded engine: Spark is for reading all; leave it out")

    @property
    def catalog(self) -> Catalog:
        if self.stores:
            return StoreCatalog(self.stores, self.wanted)
        return ClusterCatalog(self.settings, self.wanted)

    def table(self, topic: str, columns: Sequence[str]) -> tuple[list[Options], str]:
        """The options of each part of the table, and a sentence on what is scanned, true when no part has failed."""
        chosen = {"topic": topic, "columns": ",".join(columns), **_chosen(self.wanted)}
        if self.stores:
            return self._of_stores(topic, chosen)
        ranges = plan_ranges(self.settings, topic, self.wanted)
        options = {**chosen, **_connection(self.settings), **_offsets(ranges)}
        return [options], _scanned(topic, sum(map(len, ranges)), len(ranges))

    def _of_stores(self, topic: str, chosen: Options) -> tuple[list[Options], str]:
        """One part for each store that has the topic."""
        times = {"startingTimestamp": self.wanted.since_ms, "endingTimestamp": self.wanted.until_ms}
        given = {name: str(value) for name, value in times.items() if value is not None}
        queues = {root: list(open_queues(Layout.under(root), [topic])) for root in self.stores}
        parts = [{**chosen, **given, "storePath": str(root)} for root, found in queues.items() if found]
        every = [queue for found in queues.values() for queue in found]
        return parts, _scanned(topic, sum(map(len, every)), len(every))


def _scanned(topic: str, messages: int, queues: int) -> str:
    """Spark does not tell how many of them it needed. Had one been gone or damaged, there would be no answer."""
    return f"scanned up to {messages:,} messages of {topic} ({counted(queues, 'queue')}) by Spark, complete"


def _chosen(wanted: ScanFilter) -> Options:
    tags = {"tags": " || ".join(sorted(wanted.tags))} if wanted.tags else {}
    return tags | ({"keys": ",".join(sorted(wanted.keys))} if wanted.keys else {})


def _offsets(ranges: Sequence[QueueRange]) -> Options:
    starts: dict[str, dict[str, dict[str, int]]] = {}
    ends: dict[str, dict[str, dict[str, int]]] = {}
    for one in ranges:
        queue = one.queue
        for table, offset in ((starts, one.start), (ends, one.end)):
            table.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return {"startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(ends)}


def _connection(settings: ClientSettings) -> Options:
    tls = settings.tls
    told: dict[str, object] = {
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
    return {name: _text(value) for name, value in told.items() if value is not None}


def _text(value: object) -> str:
    return value.reveal() if isinstance(value, Secret) else str(value)


# --- silence ---
#
# Java's own words at its start, which nobody asked for: kept from the terminal, and shown if it does not start.

_STDERR = 2
_TOLD_BYTES = 4000


@contextmanager
def capture_jvm_output() -> Iterator[None]:
    """What is started inside writes its stderr to a file, for as long as it lives. Ours is restored."""
    with tempfile.TemporaryFile() as file:
        ours = os.dup(_STDERR)
        os.dup2(file.fileno(), _STDERR)
        try:
            yield
        except Exception:
            os.write(ours, _last_words(file.fileno()))
            raise
        finally:
            sys.stderr.flush()
            os.dup2(ours, _STDERR)
            os.close(ours)


def _last_words(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, _TOLD_BYTES, max(0, size - _TOLD_BYTES))


# ---

_MISSING = "TABLE_OR_VIEW_NOT_FOUND"
_NAME = re.compile(r"`((?:[^`]|``)*)`$")
_PLACE = re.compile(r"line (\d+),? pos (\d+)")
_TABLES_MAX = 64
_WRONG_QUERY = ("ParseException", "AnalysisException")


@contextmanager
def answer_by_spark(sql: str, place: SparkPlace, master: str | None) -> Iterator[QueryResult]:
    """The rows must be read inside. The session stays for the next query of the process."""
    logging.getLogger("SQLQueryContextLogger").disabled = True  # pyspark's: a page of Java for each table we look for
    query = _Query(_session(master), sql, place)
    try:
        with query.our_errors():
            yield query.answer()
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
    def __init__(self, spark: Any, sql: str, place: SparkPlace) -> None:
        self._spark = spark
        self._sql = sql
        self._place = place
        self._answer = QueryResult((), iter(()))
        self._tables: list[str] = []

    def answer(self) -> QueryResult:
        frame = self._frame()
        self._answer.columns = once_each(frame.columns)
        self._answer.rows = self._rows(frame)
        return self._answer

    def _frame(self) -> Any:
        """Spark names one table that it misses; it is made, and the query tried again."""
        from pyspark.errors import AnalysisException

        for _ in range(_TABLES_MAX):
            try:
                return self._spark.sql(self._sql)
            except AnalysisException as error:
                if error.getCondition() != _MISSING:
                    raise
                self._add_table(_missing_name(error.getMessageParameters() or {}))
        raise SettingsError(f"the query has more than {_TABLES_MAX} tables: ask for less at a time")

    def _add_table(self, name: str) -> None:
        topics = self._place.catalog.topics()
        if name not in topics:
            raise MissingTable(name).explained(topics, (), self._place.catalog.place)
        parts, note = self._place.table(name, named_columns(self._sql))
        frames = [self._spark.read.format("rocketmq").options(**part).load() for part in parts]
        frame = _with_body_columns(reduce(lambda one, other: one.union(other), frames), self._sql)
        frame.createOrReplaceTempView(f"`{name.replace('`', '``')}`")
        self._tables.append(name)
        self._answer.notes.append(note)

    def drop_tables(self) -> None:
        """The session may serve somebody else next, who means another cluster."""
        for name in self._tables:
            self._spark.catalog.dropTempView(name)

    def _rows(self, frame: Any) -> Iterator[dict[str, object]]:
        from ariane.sql.spark_values import converter

        names = list(self._answer.columns)
        converts = [converter(field.dataType) for field in frame.schema.fields]
        for row in frame.toLocalIterator():
            yield {name: convert(value) for name, convert, value in zip(names, converts, row, strict=True)}

    @contextmanager
    def our_errors(self) -> Iterator[None]:
        from pyspark.errors import PySparkException

        try:
            yield
        except PySparkException as error:
            raise _as_ours(error, self._sql) from error


def _with_body_columns(frame: Any, sql: str) -> Any:
    """As text both: Spark's SQL looks into JSON by functions. Null when the body is none, as with the other engine."""
    from pyspark.sql import functions as F

    text = F.try_validate_utf8(frame.body.cast("string"))
    made = {BODY_TEXT: text, BODY_JSON: F.when(F.try_parse_json(text).isNotNull(), text)}
    return frame.withColumns({name: made[name] for name in named_body_columns(sql)})


def _missing_name(parameters: Mapping[str, str]) -> str:
    found = _NAME.search(parameters.get("relationName", ""))
    return found[1].replace("``", "`") if found else parameters.get("relationName", "?")


def _as_ours(error: Any, sql: str) -> ArianeError:
    said = str(error)
    if type(error).__name__ not in _WRONG_QUERY:
        return _failed(error)
    reason = " ".join(said.split("SQLSTATE", 1)[0].split("\n\n", 1)[0].split()).rstrip(".")
    position = _position(said, sql)
    return SettingsError(f"the query is wrong: {reason}") if position is None else ExpressionError(reason, position)


def _failed(error: Any) -> ArianeError:
    """A task's own error, when that was one of ours. Its cure is an option of Spark, which nobody here has given."""
    from ariane.spark.pipeline.functions import our_error

    ours = our_error(error, "the query failed")
    told, is_loss, _ = str(ours).partition(". The query stops because failOnDataLoss is true")
    if not is_loss:
        return ours
    return StoreError(f"{told}; the answer would not be complete: --engine duckdb gives it without them, and says so")


def _position(said: str, sql: str) -> int | None:
    """Spark counts lines from 1 and the characters in them from 0."""
    found = _PLACE.search(said)
    if found is None:
        return None
    before = sql.splitlines(keepends=True)[: int(found[1]) - 1]
    return sum(map(len, before)) + int(found[2]) + 1
