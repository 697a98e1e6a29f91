"""The cost of a Spark action: wall seconds, and processor seconds of the JVM and all its Python workers."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

WARM_CORE_S = 16.0
EARLY_READS = 15
"""After the first one of a session: with logs of 1 GiB a job of half a minute."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    wall_s: float
    cpu_s: float

    def per_core_s(self, rows: int) -> float:
        return rows / self.cpu_s

    def per_s(self, rows: int) -> float:
        return rows / self.wall_s


@dataclass(frozen=True, slots=True)
class Stages:
    """The cost of the same action while a session grows older."""

    first: Cost
    """Nothing is compiled yet."""
    early: Cost
    """The mean of the next ones."""
    best_early: Cost
    """The least of them."""
    settled: Cost
    """The least of some more, when the JVM's compiler has done most of its work."""


def stages(spark: SparkSession, action: Callable[[], object], rounds: int, settled_core_s: float) -> Stages:
    roots = [jvm_pid(spark)]
    first = _cost(action, roots)
    early = [_cost(action, roots) for _ in range(EARLY_READS)]
    spent_s = first.cpu_s + sum(cost.cpu_s for cost in early)
    settled = best_cost(spark, action, rounds, warm_core_s=settled_core_s - spent_s)
    return Stages(first, _mean(early), least(early), settled)


def _mean(costs: Sequence[Cost]) -> Cost:
    return Cost(sum(cost.wall_s for cost in costs) / len(costs), sum(cost.cpu_s for cost in costs) / len(costs))


def best_cost(
    spark: SparkSession,
    action: Callable[[], object],
    rounds: int,
    others: Iterable[int] = (),
    warm_core_s: float = WARM_CORE_S,
) -> Cost:
    """The least of several rounds, since other work on the machine can only add. `others` are further processes that
    take part, such as a broker."""
    return best_costs(spark, [action], rounds, others, warm_core_s)[0]


def best_costs(
    spark: SparkSession,
    actions: Sequence[Callable[[], object]],
    rounds: int,
    others: Iterable[int] = (),
    warm_core_s: float = WARM_CORE_S,
) -> list[Cost]:
    """For actions that are compared: they alternate, because the other work of the machine varies.

    First they warm up: a JVM compiles what it does often while it does it, and in the first seconds that takes as
    much processor time as the rows. The warm-up counts processor seconds, too: on a busy machine wall time passes while
    nothing is compiled.
    """
    roots = [jvm_pid(spark), *others]
    warmed_s = 0.0
    while warmed_s < warm_core_s * len(actions):
        warmed_s += sum(_cost(action, roots).cpu_s for action in actions)
    costs = [[_cost(action, roots) for action in actions] for _ in range(rounds)]
    return [least(of_action) for of_action in zip(*costs, strict=True)]


def least(costs: Iterable[Cost]) -> Cost:
    measured = list(costs)
    return Cost(min(cost.wall_s for cost in measured), min(cost.cpu_s for cost in measured))


def jvm_pid(spark: SparkSession) -> int:
    process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    return int(process.pid)


def _cost(action: Callable[[], object], roots: list[int]) -> Cost:
    before, wall = _ticks(roots), time.perf_counter()
    action()
    wall = time.perf_counter() - wall
    # Spark ends workers that were idle for a minute: their earlier processor time must not be subtracted.
    ticks = sum(ticks - before.get(pid, 0) for pid, ticks in _ticks(roots).items())
    return Cost(wall, ticks / _TICKS)


def _ticks(roots: list[int]) -> dict[int, int]:
    """Processor time of these processes and their descendants; a process has that of children it waited for."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it may end meanwhile
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
                ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    pending, tree = list(roots), dict[int, int]()
    while pending:
        pid = pending.pop()
        tree[pid] = ticks.get(pid, 0)
        pending += children.get(pid, [])
    return tree
