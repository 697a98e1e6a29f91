"""Latency at the same offered load for all systems: half of the maximum of Apache with async flush, and 2,000 sends a
second with sync flush.

Requests are sent at a fixed rate (open loop), and timed from when they were due.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial

from bench.load.plan import Kind
from bench.scenarios.loads import load, timed, warm_up
from bench.scenarios.scenario import LATENCY_COLUMNS, Cases, Effort, Measured, Scenario, load_figures
from bench.systems.system import Flush, Running, Setup

HALF = "half of Apache's maximum"
FIXED = "2,000/s, sync flush"
FIXED_RATE = 2_000.0
SHARE = 0.5
IN_FLIGHT_MAX = 100
"""Only determines the size of the generator's tables: an open loop does not wait."""
SHAPE = {"connections": 16, "in_flight": 16, "body_bytes": 1024}


class OfferedLoad(Scenario):
    name = "offered-load"
    title = "Single sends of 1 KiB at equal offered load, 16 connections; async flush unless it says sync"
    columns = LATENCY_COLUMNS
    calibrated_on = "apache"

    def __init__(self) -> None:
        self._half_rate = 0.0

    def setups(self, effort: Effort) -> Mapping[str, Setup]:
        return {HALF: Setup(), FIXED: Setup(flush=Flush.SYNC)}

    def begin(self, running: Running, setup: str, effort: Effort, stack: ExitStack) -> Cases:
        warm_up(running, effort)
        if setup == HALF and not self._half_rate:  # the first to begin is Apache
            most = load(running, Kind.SEND, **SHAPE, **timed(effort))
            self._half_rate = round(most.messages_per_s * SHARE, -2)
        rate = self._half_rate if setup == HALF else FIXED_RATE
        return {setup: partial(_measure, setup, rate, running, effort)}


def _measure(case: str, rate: float, running: Running, effort: Effort) -> Measured:
    plan = SHAPE | {"in_flight": IN_FLIGHT_MAX}
    result = load(running, Kind.SEND, rate=rate, **plan, **timed(effort))
    return Measured(case, load_figures(result, running) | {"offered_per_s": rate}, note=result.first_error)
