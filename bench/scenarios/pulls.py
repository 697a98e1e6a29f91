"""Pulls of 32 messages from the page cache, eight queues interleaved in one log."""

from contextlib import ExitStack
from functools import partial

from bench.load.plan import Kind, LoadResult
from bench.load.rocketmq import OFFSET_FIRST
from bench.scenarios.loads import load, timed
from bench.scenarios.scenario import Cases, Effort, Measured, Scenario, load_figures
from bench.scenarios.warm_up import until_flat
from bench.systems.system import Running
from interop.processes import wait_until

SHAPES = ((16, 4), (1, 8))
COUNT = 32
BODY_BYTES = 1024
FILLED, QUICK_FILLED = 9_992, OFFSET_FIRST + 32 * COUNT
"""Messages of each queue."""
QUEUES = 8


class Pulls(Scenario):
    name = "pulls"
    title = "Pulls of 32 x 1 KiB from page cache; latencies are a pull's, all else a message's"

    def begin(self, running: Running, setup: str, effort: Effort, stack: ExitStack) -> Cases:
        filled = QUICK_FILLED if effort.is_quick else FILLED
        fill(running, filled * QUEUES)
        wait_until(lambda: _is_readable(running, filled), f"{running.name}: all messages readable", 60.0)
        until_flat(running, effort, lambda seconds: _pull(running, filled, 16, 4, seconds=seconds).server_us)
        return {
            f"{connections}x{in_flight}": partial(_measure, running, effort, filled, connections, in_flight)
            for connections, in_flight in SHAPES[: 1 if effort.is_quick else None]
        }


def _measure(running: Running, effort: Effort, filled: int, connections: int, in_flight: int) -> Measured:
    result = _pull(running, filled, connections, in_flight, **timed(effort))
    return Measured(f"{connections}x{in_flight}", load_figures(result, running), note=result.first_error)


def fill(running: Running, messages: int, body_bytes: int = BODY_BYTES) -> None:
    """On one connection and in order, so that the offset of each message is known."""
    load(running, Kind.FILL, connections=1, in_flight=64, body_bytes=body_bytes, requests=messages)


def _is_readable(running: Running, filled: int) -> bool:
    """Apache's queues are written by a thread that follows the log."""
    return not _pull(running, filled, 1, 1, requests=(filled - OFFSET_FIRST) // COUNT * QUEUES).refused


def _pull(running: Running, filled: int, connections: int, in_flight: int, **more: float) -> LoadResult:
    return load(
        running,
        Kind.PULL,
        connections=connections,
        in_flight=in_flight,
        body_bytes=BODY_BYTES,
        messages_a_request=COUNT,
        filled=filled,
        **more,
    )
