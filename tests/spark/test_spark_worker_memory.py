"""What a worker has imported is kept out of the collector's sight; a driver's process is left alone."""

import gc

from pyspark.sql import SparkSession

from ariane.spark.jobs.tasks import run_tasks
from ariane.spark.worker_memory import keep_imports


def _frozen(_: int) -> int:
    return gc.get_freeze_count()


def test_a_worker_has_its_modules_frozen(spark: SparkSession) -> None:
    assert min(run_tasks(spark, _frozen, [0, 1, 2, 3])) > 10_000


def test_what_a_task_leaves_behind_is_still_collected(spark: SparkSession) -> None:
    assert all(run_tasks(spark, _is_collected, [0, 1]))


def _is_collected(_: int) -> bool:
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    return gc.isenabled() and gc.collect() >= 1


def test_a_driver_is_left_alone() -> None:
    before = gc.get_freeze_count()
    keep_imports.__wrapped__()
    assert gc.get_freeze_count() == before
