"""Latency of one message at a time: with the settings that a user gets, which differ, and with equal ones."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from bench.load.plan import Kind, Wire
from bench.scenarios.loads import measured, warm_up
from bench.scenarios.scenario import LATENCY_COLUMNS, Cases, Effort, Scenario
from bench.systems.system import Flush, Running, Setup

DEFAULT = "default settings"
ASYNC = "async flush"


class Latency(Scenario):
    name = "latency"
    title = "One message of 1 KiB at a time; by default Ariane syncs before it acknowledges, and Apache does not"
    columns = LATENCY_COLUMNS

    def setups(self, effort: Effort) -> Mapping[str, Setup]:
        return {DEFAULT: Setup(flush=Flush.DEFAULT), ASYNC: Setup()}

    def begin(self, running: Running, setup: str, effort: Effort, stack: ExitStack) -> Cases:
        if setup == DEFAULT and running.wire is not Wire.ROCKETMQ:
            return {}  # the setup of NATS and Redis has no default
        shape: dict[str, Any] = {"connections": 1, "in_flight": 1, "body_bytes": 1024}
        warm_up(running, effort, **shape)
        return {setup: partial(measured, setup, running, effort, Kind.SEND, **shape)}
