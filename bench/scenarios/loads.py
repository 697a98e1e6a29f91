"""Runs of the load generator against a running system, with warm-up."""

from typing import Any

from bench.load.plan import Kind, LoadPlan, LoadResult, run_load
from bench.scenarios.scenario import Effort, Measured, load_figures
from bench.scenarios.warm_up import until_flat
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
        slave_pids=running.slave_pids,
        **more,
    )
    return run_load(plan)


def timed(effort: Effort) -> dict[str, Any]:
    """Every case has a short warm-up of its own: new connections, another kind of load."""
    return {"seconds": effort.seconds, "warm_s": effort.seconds / 4}


def warm_up(running: Running, effort: Effort, kind: Kind = Kind.SEND, *, share: float = 1.0, **more: Any) -> None:
    plan = {"connections": 16, "in_flight": 16, "body_bytes": 1024} | more
    until_flat(running, effort, lambda seconds: load(running, kind, seconds=seconds, **plan).server_us, share=share)


def measured(case: str, running: Running, effort: Effort, kind: Kind, **plan: Any) -> Measured:
    """One timed load as a sample of the case."""
    result = load(running, kind, **plan, **timed(effort))
    return Measured(case, load_figures(result, running), note=result.first_error)
