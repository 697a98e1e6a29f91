"""The goals with Apache's Java client: rate and CPU for a message beside a warm Apache, case by case."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from bench.report.goals import CPU, RATE, Goal, Outcomes, ratio, verdict
from bench.scenarios.java_loads import BATCHES, CONSUMERS, SINGLE_SENDS, SYNC_SENDS, TRANSACTIONS, JavaCase, java_labels


class Limits(NamedTuple):
    """Ratios to Apache."""

    rate: float
    cpu: float


class JavaGoal(NamedTuple):
    measure: str
    rate: Goal
    cpu: Goal


SMALL_BODY = 128
_SINGLE = Limits(1.3, 0.6)
_SINGLE_SMALL = Limits(1.2, 0.7)
_OTHERS: tuple[tuple[str, str, Mapping[str, JavaCase], Limits], ...] = (
    ("java-batches", "batches, ", BATCHES, Limits(1.1, 0.9)),
    ("java-transactions", "transactions, ", TRANSACTIONS, Limits(1.1, 0.9)),
    ("java-consumer", "push consumer, ", CONSUMERS, Limits(1.1, 0.8)),
    ("java-sends-sync", "sync flush, ", SYNC_SENDS, Limits(1.3, 0.7)),
)


def java_goals(outcomes: Outcomes) -> Iterator[JavaGoal]:
    for label, case in java_labels(SINGLE_SENDS):
        limits = _SINGLE_SMALL if case.body_bytes == SMALL_BODY else _SINGLE
        yield _goal(outcomes, "java-sends", "", label, limits)
    for scenario, prefix, cases, limits in _OTHERS:
        for label, _ in java_labels(cases):
            yield _goal(outcomes, scenario, prefix, label, limits)


def _goal(outcomes: Outcomes, scenario: str, prefix: str, case: str, limits: Limits) -> JavaGoal:
    measure = prefix + case
    return JavaGoal(
        measure,
        Goal(measure, limits.rate, False, ratio(outcomes, scenario, case, RATE)),
        Goal(measure, limits.cpu, True, ratio(outcomes, scenario, case, CPU)),
    )


def java_goal_lines(outcomes: Outcomes) -> Iterator[str]:
    yield f"{'ours / a warm Apache 4.9.7':<44}{'rate':>6}  {'goal':<20}{'CPU':>6}  goal"
    for goal in java_goals(outcomes):
        yield f"{goal.measure:<44}{_cells(goal.rate):<28}{_cells(goal.cpu)}".rstrip()


def _cells(goal: Goal) -> str:
    reached = "-" if goal.reached is None else f"{goal.reached:.2f}"
    return f"{reached:>6}  {goal.sign} {goal.limit:g} {verdict(goal)}"
