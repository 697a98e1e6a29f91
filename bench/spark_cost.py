"""What a Spark action costs: wall seconds, and processor seconds of the JVM and all Python workers below it."""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    wall_s: float
    cpu_s: float

    def per_core_s(self, rows: int) -> float:
        return rows / self.cpu_s

    def per_s(self, rows: int) -> float:
        return rows / self.wall_s


def best_cost(spark: SparkSession, action: Callable[[], object], rounds: int, others: Iterable[int] = ()) -> Cost:
    """Of several rounds behind one that warms up: the least of each, since other work can only add. `others` are the
    processes that work for it too, such as a broker."""
    roots = [jvm_pid(spark), *others]
    action()
    costs = [_cost(action, roots) for _ in range(rounds)]
    return Cost(min(one.wall_s for one in costs), min(one.cpu_s for one in costs))


def jvm_pid(spark: SparkSession) -> int:
    process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    return int(process.pid)


def _cost(action: Callable[[], object], roots: list[int]) -> Cost:
    cpu, wall = sum(map(_tree_s, roots)), time.perf_counter()
    action()
    wall = time.perf_counter() - wall
    return Cost(wall, sum(map(_tree_s, roots)) - cpu)


def _tree_s(root: int) -> float:
    """Processor time of a process and its descendants, those that ended and were waited for included."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it may end while it is looked at
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
                ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    found, total = [root], 0
    while found:
        pid = found.pop()
        total += ticks.get(pid, 0)
        found += children.get(pid, [])
    return total / _TICKS
