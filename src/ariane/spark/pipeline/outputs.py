"""Sinks: data frames to topics, files and the screen, in a batch or as a stream."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ariane.errors import SettingsError
from ariane.spark.pipeline.connection import Connection, merged
from ariane.spark.pipeline.model import Pipeline, Sink, SinkKind
from ariane.spark.pipeline.progress import ROWS_METRIC, Screen
from ariane.spark.pipeline.views import Views

_ENVELOPE = ("tags", "keys", "shardingKey")
_FORMATS = {
    SinkKind.TOPIC: "rocketmq",
    SinkKind.PARQUET: "parquet",
    SinkKind.DELTA: "ariane_delta",
    SinkKind.ICEBERG: "ariane_iceberg",
}
DEAD_LETTERS = "_dead_letters"


@dataclass(frozen=True, slots=True)
class Output:
    """A sink with the rows that go there."""

    sink: Sink
    rows: DataFrame
    connection: Connection
    is_dead_letters: bool = False

    @property
    def name(self) -> str:
        return self.sink.name

    def counted(self, observation: Any) -> DataFrame:
        return self.rows.observe(observation, F.count(F.lit(1)).alias("rows"))

    def write(self, rows: DataFrame, screen: Screen) -> None:
        """In a batch; `rows` are `self.rows`, counted."""
        if self.sink.kind is SinkKind.CONSOLE:
            _show(screen, self.sink, None, rows)
        else:
            writer: Any = rows.write.format(_FORMATS[self.sink.kind]).options(**self._options()).mode(self.sink.mode)
            (writer.partitionBy(*self.sink.partition_by) if self.sink.partition_by else writer).save()

    def start(self, pipeline: Pipeline, screen: Screen, *, once: bool, interval_s: float) -> StreamingQuery:
        writer = self.counted(ROWS_METRIC).writeStream.queryName(f"{pipeline.name}.{self.name}")
        writer = writer.outputMode(self.sink.mode).option("checkpointLocation", f"{pipeline.checkpoint}/{self.name}")
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{interval_s:g} seconds")
        if self.sink.kind is SinkKind.CONSOLE:
            return writer.foreachBatch(_shower(screen, self.sink)).start()
        writer = writer.format(_FORMATS[self.sink.kind]).options(**self._options())
        return self._partitioned(writer).start()

    def _partitioned(self, writer: DataStreamWriter) -> DataStreamWriter:
        return writer.partitionBy(*self.sink.partition_by) if self.sink.partition_by else writer

    def _options(self) -> dict[str, str]:
        if self.sink.kind is SinkKind.TOPIC:
            return {"topic": self.sink.target, **merged(self.connection, self.sink.options)}
        place = "table" if self.sink.kind is SinkKind.ICEBERG else "path"
        return {place: self.sink.target, **self.sink.options}


def outputs(pipeline: Pipeline, views: Views, connection: Connection) -> list[Output]:
    """The file's sinks, behind the places for dead letters: nothing of a body that did not fit is lost by a failure."""
    dead = [_dead_output(pipeline, name, rows, connection) for name, rows in views.dead.items()]
    return [*dead, *(_output(pipeline, sink, views, connection) for sink in pipeline.sinks.values())]


def _output(pipeline: Pipeline, sink: Sink, views: Views, connection: Connection) -> Output:
    rows = views.frames[sink.view]
    if sink.as_json:
        rows = as_json_bodies(rows)
    if sink.kind is SinkKind.TOPIC:
        _check_messages(pipeline, sink, rows)
    return Output(sink, rows, connection)


def _check_messages(pipeline: Pipeline, sink: Sink, rows: DataFrame) -> None:
    from ariane.spark.outgoing import check_schema

    try:
        check_schema(rows.schema, sink.target)
    except SettingsError as error:
        cure = "" if sink.as_json else ", or say `json: true`, and each row becomes one JSON body"
        raise SettingsError(f"{pipeline.place(sink.line)}: sink {sink.name}: {error}{cure}") from None


def _dead_output(pipeline: Pipeline, source: str, rows: DataFrame, connection: Connection) -> Output:
    place = pipeline.sources[source].dead_letters
    assert place is not None
    name = source + DEAD_LETTERS
    sink = Sink(name=name, line=pipeline.sources[source].line, kind=place.kind, view=source, target=place.target)
    return Output(sink, rows, connection, is_dead_letters=True)


def as_json_bodies(rows: DataFrame) -> DataFrame:
    """Each row as one JSON body. `tags`, `keys` and `shardingKey` are the message's; anything else is in the body."""
    own = [name for name in rows.columns if name in _ENVELOPE]
    inside = [F.col(f"`{name}`") for name in rows.columns if name not in _ENVELOPE]
    return rows.select(F.to_json(F.struct(*inside)).alias("body"), *own)


def _shower(screen: Screen, sink: Sink) -> Callable[[DataFrame, int], None]:
    """Every partition must be read, not only those that are shown: each has a piece of the query's state to commit."""

    def show(rows: DataFrame, batch: int) -> None:
        kept = rows.persist()
        try:
            if kept.count():
                _show(screen, sink, batch, kept)
        finally:
            kept.unpersist()

    return show


def _show(screen: Screen, sink: Sink, batch: int | None, rows: DataFrame) -> None:
    """One row more than is shown tells whether there are more."""
    limit = int(sink.target)
    found = [row.asDict(recursive=True) for row in rows.limit(limit + 1).collect()]
    screen.table(sink.name, batch, found[:limit], len(found) > limit)
