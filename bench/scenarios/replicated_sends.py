"""Single sends to a broker alone and to masters of one and two slaves; what a copy costs, and how long it takes."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from bench.load.plan import Kind, Wire
from bench.scenarios.loads import load, timed
from bench.scenarios.replicated import PAIRS, Logs, is_pair_at_most, setups_of, warm
from bench.scenarios.scenario import Cases, Column, Effort, Measured, Scenario, load_figures
from bench.systems.system import Flush, Running, Setup, System

SHAPES = {"16x16": (16, 16), "4x256": (4, 256)}
LATENCY_LABELS = ("alone", "SYNC_MASTER, 1 slave", "SYNC_MASTER, 2 slaves")
ONE, OFFERED = "one at a time", "2,000/s"
OFFERED_PLAN = {"connections": 16, "in_flight": 100, "rate": 2_000.0}
COLUMNS: tuple[Column, ...] = (
    Column("messages_per_s", "messages/s", ratio=True),
    Column("server_us", "CPU us", ".1f", ratio=True),
    Column("slave_us", "slave us", ".1f", ratio=True),
    Column("p50_us", "p50 us"),
    Column("p99_us", "p99 us"),
    Column("generator_us", "gen. us", ".1f"),
    Column("refused", "refused"),
)


class _Replicated(Scenario):
    wires = frozenset({Wire.ROCKETMQ})
    columns: tuple[Column, ...] = COLUMNS
    labels: tuple[str, ...] = tuple(PAIRS)
    flush = Flush.ASYNC
    plans: Mapping[str, dict[str, Any]]

    def setups(self, effort: Effort) -> Mapping[str, Setup]:
        return setups_of(self.labels, self.flush)

    def has_setup(self, system: System, label: str) -> bool:
        return is_pair_at_most(system, label)

    def begin(self, running: Running, setup: str, effort: Effort, stack: ExitStack) -> Cases:
        logs = Logs(running)
        logs.await_equal()
        warm(running, effort)
        return {
            (case := f"{name}, {setup}"): partial(_measure, case, running, logs, effort, plan)
            for name, plan in self.plans.items()
        }


class ReplicatedSends(_Replicated):
    room_gb = 40
    plans: Mapping[str, dict[str, Any]] = {
        name: {"connections": connections, "in_flight": in_flight} for name, (connections, in_flight) in SHAPES.items()
    }

    def __init__(self, flush: Flush) -> None:
        self.flush = flush
        self.name = f"replication-{flush}"
        self.title = (
            f"Sends of 1 KiB to masters, {flush} flush; CPU us is the master's; rates are bounded by the cores that "
            "master, slaves and generator share"
        )


class ReplicatedLatency(_Replicated):
    name = "replication-latency"
    title = "Latency of acknowledged copies: 1 KiB, one message at a time, and at a fixed offered load; async flush"
    room_gb = 20
    labels = LATENCY_LABELS
    plans: Mapping[str, dict[str, Any]] = {ONE: {"connections": 1, "in_flight": 1}, OFFERED: OFFERED_PLAN}
    columns = tuple(column._replace(ratio=True) if column.figure == "p50_us" else column for column in COLUMNS)


def _measure(case: str, running: Running, logs: Logs, effort: Effort, plan: Mapping[str, Any]) -> Measured:
    logs.await_equal()
    result = load(running, Kind.SEND, body_bytes=1024, **plan, **timed(effort))
    figures = load_figures(result, running)
    if running.slaves and result.messages:
        figures["slave_us"] = result.slaves_cpu_s / result.messages / len(running.slaves) * 1e6
    return Measured(case, figures, note=result.first_error)
