"""Runs `ariane pipeline run`. Spark starts only after all other checks have passed."""

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ariane.cli.common.connection import Connection
from ariane.cli.pipeline.screen import PipelineScreen
from ariane.errors import SettingsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ariane.spark.pipeline.model import Pipeline


@dataclass(frozen=True, slots=True)
class SparkLog:
    """A file for the output of Spark, whose JVM and Python workers write pages to the stderr that they inherit.

    While Spark starts, stderr is this file. Spark's processes keep writing there, while the command's own lines go to
    the real stderr. The file is deleted after a successful run, and its name is printed after a failure. With --debug
    everything goes to stderr.
    """

    path: Path

    def silence(self) -> None:
        """PySpark also logs an SQL error to stderr, as pages of JSON, before it raises the error."""
        from pyspark.logger import PySparkLogger

        for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            PySparkLogger.getLogger(name).disabled = True

    @contextmanager
    def inherited(self) -> Iterator[None]:
        """Processes that are started inside the block inherit the file as stderr."""
        sys.stderr.flush()
        real = os.dup(2)
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            os.dup2(file, 2)
            yield
        finally:
            sys.stderr.flush()
            os.dup2(real, 2)
            os.close(file)
            os.close(real)


@contextmanager
def spark_log() -> Iterator[SparkLog]:
    """Deleted at the end, unless there is an error."""
    handle, name = tempfile.mkstemp(prefix="ariane-spark-", suffix=".log")
    os.close(handle)
    log = SparkLog(Path(name))
    try:
        yield log
    except (KeyboardInterrupt, SettingsError):  # an error in the pipeline's file: Spark's log has no more details
        log.path.unlink(missing_ok=True)
        raise
    except Exception:
        click.echo(f"Spark's log: {log.path}", err=True)
        raise
    log.path.unlink(missing_ok=True)


# Defaults for a command; `spark:` in the pipeline's file overrides them.
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
    """Whether Spark's log goes to stderr."""

    def run(self) -> int:
        try:
            import pyspark  # noqa: F401
        except ImportError:
            raise SettingsError("a pipeline needs Spark, which is not installed: pip install 'ariane[spark]'") from None
        from ariane.spark.pipeline.checks import check_inputs_exist
        from ariane.spark.pipeline.dataframes import resolve_topics
        from ariane.spark.pipeline.functions import connection_options
        from ariane.spark.pipeline.progress import MetricsFile
        from ariane.spark.pipeline.run import PipelineRun

        options = connection_options(self.connection.settings)
        check_inputs_exist(self.pipeline, options)
        pipeline = resolve_topics(self.pipeline, options)
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
    """Replaces Spark's own handler, which cancels the current micro-batch. The second signal stops at once."""

    def on_signal(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
