"""A slave that follows 50,000 messages a second: its CPU for a message, and how far it is behind its master."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from bench.load.plan import Kind, Wire
from bench.log_ends import lag_of, sampled
from bench.scenarios.loads import load
from bench.scenarios.replicated import Logs, setups_of, warm
from bench.scenarios.scenario import Cases, Column, Effort, Measured, Scenario
from bench.systems.system import Running, Setup

PAIR = "ASYNC_MASTER, 1 slave"
RATE, SLOW_RATE = 50_000.0, 10_000.0
BATCH = 10
CASES: dict[str, tuple[Kind, dict[str, Any]]] = {
    "10,000/s": (Kind.SEND, {"rate": SLOW_RATE}),
    "50,000/s": (Kind.SEND, {"rate": RATE}),
    "50,000/s in batches of 10": (Kind.BATCH, {"rate": RATE / BATCH, "messages_a_request": BATCH}),
}
SECONDS_MIN = 4.0


class ReplicatedLag(Scenario):
    name = "replication-lag"
    title = "A slave at offered loads of 1 KiB messages, ASYNC_MASTER, async flush; what was offered is in messages/s"
    wires = frozenset({Wire.ROCKETMQ})
    room_gb = 20
    columns = (
        Column("messages_per_s", "messages/s", ratio=True),
        Column("server_us", "CPU us", ".1f", ratio=True),
        Column("slave_us", "slave us", ".1f", ratio=True),
        Column("lag_p50_ms", "lag p50 ms", ".1f"),
        Column("lag_p99_ms", "p99 ms", ".1f", ratio=True),
        Column("lag_p99_kb", "p99 kB", ratio=True),
        Column("generator_us", "gen. us", ".1f"),
        Column("refused", "refused"),
    )

    def setups(self, effort: Effort) -> Mapping[str, Setup]:
        return setups_of((PAIR,))

    def begin(self, running: Running, setup: str, effort: Effort, stack: ExitStack) -> Cases:
        logs = Logs(running)
        logs.await_equal()
        warm(running, effort)
        return {case: partial(_measure, case, running, logs, effort) for case in CASES}


def _measure(case: str, running: Running, logs: Logs, effort: Effort) -> Measured:
    logs.await_equal()
    kind, plan = CASES[case]
    seconds = effort.seconds if effort.is_quick else max(effort.seconds, SECONDS_MIN)
    with sampled(logs.master, logs.slaves[0]) as samples:
        shape = {"connections": 16, "in_flight": 100, "body_bytes": 1024}
        result = load(running, kind, **shape, **plan, seconds=seconds, warm_s=seconds / 4)
    lag = lag_of(samples)
    figures = {
        "messages_per_s": result.messages_per_s,
        "server_us": result.server_us,
        "slave_us": result.slaves_cpu_s / max(result.messages, 1) * 1e6,
        "lag_p50_ms": lag.p50_ms,
        "lag_p99_ms": lag.p99_ms,
        "lag_p99_kb": lag.p99_bytes / 1e3,
        "generator_us": result.own_us,
        "refused": result.refused,
    }
    return Measured(case, figures, note=result.first_error)
