"""Sources as data frames."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyspark import StorageLevel
from pyspark.errors import ParseException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import MapType, StringType, StructType

from ariane.errors import SettingsError
from ariane.spark.cluster import cluster_for
from ariane.spark.offsets import to_nested
from ariane.spark.options.base import read_options
from ariane.spark.options.read import ReadOptions
from ariane.spark.pipeline.checks import sources_of, view_order
from ariane.spark.pipeline.functions import Connection, find_function, merged, our_error
from ariane.spark.pipeline.model import Mode, Pipeline, PythonStep, Sink, SinkKind, Source, SourceKind, SqlStep
from ariane.spark.pipeline.progress import ROWS_METRIC, Screen
from ariane.spark.read.planning import Planner

# --- json_rows ---
#
# Bodies that are JSON, taken apart by Spark itself: one read gives the rows that fit the schema and those that do not.
#
# Spark's own parser is used, and not the data source's `format=json`: here a body that does not fit must reach its
# place byte for byte, with the place that it came from.

PARSED = "_ariane_parsed"
_MISFIT = "_ariane_misfit"
USUAL_COLUMNS = ("queueId", "queueOffset", "msgId", "tags", "keys", "bornTimestamp", "storeTimestamp")
PLACE_COLUMNS = ("topic", "brokerName", "queueId", "queueOffset", "msgId", "tags", "keys", "storeTimestamp", "body")


def columns_to_read(source: Source, fields: list[str]) -> list[str]:
    """Of each message: what the view shows, the body, and with dead letters where it came from."""
    place = PLACE_COLUMNS if source.dead_letters is not None else ("body",)
    return list(dict.fromkeys((*message_columns(source, fields), *place)))


def message_columns(source: Source, fields: list[str]) -> list[str]:
    """A field of the body wins over the message's own column of that name, unless it was asked for."""
    if source.columns is not None:
        return [name for name in source.columns if name != "body"]
    return [name for name in USUAL_COLUMNS if name not in fields]


def parsed(raw: DataFrame, schema: StructType) -> DataFrame:
    """`raw` with the column PARSED."""
    wanted = StructType([*schema.fields]).add(_MISFIT, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MISFIT}
    return raw.withColumn(PARSED, F.from_json(_text(), wanted, options))


def good_rows(rows: DataFrame, schema: StructType, source: Source) -> DataFrame:
    """Without a place for dead letters the first body that does not fit stops the query: none is ever left out."""
    fields = schema.fieldNames()
    if source.dead_letters is not None:
        rows = rows.where(~_is_bad())
    else:
        told = F.concat(F.lit(f"source {source.name}: "), _reason(), F.lit(", at queue offset "), _offset(rows))
        cure = F.lit(". Give the source `dead_letters: {parquet: PATH}` to keep such bodies apart")
        rows = rows.withColumn(PARSED, F.when(_is_bad(), F.raise_error(F.concat(told, cure))).otherwise(F.col(PARSED)))
    own = [F.col(name) for name in message_columns(source, fields) if name not in fields]
    return rows.select(*(F.col(PARSED).getField(name).alias(name) for name in fields), *own)


def bad_rows(rows: DataFrame, source: Source) -> DataFrame:
    """What does not fit, whole, for the place that the source names."""
    bad = rows.where(_is_bad()).select(*PLACE_COLUMNS, _reason().alias("reason"))
    assert source.dead_letters is not None
    return as_dead_messages(bad) if source.dead_letters.kind is SinkKind.TOPIC else bad


def as_dead_messages(bad: DataFrame) -> DataFrame:
    """The same body, tags and keys; where it came from is in the properties."""
    place = {"originTopic": "topic", "originBroker": "brokerName", "originQueueId": "queueId"}
    place |= {"originQueueOffset": "queueOffset", "originMsgId": "msgId", "deadReason": "reason"}
    pairs = [piece for name, column in place.items() for piece in (F.lit(name), F.col(column).cast("string"))]
    full = F.map_filter(F.create_map(*pairs), lambda _, value: value.isNotNull())
    return bad.select("body", "tags", "keys", full.alias("properties"))


def _text() -> Column:
    return F.col("body").cast("string")


def _offset(rows: DataFrame) -> Column:
    return F.col("queueOffset").cast("string") if "queueOffset" in rows.columns else F.lit("unknown")


def _is_bad() -> Column:
    """An empty body, and the JSON `null`, give no row at all."""
    return F.col(PARSED).isNull() | F.col(PARSED).getField(_MISFIT).isNotNull()


def _reason() -> Column:
    is_object = F.from_json(_text(), MapType(StringType(), StringType())).isNotNull()
    return (
        F.when(F.octet_length("body") == 0, F.lit("the body is empty"))
        .when(is_object, F.lit("a field of the body does not fit the schema"))
        .otherwise(F.lit("the body is no JSON object"))
    )


# ---


@dataclass(frozen=True, slots=True)
class SourceFrames:
    rows: DataFrame
    dead: DataFrame | None
    """Bodies that do not fit, when the source names a place for them."""


def look_up_topics(pipeline: Pipeline, connection: Connection) -> Pipeline:
    """Asks for every topic before Spark starts, so that a cluster that cannot be reached is told at once.

    In a batch the ends of all queues are noted: each sink then sees the same messages, however many arrive meanwhile.
    """
    topics = [source for source in pipeline.sources.values() if source.kind is SourceKind.TOPIC]
    found = {source.name: _with_ends(source, pipeline.mode, connection) for source in topics}
    return replace(pipeline, sources={**pipeline.sources, **found})


def _with_ends(source: Source, mode: Mode, connection: Connection) -> Source:
    options = read_options(ReadOptions, merged(connection, source.options))
    planner = Planner(cluster_for(options.client_settings()), options)
    queues = planner.queues()
    if source.is_stream(mode) or options.ending != "latest":
        return source
    ends = {queue: end.next for queue, end in planner.ends(queues).items()}
    return replace(source, options={**source.options, "endingOffsets": json.dumps(to_nested(ends))})


def source_frames(spark: SparkSession, pipeline: Pipeline, source: Source, connection: Connection) -> SourceFrames:
    schema = None if source.schema is None else _schema(pipeline, source, source.schema)
    is_stream = source.is_stream(pipeline.mode)
    reader: Any = spark.readStream if is_stream else spark.read
    if source.kind is SourceKind.FILES:
        reader = reader.format(source.format) if schema is None else reader.format(source.format).schema(schema)
        return SourceFrames(_with_watermark(reader.options(**source.options).load(), source), None)
    options = merged(connection, source.options) | _column_options(source, schema)
    if is_stream:
        _start_at_the_beginning(options)
    raw = reader.format("rocketmq").options(**options).load()
    if schema is None:
        return SourceFrames(_with_watermark(raw, source), None)
    rows = parsed(raw, schema)
    good = _with_watermark(good_rows(rows, schema, source), source)
    return SourceFrames(good, None if source.dead_letters is None else bad_rows(rows, source))


def _start_at_the_beginning(options: dict[str, str]) -> None:
    """Unless the file names a start: a new pipeline that shows nothing until a message arrives puzzles people."""
    if not {"startingoffsets", "startingtimestamp"} & {name.lower() for name in options}:
        options["startingOffsets"] = "earliest"


def _column_options(source: Source, schema: StructType | None) -> dict[str, str]:
    if schema is not None:
        return {"columns": ",".join(columns_to_read(source, schema.fieldNames()))}
    return {} if source.columns is None else {"columns": ",".join(source.columns)}


def _schema(pipeline: Pipeline, source: Source, text: str) -> StructType:
    try:
        schema = StructType.fromDDL(text)
    except ParseException as error:
        told = (error.getMessage() or str(error)).partition("\n")[0]
        raise SettingsError(
            f"{pipeline.place(source.schema_line)}: schema of source {source.name} cannot be read: {told}"
        ) from None
    assert isinstance(schema, StructType)
    return schema


def _with_watermark(rows: DataFrame, source: Source) -> DataFrame:
    if source.watermark is None or not rows.isStreaming:
        return rows
    return rows.withWatermark(source.watermark.column, source.watermark.delay)


# --- views ---
#
# Sources and steps as temporary views. Everything is analysed here, before anything runs: a column that does not exist
# is told with the line of the file.

_POSITION = re.compile(r"\bline (\d+),? pos(?:ition)? \d+")


@dataclass(frozen=True, slots=True)
class Views:
    frames: Mapping[str, DataFrame]
    dead: Mapping[str, DataFrame]
    """By source: bodies that did not fit."""


@contextmanager
def made_views(spark: SparkSession, pipeline: Pipeline, connection: Connection) -> Iterator[Views]:
    """Gone at the end, so that pipelines of one session do not see each other's."""
    frames: dict[str, DataFrame] = {}
    dead: dict[str, DataFrame] = {}
    kept: list[DataFrame] = []
    try:
        for source in pipeline.sources.values():
            made = _source(spark, pipeline, source, connection)
            frames[source.name] = made.rows
            if made.dead is not None:
                dead[source.name] = made.dead
            if _is_read_twice(pipeline, source.name):
                kept.append(made.rows.persist(StorageLevel.MEMORY_AND_DISK))
            made.rows.createOrReplaceTempView(source.name)
        for name in view_order(pipeline):
            frames[name] = _step(spark, pipeline, name, frames)
            frames[name].createOrReplaceTempView(name)
        yield Views(frames, dead)
    finally:
        for frame in kept:
            frame.unpersist()
        for name in frames:
            spark.catalog.dropTempView(name)


def _is_read_twice(pipeline: Pipeline, source: str) -> bool:
    """Whether several sinks of a batch need it: reading a topic again costs more than keeping its rows."""
    sinks = [sink for sink in pipeline.sinks.values() if source in sources_of(pipeline, sink.view)]
    return pipeline.mode is Mode.BATCH and len(sinks) > 1


def _source(spark: SparkSession, pipeline: Pipeline, source: Source, connection: Connection) -> SourceFrames:
    try:
        return source_frames(spark, pipeline, source, connection)
    except PySparkException as error:
        raise our_error(error, f"{pipeline.place(source.line)}: source {source.name}") from error


def _step(spark: SparkSession, pipeline: Pipeline, name: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    step = pipeline.steps[name]
    if isinstance(step, SqlStep):
        return _sql(spark, pipeline, step)
    assert isinstance(step, PythonStep)
    try:
        made = find_function(step, pipeline.directory)(*(frames[view] for view in step.inputs), **step.args)
    except Exception as error:  # the user's own function
        told = our_error(error, f"{pipeline.place(step.line)}: step {name}: {step.function} failed")
        raise SettingsError(f"{told}") from error
    if not isinstance(made, DataFrame):
        raise SettingsError(
            f"{pipeline.place(step.line)}: step {name}: {step.function} must give a DataFrame back, and gave "
            f"{type(made).__name__}"
        )
    return made


def _sql(spark: SparkSession, pipeline: Pipeline, step: SqlStep) -> DataFrame:
    try:
        return spark.sql(step.sql)
    except PySparkException as error:
        text = str(error)
        found = _POSITION.search(text)
        line = step.line + (int(found[1]) - 1 if found and step.is_block else 0)
        raise SettingsError(f"{our_error(error, f'{pipeline.place(line)}: step {step.name}')}") from error


# --- outputs ---
#
# Sinks: data frames to topics, files and the screen, in a batch or as a stream.

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
    from ariane.spark.write.rows import check_schema

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
