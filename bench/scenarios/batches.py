"""Batches: several messages in one request. Only RocketMQ has such a request."""

from contextlib import ExitStack
from functools import partial

from bench.load.plan import Kind, Wire
from bench.scenarios.loads import measured, warm_up
from bench.scenarios.scenario import Cases, Effort, Scenario
from bench.systems.system import Running

CASES = {
    "32 x 100 B, 4x16": (32, 100, 4, 16),
    "10 x 1 KiB, 4x16": (10, 1024, 4, 16),
    "500 x 1 KiB, 1x1": (500, 1024, 1, 1),
}


class Batches(Scenario):
    name = "batches"
    title = "Batch sends, async flush; latencies are a batch's, all else a message's"
    wires = frozenset({Wire.ROCKETMQ})

    def begin(self, running: Running, setup: str, effort: Effort, stack: ExitStack) -> Cases:
        warm_up(running, effort, Kind.BATCH, messages_a_request=4)
        return {
            case: partial(
                measured,
                case,
                running,
                effort,
                Kind.BATCH,
                connections=connections,
                in_flight=in_flight,
                body_bytes=body_bytes,
                messages_a_request=size,
            )
            for case, (size, body_bytes, connections, in_flight) in list(CASES.items())[
                : 1 if effort.is_quick else None
            ]
        }
