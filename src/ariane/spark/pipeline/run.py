"""One run of a pipeline, from its views to its last row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event

from pyspark.sql import SparkSession

from ariane.spark.pipeline.batch_run import run_batch
from ariane.spark.pipeline.connection import Connection
from ariane.spark.pipeline.jobs_run import run_jobs
from ariane.spark.pipeline.metrics import MetricsFile
from ariane.spark.pipeline.model import Mode, Pipeline
from ariane.spark.pipeline.outputs import outputs
from ariane.spark.pipeline.progress import Screen, SinkProgress
from ariane.spark.pipeline.stream_run import StreamRun
from ariane.spark.pipeline.views import made_views


@dataclass(slots=True)
class PipelineRun:
    pipeline: Pipeline
    connection: Connection
    screen: Screen
    stop: Event
    """Set by somebody else to end a stream."""
    once: bool = False
    metrics: MetricsFile | None = None
    interval_s: float | None = None

    def run(self, spark: SparkSession) -> list[SinkProgress]:
        """How far each sink came; raises an ArianeError for whatever failed, after the metrics have been written."""
        states: list[SinkProgress] = []
        try:
            self._run(spark, states)
        except BaseException as error:
            self._report(states, "stopped" if isinstance(error, KeyboardInterrupt) else "failed")
            raise
        self._report(states, "stopped" if self.stop.is_set() else "done")
        return states

    def _run(self, spark: SparkSession, states: list[SinkProgress]) -> None:
        report = self._reporter(states)
        if self.pipeline.jobs:
            states += [SinkProgress(job.name) for job in self.pipeline.jobs]
            run_jobs(spark, self.pipeline, self.connection, report, states)
            return
        with made_views(spark, self.pipeline, self.connection) as views:
            made = outputs(self.pipeline, views, self.connection)
            states += [SinkProgress(one.name, one.is_dead_letters) for one in made]
            if self.pipeline.mode is Mode.BATCH:
                run_batch(spark, made, self.screen, report, states)
            else:
                interval_s = self.pipeline.interval_s if self.interval_s is None else self.interval_s
                StreamRun(self.pipeline, self.screen, report, self.stop, self.once, interval_s).run(made, states)

    def _reporter(self, states: Sequence[SinkProgress]) -> Callable[[], None]:
        return lambda: self._report(states, "running")

    def _report(self, states: Sequence[SinkProgress], state: str) -> None:
        self.screen.progress(states)
        if self.metrics is not None:
            self.metrics.write(state, states)
