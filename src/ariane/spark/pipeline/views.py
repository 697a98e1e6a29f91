"""Sources and steps as temporary views. Everything is analysed here, before anything runs: a column that does not exist
is told with the line of the file."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ariane.errors import SettingsError
from ariane.spark.pipeline.checks import sources_of, view_order
from ariane.spark.pipeline.connection import Connection
from ariane.spark.pipeline.frames import SourceFrames, source_frames
from ariane.spark.pipeline.functions import find_function
from ariane.spark.pipeline.model import Mode, Pipeline, PythonStep, Source, SqlStep
from ariane.spark.pipeline.spark_faults import our_error

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
