"""Single sends: every size of body, every number of connections and of requests in flight."""

from collections.abc import Iterator, Mapping

from bench.load.plan import Kind
from bench.scenarios.loads import load, timed, warm_up
from bench.scenarios.scenario import Effort, Measured, Scenario, load_figures
from bench.systems.system import Flush, Running, Setup

BODIES = {"1 KiB": 1024, "100 B": 100}
SHAPES = ((1, 1), (1, 16), (16, 16), (4, 256), (64, 16))
SYNC_SHAPES = ((1, 1), (1, 16), (16, 8), (16, 16), (4, 256), (64, 16))
QUICK_SHAPES = ((1, 1), (16, 16))


class Sends(Scenario):
    def __init__(self, flush: Flush) -> None:
        self.flush = flush
        self.name = f"sends-{flush}"
        self.title = f"Single sends, {flush} flush; connections x requests in flight of each"
        self.many_brokers = flush is Flush.ASYNC

    def setups(self, effort: Effort) -> Mapping[str, Setup]:
        return {"": Setup(flush=self.flush)}

    def measure(self, running: Running, setup: str, effort: Effort) -> Iterator[Measured]:
        warm_up(running, effort)
        for body, body_bytes in list(BODIES.items())[: 1 if effort.is_quick else None]:
            for connections, in_flight in self._shapes(effort):
                result = load(
                    running,
                    Kind.SEND,
                    connections=connections,
                    in_flight=in_flight,
                    body_bytes=body_bytes,
                    **timed(effort),
                )
                yield Measured(
                    f"{body} {connections}x{in_flight}", load_figures(result, running), note=result.first_error
                )

    def _shapes(self, effort: Effort) -> tuple[tuple[int, int], ...]:
        if effort.is_quick:
            return QUICK_SHAPES
        return SYNC_SHAPES if self.flush is Flush.SYNC else SHAPES
