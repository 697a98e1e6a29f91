"""Delayed messages: the cost of accepting them, and of keeping them until they are due."""

import time
from contextlib import ExitStack
from functools import partial

from bench.load.plan import Kind, Wire
from bench.scenarios.loads import load, warm_up
from bench.scenarios.scenario import Cases, Column, Effort, Measured, Scenario
from bench.systems.system import Running

PENDING, QUICK_PENDING = 100_000, 2_000
LEVEL = 18
"""Two hours, so that none becomes due."""
IDLE_S = 4.0


class Delayed(Scenario):
    name = "delayed"
    title = "100,000 more messages of 1 KiB in each round that are due in two hours: accepted at 16x16, then idle"
    wires = frozenset({Wire.ROCKETMQ})
    columns = (
        Column("messages_per_s", "messages/s", ratio=True),
        Column("server_us", "CPU us", ".1f", ratio=True),
        Column("cpu_percent", "CPU % after", ".2f", ratio=True),
        Column("rss_mb", "RSS MB"),
        Column("refused", "refused"),
    )

    def begin(self, running: Running, setup: str, effort: Effort, stack: ExitStack) -> Cases:
        warm_up(running, effort, delay_level=LEVEL)
        return {"": partial(_measure, running, effort)}


def _measure(running: Running, effort: Effort) -> Measured:
    count = QUICK_PENDING if effort.is_quick else PENDING
    accepted = load(
        running, Kind.SEND, connections=16, in_flight=16, body_bytes=1024, requests=count, delay_level=LEVEL
    )
    cpu_s, began = running.cpu_s(), time.perf_counter()
    time.sleep(1.0 if effort.is_quick else IDLE_S)
    cpu_s, elapsed_s = running.cpu_s() - cpu_s, time.perf_counter() - began
    figures = {
        "messages_per_s": accepted.messages_per_s,
        "server_us": accepted.server_us,
        "cpu_percent": cpu_s / elapsed_s * 100,
        "rss_mb": running.rss_bytes() / 1e6,
        "refused": accepted.refused,
    }
    return Measured(f"{count:,} more", figures, note=accepted.first_error)
