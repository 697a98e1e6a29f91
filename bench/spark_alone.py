"""One way to read, alone in a Spark session: a process that bench/spark.py starts, and that prints what it cost.

A JVM compiles a call for the types that it has met there, so a reader may cost more where another one runs too. Who
runs a job reads with one or the other, as a rule; so each is measured by itself, and sessions of both take turns. How
they do in one session is measured as well.

A session can also be pinned to as many processors as it has cores. A core of Spark is a thread of the JVM and a Python
worker, and these are two processes: left alone, a session of one core may work on two.
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

_WAYS: dict[str, Callable[[SparkSession, Path], DataFrame]] = {"direct": direct, "parquet": parquet, "tuples": tuples}
# A JVM that sees one processor takes another collector than one that sees two: the same one for what is compared.
_PINNED = {"spark.driver.extraJavaOptions": "-XX:+UseG1GC"}


class Alone(msgspec.Struct, frozen=True, kw_only=True):
    """What one process shall do."""

    way: str
    path: str
    rounds: int
    cores: int = 2
    pinned: bool = False
    warm_core_s: float = WARM_CORE_S
    in_stages: bool = False
    """Whether to tell what reads cost before it is warm, too."""


@contextmanager
def running(cores: int, **settings: str) -> Iterator[SparkSession]:
    fixed = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "2g"}
    spark = session("bench", master=f"local[{cores}]", **fixed, **settings)
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def costs_in_turns(asked: Sequence[Alone], turns: int) -> list[Cost]:
    """The least of each over its sessions, which take turns: A, B, A, B."""
    costs = [[_told(one, Cost) for one in asked] for _ in range(turns)]
    return [least(of_one) for of_one in zip(*costs, strict=True)]


def stages_in_turns(asked: Sequence[Alone], turns: int) -> list[Stages]:
    """The same for each stage of a session."""
    told = [[_told(replace(one, in_stages=True), Stages) for one in asked] for _ in range(turns)]
    return [
        Stages(*(least(getattr(one, field.name) for one in of_one) for field in fields(Stages)))
        for of_one in zip(*told, strict=True)
    ]


def _told(asked: Alone, kind: type[T]) -> T:
    command = [sys.executable, "-m", "bench.spark_alone", msgspec.json.encode(asked).decode()]
    told = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(told.stdout.splitlines()[-1], type=kind)


def _measure(asked: Alone) -> Cost | Stages:
    if asked.pinned:  # before the JVM starts: it and its workers inherit this
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: asked.cores])
    way, path = _WAYS[asked.way], Path(asked.path)
    with running(asked.cores, **(_PINNED if asked.pinned else {})) as spark:

        def read() -> None:
            discard(way(spark, path))

        if asked.in_stages:
            return stages(spark, read, asked.rounds, asked.warm_core_s)
        return best_cost(spark, read, asked.rounds, warm_core_s=asked.warm_core_s)


if __name__ == "__main__":
    cost = _measure(msgspec.json.decode(sys.argv[1], type=Alone))
    print(msgspec.json.encode(cost).decode(), flush=True)
