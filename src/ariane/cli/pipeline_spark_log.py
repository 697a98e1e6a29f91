"""Spark's own words, kept out of the way: its JVM and its Python workers write pages to stderr, and inherit it once.

While Spark starts, stderr is a file; what was started then keeps writing there, while our own lines are seen. The file
is removed when all went well, and named when something failed that it may explain. With --debug everything is on
stderr, as ever.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from ariane.errors import SettingsError


@dataclass(frozen=True, slots=True)
class SparkLog:
    path: Path

    def silence(self) -> None:
        """Spark's Python side tells an error of SQL to stderr as well, in pages of JSON, before it raises it."""
        from pyspark.logger import PySparkLogger

        for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            PySparkLogger.getLogger(name).disabled = True

    @contextmanager
    def inherited(self) -> Iterator[None]:
        """Whoever is started inside has the file as its stderr."""
        sys.stderr.flush()
        ours = os.dup(2)
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            os.dup2(file, 2)
            yield
        finally:
            sys.stderr.flush()
            os.dup2(ours, 2)
            os.close(file)
            os.close(ours)


@contextmanager
def spark_log() -> Iterator[SparkLog]:
    """Removed at the end, unless it ends with an error."""
    handle, name = tempfile.mkstemp(prefix="ariane-spark-", suffix=".log")
    os.close(handle)
    log = SparkLog(Path(name))
    try:
        yield log
    except (KeyboardInterrupt, SettingsError):  # the file's own mistake is told with its line: Spark knows no more
        log.path.unlink(missing_ok=True)
        raise
    except Exception:
        click.echo(f"Spark's own words are in {log.path}", err=True)
        raise
    log.path.unlink(missing_ok=True)
