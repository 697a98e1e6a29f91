"""Measures one reader alone in a Spark session: a process that bench/spark.py starts, and that prints its cost.

A JVM compiles a call for the types that it has seen there, so a reader may cost more in a session with another one. A
job usually reads with only one of them; so each is measured by itself, in alternating sessions. Both in one session are
measured as well.

A session can also be pinned to as many processors as it has cores. A core of Spark is a thread of the JVM and a Python
worker, which are two processes: without pinning, a session of one core may use two processors.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession

from ariane.spark import session
from bench.spark_cost import WARM_CORE_S, Cost, Stages, best_cost, least, stages
from bench.spark_reads import direct, discard, parquet, tuples

T = TypeVar("T")

_READERS: dict[str, Callable[[SparkSession, Path], DataFrame]] = {
    "direct": direct,
    "parquet": parquet,
    "tuples": tuples,
}
# A JVM with one processor selects another garbage collector than one with two: compare with the same one.
_PINNED = {"spark.driver.extraJavaOptions": "-XX:+UseG1GC"}


class ReaderRun(msgspec.Struct, frozen=True, kw_only=True):
    """What one process measures."""

    reader: str
    path: str
    rounds: int
    cores: int = 2
    pinned: bool = False
    warm_core_s: float = WARM_CORE_S
    in_stages: bool = False
    """Whether to report the cost of reads before it is warm, too."""


@contextmanager
def running(cores: int, **settings: str) -> Iterator[SparkSession]:
    fixed = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "2g"}
    spark = session("bench", master=f"local[{cores}]", **fixed, **settings)
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def costs_in_turns(runs: Sequence[ReaderRun], turns: int) -> list[Cost]:
    """The least of each over its sessions, which take turns: A, B, A, B."""
    costs = [[_run(run, Cost) for run in runs] for _ in range(turns)]
    return [least(of_run) for of_run in zip(*costs, strict=True)]


def stages_in_turns(runs: Sequence[ReaderRun], turns: int) -> list[Stages]:
    """The same for each stage of a session."""
    results = [[_run(replace(run, in_stages=True), Stages) for run in runs] for _ in range(turns)]
    return [
        Stages(*(least(getattr(result, field.name) for result in of_run) for field in fields(Stages)))
        for of_run in zip(*results, strict=True)
    ]


def _run(run: ReaderRun, kind: type[T]) -> T:
    command = [sys.executable, "-m", "bench.spark_alone", msgspec.json.encode(run).decode()]
    process = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(process.stdout.splitlines()[-1], type=kind)


def _measure(run: ReaderRun) -> Cost | Stages:
    if run.pinned:  # before the JVM starts: it and its workers inherit this
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: run.cores])
    reader, path = _READERS[run.reader], Path(run.path)
    with running(run.cores, **(_PINNED if run.pinned else {})) as spark:

        def read() -> None:
            discard(reader(spark, path))

        if run.in_stages:
            return stages(spark, read, run.rounds, run.warm_core_s)
        return best_cost(spark, read, run.rounds, warm_core_s=run.warm_core_s)


if __name__ == "__main__":
    cost = _measure(msgspec.json.decode(sys.argv[1], type=ReaderRun))
    print(msgspec.json.encode(cost).decode(), flush=True)
