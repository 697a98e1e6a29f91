"""The goals of replication: what a copy costs the master, and beside a pair of Apache."""

from collections.abc import Iterator

from bench.outcome import OURS
from bench.report.goals import CPU, RATE, Goal, Outcomes, line, ratio
from bench.scenarios.replicated import ALONE, ASYNC_MASTER, SYNC_MASTER
from bench.scenarios.replicated_sends import OFFERED, ONE, SHAPES
from bench.systems.system import Flush

FLUSHES = (Flush.ASYNC, Flush.SYNC)
CPU_MAX, RATE_MIN, ADDED_MS_MAX = 1.15, 1.3, 0.5


def replication_goals(outcomes: Outcomes) -> Iterator[Goal]:
    for flush in FLUSHES:
        for role in (ASYNC_MASTER, SYNC_MASTER):
            for shape in SHAPES:
                yield Goal(
                    f"CPU, {role}, 2 slaves, {shape}, {flush} flush (x alone)",
                    CPU_MAX,
                    True,
                    _beside_alone(outcomes, f"replication-{flush}", shape, f"{role}, 2 slaves", CPU),
                )
    for flush in FLUSHES:
        case = f"16x16, {SYNC_MASTER}, 1 slave"
        yield Goal(
            f"sends/s, SYNC_MASTER, 16x16, {flush} flush (x Apache)",
            RATE_MIN,
            False,
            ratio(outcomes, f"replication-{flush}", case, RATE),
        )
    for load in (ONE, OFFERED):
        for slaves in ("1 slave", "2 slaves"):
            yield Goal(
                f"p50, SYNC_MASTER, {slaves}, {load} (ms above alone)",
                ADDED_MS_MAX,
                True,
                _added_ms(outcomes, load, f"{SYNC_MASTER}, {slaves}"),
            )


def _beside_alone(outcomes: Outcomes, scenario: str, load: str, label: str, figure: str) -> float | None:
    with_slaves, alone = (_median(outcomes, scenario, f"{load}, {name}", figure) for name in (label, ALONE))
    return with_slaves / alone if with_slaves is not None and alone else None


def _added_ms(outcomes: Outcomes, load: str, label: str) -> float | None:
    with_slaves, alone = (
        _median(outcomes, "replication-latency", f"{load}, {name}", "p50_us") for name in (label, ALONE)
    )
    return (with_slaves - alone) / 1e3 if with_slaves is not None and alone is not None else None


def _median(outcomes: Outcomes, scenario: str, case: str, figure: str) -> float | None:
    outcome = outcomes.get(scenario)
    return outcome.median(case, OURS, figure) if outcome else None


def replication_goal_lines(outcomes: Outcomes) -> Iterator[str]:
    yield from map(line, replication_goals(outcomes))
