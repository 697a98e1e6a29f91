"""Imported objects of a worker are excluded from garbage collection; a driver's process is left alone."""

import gc
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from pyspark.sql import SparkSession

from ariane.spark.jobs.tasks import run_tasks
from ariane.spark.worker_memory import keep_imports
from tests.arrow.log_fixtures import fill

_READS = """
import sys
from ariane.spark.source import RocketmqSource
source = RocketmqSource({"storePath": sys.argv[1], "topic": "orders", "columns": "topic,queueOffset,body"})
reader = source.reader(source.schema())
rows = sum(batch.num_rows for partition in reader.partitions() for batch in reader.read(partition))
print(rows, "pandas" in sys.modules)
"""


def _frozen(_: int) -> int:
    return gc.get_freeze_count()


def test_a_worker_has_its_modules_frozen(spark: SparkSession) -> None:
    assert min(run_tasks(spark, _frozen, [0, 1, 2, 3])) > 10_000


def test_later_imports_are_frozen_when_the_next_task_begins(spark: SparkSession) -> None:
    assert all(more >= 200 for more in run_tasks(spark, _frozen_more, [0]))


def _frozen_more(_: int) -> int:
    """How many more objects are frozen behind the import of many modules."""
    before = gc.get_freeze_count()
    made = {f"made_for_a_test_{number}": ModuleType("made") for number in range(200)}
    sys.modules.update(made)
    keep_imports()
    for name in made:
        del sys.modules[name]
    return gc.get_freeze_count() - before


def test_garbage_of_a_task_is_still_collected(spark: SparkSession) -> None:
    assert all(run_tasks(spark, _is_collected, [0, 1]))


def _is_collected(_: int) -> bool:
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    return gc.isenabled() and gc.collect() >= 1


def test_a_driver_is_left_alone() -> None:
    before = gc.get_freeze_count()
    keep_imports()
    assert gc.get_freeze_count() == before


def test_a_log_is_planned_and_read_without_pandas(tmp_path: Path) -> None:
    """Half a second of each process that a session's first read starts; pyarrow imports it for what it need not."""
    fill(tmp_path)
    process = subprocess.run([sys.executable, "-c", _READS, str(tmp_path)], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["150", "False"]
