"""Wall and CPU time of this process since the first message."""

import time

from bench.clients.plan import ClientResult


class Stopwatch:
    def __init__(self) -> None:
        self._began_s, self._cpu_s = time.perf_counter(), time.process_time()

    def result(self, messages: int) -> ClientResult:
        seconds, cpu_s = time.perf_counter() - self._began_s, time.process_time() - self._cpu_s
        return ClientResult(messages=messages, seconds=seconds, cpu_s=cpu_s)
