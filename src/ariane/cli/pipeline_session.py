"""One run of `ariane pipeline run`, from the file to the exit code. Spark starts when all else is known to be right."""

import signal
import threading
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ariane.cli.connection import Connection
from ariane.cli.pipeline_screen import PipelineScreen
from ariane.cli.pipeline_spark_log import SparkLog, spark_log
from ariane.errors import SettingsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ariane.spark.pipeline.model import Pipeline

# What suits a command; `spark:` in the file wins.
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


@dataclass(frozen=True, slots=True)
class PipelineSession:
    pipeline: "Pipeline"
    connection: Connection
    screen: PipelineScreen
    master: str | None
    once: bool
    interval_s: float | None
    metrics: str | None
    debug: bool
    """Whether Spark's own words are wanted."""

    def run(self) -> int:
        try:
            import pyspark  # noqa: F401
        except ImportError:
            raise SettingsError("a pipeline needs Spark, which is not installed: pip install 'ariane[spark]'") from None
        from ariane.spark.pipeline.connection import connection_options
        from ariane.spark.pipeline.frames import look_up_topics
        from ariane.spark.pipeline.job_checks import look_up_places
        from ariane.spark.pipeline.metrics import MetricsFile
        from ariane.spark.pipeline.run import PipelineRun

        options = connection_options(self.connection.settings)
        look_up_places(self.pipeline, options)
        pipeline = look_up_topics(self.pipeline, options)
        metrics = self.metrics or pipeline.metrics
        file = None if metrics is None else MetricsFile.at(pipeline.name, metrics)
        stop = threading.Event()
        run = PipelineRun(pipeline, options, self.screen, stop, self.once, file, self.interval_s)
        with nullcontext() if self.debug else spark_log() as log:
            spark = self._spark(log)
            try:
                if self.pipeline.mode == "stream":
                    _stop_on_signal(stop)
                run.run(spark)
            finally:
                self.screen.close()
                spark.stop()
        return 0

    def _spark(self, log: SparkLog | None) -> "SparkSession":
        from ariane.spark import session

        if self.screen.is_terminal:
            click.echo("starting Spark ...", err=True)
        settings: dict[str, Any] = {**_SETTINGS, **self.pipeline.spark}
        if log is not None:
            log.silence()
        with nullcontext() if log is None else log.inherited():
            return session(f"ariane pipeline {self.pipeline.name}", master=self.master, **settings)


def _stop_on_signal(stop: threading.Event) -> None:
    """In place of Spark's own handler, which cancels the micro-batch that runs. The second signal does not wait."""

    def on_signal(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
