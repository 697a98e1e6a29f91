"""A query, run by Spark: for what is too large for one process. The same tables, in Spark's SQL."""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import Any

from ariane.errors import ArianeError, ExpressionError, SettingsError, StoreError
from ariane.sql.answers import Answer
from ariane.sql.columns import BODY_JSON, BODY_TEXT, named_body_columns, named_columns
from ariane.sql.missing_tables import MissingTable
from ariane.sql.silence import java_silenced
from ariane.sql.spark_options import SparkPlace
from ariane.sql.values import once_each

_MISSING = "TABLE_OR_VIEW_NOT_FOUND"
_NAME = re.compile(r"`((?:[^`]|``)*)`$")
_PLACE = re.compile(r"line (\d+),? pos (\d+)")
_TABLES_MAX = 64
_WRONG_QUERY = ("ParseException", "AnalysisException")


@contextmanager
def answer_by_spark(sql: str, place: SparkPlace, master: str | None) -> Iterator[Answer]:
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
        from ariane.spark.sessions import session
    except ImportError:
        raise SettingsError(
            "--engine spark needs the package pyspark, which is not installed: run pip install 'ariane[spark]'"
        ) from None
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    with java_silenced():
        spark = session("ariane sql", master=master, **quiet)
    spark.sparkContext.setLogLevel("OFF")
    return spark


class _Query:
    def __init__(self, spark: Any, sql: str, place: SparkPlace) -> None:
        self._spark = spark
        self._sql = sql
        self._place = place
        self._answer = Answer((), iter(()))
        self._tables: list[str] = []

    def answer(self) -> Answer:
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
    from ariane.spark.pipeline.spark_faults import our_error

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
