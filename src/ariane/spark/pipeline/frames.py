"""Sources as data frames."""

import json
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ariane.errors import SettingsError
from ariane.spark.cluster import cluster_for
from ariane.spark.offsets import to_nested
from ariane.spark.option_values import read_options
from ariane.spark.pipeline.connection import Connection, merged
from ariane.spark.pipeline.json_rows import bad_rows, columns_to_read, good_rows, parsed
from ariane.spark.pipeline.model import Mode, Pipeline, Source, SourceKind
from ariane.spark.planning import Planner
from ariane.spark.read_options import ReadOptions


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
