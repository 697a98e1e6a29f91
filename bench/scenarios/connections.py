"""Many connections with one request in flight each: what a connection more costs."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial

from bench.load.plan import Kind, Wire
from bench.scenarios.loads import measured, warm_up
from bench.scenarios.scenario import Cases, Effort, Scenario
from bench.systems.system import Running, Setup

COUNTS = (256, 2_000)
QUICK_COUNTS = (16, 64)


class Connections(Scenario):
    name = "connections"
    title = "Single sends of 1 KiB over many connections, one request in flight each, async flush"
    wires = frozenset({Wire.ROCKETMQ})

    def setups(self, effort: Effort) -> Mapping[str, Setup]:
        """All connections come from one address here."""
        return {"": Setup(environment=(("ARIANE_BROKER__TRANSPORT__CONNECTIONS_PER_ADDRESS_MAX", "10000"),))}

    def begin(self, running: Running, setup: str, effort: Effort, stack: ExitStack) -> Cases:
        warm_up(running, effort, connections=QUICK_COUNTS[0] if effort.is_quick else COUNTS[0], in_flight=1)
        cases = {}
        for count in QUICK_COUNTS if effort.is_quick else COUNTS:
            case = f"{count:,}x1"
            shape = {"connections": count, "in_flight": 1, "body_bytes": 1024}
            cases[case] = partial(measured, case, running, effort, Kind.SEND, **shape)
        return cases
