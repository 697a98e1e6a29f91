"""Start-up time, and memory and CPU when idle."""

import time
from contextlib import ExitStack
from functools import partial

from bench.scenarios.scenario import Cases, Column, Effort, Measured, Scenario
from bench.systems.ariane import ArianeUp
from bench.systems.system import Running

IDLE_S = 5.0


class Start(Scenario):
    name = "start"
    title = "Start of an empty system and its cost when idle; RocketMQ's and Ariane's with the nameserver"
    alone = True
    rounds_max = 3
    more_systems = (ArianeUp(),)
    columns = (
        Column("ready_s", "ready s", ".2f", ratio=True),
        Column("idle_rss_mb", "RSS MB", ratio=True),
        Column("cpu_percent", "CPU %", ".2f"),
    )

    def begin(self, running: Running, setup: str, effort: Effort, stack: ExitStack) -> Cases:
        return {"": partial(_measure, running, effort)}


def _measure(running: Running, effort: Effort) -> Measured:
    cpu_s, began = running.cpu_s(), time.perf_counter()
    time.sleep(1.0 if effort.is_quick else IDLE_S)
    cpu_s, elapsed_s = running.cpu_s() - cpu_s, time.perf_counter() - began
    figures = {
        "ready_s": running.ready_s,
        "idle_rss_mb": running.rss_bytes_of_all() / 1e6,
        "cpu_percent": cpu_s / elapsed_s * 100,
    }
    return Measured("empty", figures)
