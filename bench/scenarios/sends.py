"""Single sends: every size of body, every number of connections and of requests in flight, both serialisations."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from bench.load.plan import Kind, Serialization, Wire
from bench.scenarios.loads import measured, warm_up
from bench.scenarios.scenario import Cases, Effort, Scenario
from bench.systems.system import Flush, Running, Setup

BODIES = {"1 KiB": 1024, "100 B": 100}


class Shape(NamedTuple):
    body: str
    connections: int
    in_flight: int

    @property
    def label(self) -> str:
        return f"{self.body} {self.connections}x{self.in_flight}"

    @property
    def plan(self) -> dict[str, Any]:
        return {"connections": self.connections, "in_flight": self.in_flight, "body_bytes": BODIES[self.body]}


SHAPES = {
    Flush.ASYNC: (
        Shape("1 KiB", 16, 16),
        Shape("1 KiB", 4, 256),
        Shape("1 KiB", 64, 16),
        Shape("100 B", 16, 16),
        Shape("100 B", 4, 256),
    ),
    Flush.SYNC: (
        Shape("1 KiB", 1, 1),
        Shape("1 KiB", 16, 8),
        Shape("1 KiB", 16, 16),
        Shape("1 KiB", 4, 256),
    ),
}
BINARY_SHAPES = {
    Flush.ASYNC: (Shape("1 KiB", 16, 16), Shape("1 KiB", 4, 256), Shape("100 B", 16, 16)),
    Flush.SYNC: (Shape("1 KiB", 16, 16),),
}
QUICK = 2
MANY_SHAPES = {Flush.ASYNC: (Shape("1 KiB", 16, 16), Shape("1 KiB", 4, 256))}
"""For several broker processes."""


class Sends(Scenario):
    def __init__(self, flush: Flush) -> None:
        self.flush = flush
        self.name = f"sends-{flush}"
        self.title = (
            f"Single sends, {flush} flush; connections x requests in flight of each; JSON headers unless binary"
        )
        self.many_brokers = flush is Flush.ASYNC
        self.room_gb = 30 if flush is Flush.ASYNC else 16

    def setups(self, effort: Effort) -> Mapping[str, Setup]:
        return {"": Setup(flush=self.flush)}

    def begin(self, running: Running, setup: str, effort: Effort, stack: ExitStack) -> Cases:
        has_many = len(running.servers) > 1
        cases = self._cases(running, effort, MANY_SHAPES if has_many else SHAPES, "", Serialization.JSON)
        if running.wire is Wire.ROCKETMQ and not has_many:
            cases |= self._cases(running, effort, BINARY_SHAPES, "binary ", Serialization.BINARY)
        return cases

    def _cases(
        self,
        running: Running,
        effort: Effort,
        shapes: Mapping[Flush, tuple[Shape, ...]],
        prefix: str,
        serialization: Serialization,
    ) -> dict[str, Any]:
        """Warmed up with the same serialisation: Apache compiles a decoder of its own for it."""
        warm_up(running, effort, serialization=serialization)
        cases = {}
        for shape in shapes[self.flush][: QUICK if effort.is_quick else None]:
            label = prefix + shape.label
            plan = shape.plan | {"serialization": serialization}
            cases[label] = partial(measured, label, running, effort, Kind.SEND, **plan)
        return cases
