"""Latency at the same offered load for all systems: half of the maximum throughput of Apache.

Requests are sent at a fixed rate (open loop), and timed from when they were due.
"""

from collections.abc import Iterator

from bench.load.plan import Kind
from bench.scenarios.loads import load, timed, warm_up
from bench.scenarios.scenario import Effort, Measured, Scenario, load_figures
from bench.systems.system import Running

SHARE = 0.5
IN_FLIGHT_MAX = 100
"""Only determines the size of the generator's tables: an open loop does not wait."""


class OfferedLoad(Scenario):
    name = "offered-load"
    title = "Single sends of 1 KiB at equal offered load, 16 connections, async flush"
    calibrated_on = "apache"

    def __init__(self) -> None:
        self.rate = 0.0

    def calibrate(self, running: Running, effort: Effort) -> None:
        warm_up(running, effort)
        most = load(running, Kind.SEND, connections=16, in_flight=16, body_bytes=1024, **timed(effort))
        self.rate = round(most.messages_per_s * SHARE, -2)

    def measure(self, running: Running, setup: str, effort: Effort) -> Iterator[Measured]:
        warm_up(running, effort)
        result = load(
            running,
            Kind.SEND,
            connections=16,
            in_flight=IN_FLIGHT_MAX,
            body_bytes=1024,
            rate=self.rate,
            **timed(effort),
        )
        yield Measured(
            "half of Apache's maximum",
            load_figures(result, running) | {"offered_per_s": self.rate},
            note=result.first_error,
        )
