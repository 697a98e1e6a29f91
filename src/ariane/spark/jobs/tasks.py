"""One piece of work in one Spark task, and what it says when it is done.

The pieces travel with the function, the answers come back as JSON texts: small, whatever the work was. It needs nothing
that Spark Connect does not have.
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

_LOOK_S = 0.5
_USUAL_CORES = 2


def run_tasks(
    spark: SparkSession, work: Callable[[W], object], pieces: Sequence[W], meanwhile: Callable[[], None] | None = None
) -> list[Any]:
    """What `work` said of each piece, in their order. `meanwhile` is called every half second while they run.

    An answer is one of the task that Spark counts: of one that was repeated, nothing else is heard.
    """
    if not pieces:
        return []
    frame = spark.range(0, len(pieces), 1, len(pieces)).mapInArrow(
        partial(_answers, work, list(pieces)), "piece long, response string"
    )
    rows = frame.collect() if meanwhile is None else _watched(frame.collect, meanwhile)
    return [json.loads(row.response) for row in sorted(rows, key=lambda row: row.piece)]


def _answers(
    work: Callable[[W], object], pieces: Sequence[W], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    keep_imports()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            response = json.dumps(work(pieces[number]))
            yield pa.RecordBatch.from_pydict(
                {"piece": pa.array([number], pa.int64()), "response": pa.array([response])}
            )


def _watched(collect: Callable[[], list[Any]], meanwhile: Callable[[], None]) -> list[Any]:
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(collect)
        while True:
            try:
                return waiting.result(_LOOK_S)
            except TimeoutError:
                if waiting.done():
                    raise
                meanwhile()


def cores(spark: SparkSession) -> int:
    """How many tasks run at a time."""
    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except PySparkException:  # Spark Connect does not tell
        return _USUAL_CORES
