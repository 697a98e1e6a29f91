"""Sends to many topics. One queue each; NATS has subjects, Redis streams."""

from collections.abc import Iterator, Mapping
from typing import Any

from bench.load.plan import Kind
from bench.scenarios.loads import load, timed, warm_up
from bench.scenarios.scenario import Effort, Measured, Scenario, load_figures
from bench.systems.system import Running, Setup

COUNTS = (1, 100, 1_000, 5_000)
QUICK_COUNTS = (100,)


class Topics(Scenario):
    name = "topics"
    title = "Single sends of 1 KiB to many topics, 16x16, async flush"

    def setups(self, effort: Effort) -> Mapping[str, Setup]:
        return {str(count): Setup(topics=count, queues=1) for count in (QUICK_COUNTS if effort.is_quick else COUNTS)}

    def measure(self, running: Running, setup: str, effort: Effort) -> Iterator[Measured]:
        spread: dict[str, Any] = {"topics": int(setup), "queues": 1}
        warm_up(running, effort, **spread)
        result = load(running, Kind.SEND, connections=16, in_flight=16, body_bytes=1024, **spread, **timed(effort))
        yield Measured(f"{int(setup):,} topics", load_figures(result, running), note=result.first_error)
