"""Runs of the load generator against a running system, with warm-up."""

from typing import Any

from bench.load.plan import Kind, LoadPlan, LoadResult, run_load
from bench.scenarios.scenario import Effort
from bench.systems.system import Running


def load(running: Running, kind: Kind, *, connections: int, in_flight: int, body_bytes: int, **more: Any) -> LoadResult:
    plan = LoadPlan(
        wire=running.wire,
        kind=kind,
        addresses=running.addresses,
        connections=connections,
        in_flight=in_flight,
        body_bytes=body_bytes,
        pids=running.servers,
        **more,
    )
    return run_load(plan)


def timed(effort: Effort) -> dict[str, float]:
    """Every case has a short warm-up of its own: new connections, another kind of load."""
    return {"seconds": effort.seconds, "warm_s": effort.seconds / 4}


def warm_up(running: Running, effort: Effort, kind: Kind = Kind.SEND, **more: Any) -> None:
    load(running, kind, connections=16, in_flight=16, body_bytes=1024, seconds=effort.warm_s, **more)
