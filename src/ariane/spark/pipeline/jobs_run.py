"""Jobs: archive, replay and rebuild, which are programs of their own and tell how far they are."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from pyspark.sql import SparkSession

from ariane.errors import SettingsError
from ariane.spark.pipeline.connection import Connection
from ariane.spark.pipeline.job_checks import job_texts
from ariane.spark.pipeline.model import JobStep, Pipeline
from ariane.spark.pipeline.progress import SinkProgress
from ariane.spark.pipeline.spark_faults import our_error

Job = Callable[[SparkSession, Mapping[str, str], Callable[[dict[str, object]], None]], dict[str, object]]


def run_jobs(
    spark: SparkSession,
    pipeline: Pipeline,
    connection: Connection,
    report: Callable[[], None],
    states: Sequence[SinkProgress],
) -> None:
    for job, state in zip(pipeline.jobs, states, strict=True):
        state.state = "running"
        report()
        began = monotonic()
        try:
            told = find_job(pipeline, job)(spark, job_texts(job, connection), _teller(state, report))
        except KeyboardInterrupt:
            state.state = "stopped"
            raise
        except Exception as error:
            state.state = "failed"
            raise our_error(error, f"job {job.name} failed") from error
        _note(state, told)
        state.state, state.batch_s = "done", monotonic() - began
        report()


def find_job(pipeline: Pipeline, job: JobStep) -> Job:
    try:
        module: Any = importlib.import_module(f"ariane.spark.jobs.{job.job}")
    except ImportError as error:
        raise SettingsError(f"{pipeline.place(job.line)}: job {job.job} is not installed: {error}") from None
    run: Job = module.run
    return run


def _teller(state: SinkProgress, report: Callable[[], None]) -> Callable[[dict[str, object]], None]:
    def tell(facts: dict[str, object]) -> None:
        _note(state, facts)
        report()

    return tell


def _note(state: SinkProgress, facts: Mapping[str, object]) -> None:
    state.facts.update(facts)
    rows = facts.get("rows")
    if isinstance(rows, int):
        state.rows_written = rows
