"""Runs a function in one Spark task for each item, and returns the results.

The items are pickled with the function, and each result comes back as a short JSON text. Only features of Spark Connect
are used.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ariane.spark.worker_memory import keep_imports

W = TypeVar("W")
Progress = Callable[[dict[str, object]], None]

_POLL_S = 0.5
_DEFAULT_CORES = 2


def run_tasks(
    spark: SparkSession, run: Callable[[W], object], items: Sequence[W], meanwhile: Callable[[], None] | None = None
) -> list[Any]:
    """The results of `run`, in the order of the items. `meanwhile` is called every half second while the tasks run.

    If Spark repeats a task, only the attempt that it accepts returns a result.
    """
    if not items:
        return []
    frame = spark.range(0, len(items), 1, len(items)).mapInArrow(
        partial(_responses, run, list(items)), "item long, response string"
    )
    rows = frame.collect() if meanwhile is None else _collect_while(frame.collect, meanwhile)
    return [json.loads(row.response) for row in sorted(rows, key=lambda row: row.item)]


def _responses(
    run: Callable[[W], object], items: Sequence[W], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    keep_imports()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            response = json.dumps(run(items[number]))
            yield pa.RecordBatch.from_pydict({"item": pa.array([number], pa.int64()), "response": pa.array([response])})


def _collect_while(collect: Callable[[], list[Any]], meanwhile: Callable[[], None]) -> list[Any]:
    with ThreadPoolExecutor(1) as thread:
        rows = thread.submit(collect)
        while True:
            try:
                return rows.result(_POLL_S)
            except TimeoutError:
                if rows.done():
                    raise
                meanwhile()


def cores(spark: SparkSession) -> int:
    """How many tasks run at a time."""
    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except PySparkException:  # Spark Connect does not report it
        return _DEFAULT_CORES
