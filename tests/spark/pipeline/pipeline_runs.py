"""Runs a pipeline's text against a cluster, and records what it displayed."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from ariane.spark.pipeline.dataframes import resolve_topics
from ariane.spark.pipeline.load import load_pipeline
from ariane.spark.pipeline.progress import MetricsFile, SinkProgress
from ariane.spark.pipeline.run import PipelineRun
from tests.spark.cluster_fixture import ClusterFixture


class Recorder:
    """A screen that only remembers."""

    def __init__(self, on_progress: Callable[[Sequence[SinkProgress]], None] | None = None) -> None:
        self.tables: dict[str, list[Mapping[str, object]]] = {}
        self.left_out: set[str] = set()
        self.seen: list[SinkProgress] = []
        self._on_progress = on_progress

    def progress(self, sinks: Sequence[SinkProgress]) -> None:
        self.seen += [dataclasses.replace(sink) for sink in sinks]
        if self._on_progress is not None:
            self._on_progress(sinks)

    def table(self, sink: str, batch: int | None, rows: Sequence[Mapping[str, object]], left_out: bool) -> None:
        self.tables[sink] = list(rows)
        if left_out:
            self.left_out.add(sink)


def run_file(
    spark: SparkSession,
    cluster: ClusterFixture,
    file: Path,
    params: Mapping[str, str],
    screen: Recorder,
    *,
    once: bool = True,
    stop: Event | None = None,
    metrics: Path | None = None,
) -> dict[str, SinkProgress]:
    connection = {"nameServer": cluster.nameserver}
    pipeline = resolve_topics(load_pipeline(file, params, cluster.nameserver), connection)
    kept = None if metrics is None else MetricsFile.at(pipeline.name, str(metrics))
    run = PipelineRun(
        pipeline, connection, screen, stop or Event(), once=once and pipeline.mode == "stream", metrics=kept
    )
    return {sink.name: sink for sink in run.run(spark)}
