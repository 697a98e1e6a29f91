"""Sends to many topics. One queue each; NATS has subjects, Redis streams."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from bench.load.plan import Kind
from bench.scenarios.loads import measured, warm_up
from bench.scenarios.scenario import Cases, Effort, Scenario
from bench.systems.system import Running, Setup

COUNTS = (1, 5_000)
QUICK_COUNTS = (100,)


class Topics(Scenario):
    name = "topics"
    title = "Single sends of 1 KiB to many topics, 16x16, async flush"

    def setups(self, effort: Effort) -> Mapping[str, Setup]:
        return {str(count): Setup(topics=count, queues=1) for count in (QUICK_COUNTS if effort.is_quick else COUNTS)}

    def begin(self, running: Running, setup: str, effort: Effort, stack: ExitStack) -> Cases:
        spread: dict[str, Any] = {"topics": int(setup), "queues": 1}
        warm_up(running, effort, **spread)
        shape = {"connections": 16, "in_flight": 16, "body_bytes": 1024}
        case = f"{int(setup):,} topics"
        return {case: partial(measured, case, running, effort, Kind.SEND, **shape, **spread)}
