"""Sources, steps and sinks of a pipeline as Spark data frames."""

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
from ariane.spark.pipeline.functions import Connection, find_function, merged, to_ariane_error
from ariane.spark.pipeline.model import Mode, Pipeline, PythonStep, Sink, SinkKind, Source, SourceKind, SqlStep
from ariane.spark.pipeline.progress import ROWS_METRIC, Screen
from ariane.spark.read.planning import Planner

# --- JSON bodies: one read gives the rows that match the schema, and the dead letters ---
#
# Spark's from_json parses them, and not the data source's `format=json`: here a body that does not match must reach its
# target byte for byte, with its origin. See docs/decisions/pipeline-files.md.

PARSED = "_ariane_parsed"
_CORRUPT = "_ariane_misfit"
DEFAULT_MESSAGE_COLUMNS = ("queueId", "queueOffset", "msgId", "tags", "keys", "bornTimestamp", "storeTimestamp")
ORIGIN_COLUMNS = ("topic", "brokerName", "queueId", "queueOffset", "msgId", "tags", "keys", "storeTimestamp", "body")


def columns_to_read(source: Source, fields: list[str]) -> list[str]:
    """The columns of the view, the body, and for dead letters their origin."""
    more = ORIGIN_COLUMNS if source.dead_letters is not None else ("body",)
    return list(dict.fromkeys((*message_columns(source, fields), *more)))


def message_columns(source: Source, fields: list[str]) -> list[str]:
    """A field of the body hides the message's own column of that name, unless the source selects the column."""
    if source.columns is not None:
        return [name for name in source.columns if name != "body"]
    return [name for name in DEFAULT_MESSAGE_COLUMNS if name not in fields]


def parsed(raw: DataFrame, schema: StructType) -> DataFrame:
    """`raw` with the column PARSED."""
    full = StructType([*schema.fields]).add(_CORRUPT, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return raw.withColumn(PARSED, F.from_json(_text(), full, options))


def good_rows(rows: DataFrame, schema: StructType, source: Source) -> DataFrame:
    """Without a dead letter target the first body that does not match stops the query: none is ever dropped."""
    fields = schema.fieldNames()
    if source.dead_letters is not None:
        rows = rows.where(~_is_bad())
    else:
        error = F.concat(F.lit(f"source {source.name}: "), _reason(), F.lit(", at queue offset "), _offset(rows))
        hint = F.lit(". Give the source `dead_letters: {parquet: PATH}` to write such bodies there")
        rows = rows.withColumn(PARSED, F.when(_is_bad(), F.raise_error(F.concat(error, hint))).otherwise(F.col(PARSED)))
    own = [F.col(name) for name in message_columns(source, fields) if name not in fields]
    return rows.select(*(F.col(PARSED).getField(name).alias(name) for name in fields), *own)


def bad_rows(rows: DataFrame, source: Source) -> DataFrame:
    """Messages whose body does not match, complete, for the dead letter target of the source."""
    bad = rows.where(_is_bad()).select(*ORIGIN_COLUMNS, _reason().alias("reason"))
    assert source.dead_letters is not None
    return as_dead_messages(bad) if source.dead_letters.kind is SinkKind.TOPIC else bad


def as_dead_messages(bad: DataFrame) -> DataFrame:
    """The same body, tags and keys; the origin is in the properties."""
    origin = {"originTopic": "topic", "originBroker": "brokerName", "originQueueId": "queueId"}
    origin |= {"originQueueOffset": "queueOffset", "originMsgId": "msgId", "deadReason": "reason"}
    pairs = [piece for name, column in origin.items() for piece in (F.lit(name), F.col(column).cast("string"))]
    full = F.map_filter(F.create_map(*pairs), lambda _, value: value.isNotNull())
    return bad.select("body", "tags", "keys", full.alias("properties"))


def _text() -> Column:
    return F.col("body").cast("string")


def _offset(rows: DataFrame) -> Column:
    return F.col("queueOffset").cast("string") if "queueOffset" in rows.columns else F.lit("unknown")


def _is_bad() -> Column:
    """from_json returns null for an empty body and for the JSON `null`."""
    return F.col(PARSED).isNull() | F.col(PARSED).getField(_CORRUPT).isNotNull()


def _reason() -> Column:
    is_object = F.from_json(_text(), MapType(StringType(), StringType())).isNotNull()
    return (
        F.when(F.octet_length("body") == 0, F.lit("the body is empty"))
        .when(is_object, F.lit("a field of the body does not match the schema"))
        .otherwise(F.lit("the body is not a JSON object"))
    )


# --- sources ---


@dataclass(frozen=True, slots=True)
class SourceFrames:
    rows: DataFrame
    dead: DataFrame | None
    """Bodies that do not match the schema, if the source has a target for them."""


def resolve_topics(pipeline: Pipeline, connection: Connection) -> Pipeline:
    """Looks up every topic before Spark starts, so that an unreachable cluster is reported early.

    In a batch the end offsets of all queues are fixed here: each sink then sees the same messages, however many arrive
    in between.
    """
    topics = [source for source in pipeline.sources.values() if source.kind is SourceKind.TOPIC]
    resolved = {source.name: _with_end_offsets(source, pipeline.mode, connection) for source in topics}
    return replace(pipeline, sources={**pipeline.sources, **resolved})


def _with_end_offsets(source: Source, mode: Mode, connection: Connection) -> Source:
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
        _default_to_earliest(options)
    raw = reader.format("rocketmq").options(**options).load()
    if schema is None:
        return SourceFrames(_with_watermark(raw, source), None)
    rows = parsed(raw, schema)
    good = _with_watermark(good_rows(rows, schema, source), source)
    return SourceFrames(good, None if source.dead_letters is None else bad_rows(rows, source))


def _default_to_earliest(options: dict[str, str]) -> None:
    """Unless the file names a start: a new pipeline that shows nothing until a message arrives is confusing."""
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
        reason = (error.getMessage() or str(error)).partition("\n")[0]
        raise SettingsError(
            f"{pipeline.location(source.schema_line)}: schema of source {source.name} cannot be parsed: {reason}"
        ) from None
    assert isinstance(schema, StructType)
    return schema


def _with_watermark(rows: DataFrame, source: Source) -> DataFrame:
    if source.watermark is None or not rows.isStreaming:
        return rows
    return rows.withWatermark(source.watermark.column, source.watermark.delay)


# --- sources and steps as temporary views ---
#
# Everything is analysed here, before anything runs: an unknown column is reported with the line of the file.

_POSITION = re.compile(r"\bline (\d+),? pos(?:ition)? \d+")


@dataclass(frozen=True, slots=True)
class Views:
    frames: Mapping[str, DataFrame]
    dead: Mapping[str, DataFrame]
    """Dead letters, by source."""


@contextmanager
def temp_views(spark: SparkSession, pipeline: Pipeline, connection: Connection) -> Iterator[Views]:
    """Dropped at the end, so that pipelines of one session do not see each other's views."""
    frames: dict[str, DataFrame] = {}
    dead: dict[str, DataFrame] = {}
    persisted: list[DataFrame] = []
    try:
        for source in pipeline.sources.values():
            read = _source(spark, pipeline, source, connection)
            frames[source.name] = read.rows
            if read.dead is not None:
                dead[source.name] = read.dead
            if _is_read_several_times(pipeline, source.name):
                persisted.append(read.rows.persist(StorageLevel.MEMORY_AND_DISK))
            read.rows.createOrReplaceTempView(source.name)
        for name in view_order(pipeline):
            frames[name] = _step(spark, pipeline, name, frames)
            frames[name].createOrReplaceTempView(name)
        yield Views(frames, dead)
    finally:
        for frame in persisted:
            frame.unpersist()
        for name in frames:
            spark.catalog.dropTempView(name)


def _is_read_several_times(pipeline: Pipeline, source: str) -> bool:
    """Whether several sinks of a batch need it: reading a topic again costs more than caching its rows."""
    sinks = [sink for sink in pipeline.sinks.values() if source in sources_of(pipeline, sink.view)]
    return pipeline.mode is Mode.BATCH and len(sinks) > 1


def _source(spark: SparkSession, pipeline: Pipeline, source: Source, connection: Connection) -> SourceFrames:
    try:
        return source_frames(spark, pipeline, source, connection)
    except PySparkException as error:
        raise to_ariane_error(error, f"{pipeline.location(source.line)}: source {source.name}") from error


def _step(spark: SparkSession, pipeline: Pipeline, name: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    step = pipeline.steps[name]
    if isinstance(step, SqlStep):
        return _sql(spark, pipeline, step)
    assert isinstance(step, PythonStep)
    try:
        frame = find_function(step, pipeline.directory)(*(frames[view] for view in step.inputs), **step.args)
    except Exception as error:  # the user's own function
        cause = to_ariane_error(error, f"{pipeline.location(step.line)}: step {name}: {step.function} failed")
        raise SettingsError(f"{cause}") from error
    if not isinstance(frame, DataFrame):
        raise SettingsError(
            f"{pipeline.location(step.line)}: step {name}: {step.function} must return a DataFrame, and returned "
            f"{type(frame).__name__}"
        )
    return frame


def _sql(spark: SparkSession, pipeline: Pipeline, step: SqlStep) -> DataFrame:
    try:
        return spark.sql(step.sql)
    except PySparkException as error:
        text = str(error)
        match = _POSITION.search(text)
        line = step.line + (int(match[1]) - 1 if match and step.is_block else 0)
        raise SettingsError(f"{to_ariane_error(error, f'{pipeline.location(line)}: step {step.name}')}") from error


# --- sinks: data frames to topics, files and the terminal, in a batch or as a stream ---

_MESSAGE_COLUMNS = ("tags", "keys", "shardingKey")
_FORMATS = {
    SinkKind.TOPIC: "rocketmq",
    SinkKind.PARQUET: "parquet",
    SinkKind.DELTA: "ariane_delta",
    SinkKind.ICEBERG: "ariane_iceberg",
}
DEAD_LETTERS = "_dead_letters"


@dataclass(frozen=True, slots=True)
class Output:
    """A sink with its rows."""

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
        """Writes in a batch; `rows` are `self.rows`, counted."""
        if self.sink.kind is SinkKind.CONSOLE:
            _display(screen, self.sink, None, rows)
        else:
            writer: Any = rows.write.format(_FORMATS[self.sink.kind]).options(**self._options()).mode(self.sink.mode)
            (writer.partitionBy(*self.sink.partition_by) if self.sink.partition_by else writer).save()

    def start(self, pipeline: Pipeline, screen: Screen, *, once: bool, interval_s: float) -> StreamingQuery:
        writer = self.counted(ROWS_METRIC).writeStream.queryName(f"{pipeline.name}.{self.name}")
        writer = writer.outputMode(self.sink.mode).option("checkpointLocation", f"{pipeline.checkpoint}/{self.name}")
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{interval_s:g} seconds")
        if self.sink.kind is SinkKind.CONSOLE:
            return writer.foreachBatch(_batch_display(screen, self.sink)).start()
        writer = writer.format(_FORMATS[self.sink.kind]).options(**self._options())
        return self._partitioned(writer).start()

    def _partitioned(self, writer: DataStreamWriter) -> DataStreamWriter:
        return writer.partitionBy(*self.sink.partition_by) if self.sink.partition_by else writer

    def _options(self) -> dict[str, str]:
        if self.sink.kind is SinkKind.TOPIC:
            return {"topic": self.sink.target, **merged(self.connection, self.sink.options)}
        option = "table" if self.sink.kind is SinkKind.ICEBERG else "path"
        return {option: self.sink.target, **self.sink.options}


def outputs(pipeline: Pipeline, views: Views, connection: Connection) -> list[Output]:
    """The sinks of the file, after those for dead letters, so that a failure of a sink loses no dead letter."""
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
        hint = "" if sink.as_json else ", or set `json: true`, so that each row becomes one JSON body"
        raise SettingsError(f"{pipeline.location(sink.line)}: sink {sink.name}: {error}{hint}") from None


def _dead_output(pipeline: Pipeline, source: str, rows: DataFrame, connection: Connection) -> Output:
    to = pipeline.sources[source].dead_letters
    assert to is not None
    name = source + DEAD_LETTERS
    sink = Sink(name=name, line=pipeline.sources[source].line, kind=to.kind, view=source, target=to.target)
    return Output(sink, rows, connection, is_dead_letters=True)


def as_json_bodies(rows: DataFrame) -> DataFrame:
    """Each row as one JSON body. `tags`, `keys` and `shardingKey` go to the message, all other columns to the body."""
    own = [name for name in rows.columns if name in _MESSAGE_COLUMNS]
    inside = [F.col(f"`{name}`") for name in rows.columns if name not in _MESSAGE_COLUMNS]
    return rows.select(F.to_json(F.struct(*inside)).alias("body"), *own)


def _batch_display(screen: Screen, sink: Sink) -> Callable[[DataFrame, int], None]:
    """Reads every partition, not only the displayed rows: each partition commits a part of the query's state."""

    def show(rows: DataFrame, batch: int) -> None:
        cached = rows.persist()
        try:
            if cached.count():
                _display(screen, sink, batch, cached)
        finally:
            cached.unpersist()

    return show


def _display(screen: Screen, sink: Sink, batch: int | None, rows: DataFrame) -> None:
    """Collects one row more than it displays, to know whether there are more."""
    limit = int(sink.target)
    first = [row.asDict(recursive=True) for row in rows.limit(limit + 1).collect()]
    screen.table(sink.name, batch, first[:limit], len(first) > limit)
