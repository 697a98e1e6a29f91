"""Measurements of one run: CPU of server and generator, number of responses, latency of each."""

import time
from collections.abc import Sequence

import numpy as np

from bench.load.plan import LoadPlan, LoadResult
from bench.processes import cpu_s


class Gauge:
    """The generator's loop calls `sent` and `answered`. Lists, not arrays: most reads bring a handful of responses."""

    def __init__(self, plan: LoadPlan, rows: int) -> None:
        self._plan = plan
        self._sent_at_ns = [0] * rows
        self.begin()

    def begin(self) -> None:
        """Resets all counts."""
        self.requests = 0
        self._waits_ns: list[int] = []
        self._began_s = time.perf_counter()
        self._server_s, self._slaves_s = _cpu_of(self._plan.pids), _cpu_of(self._plan.slave_pids)
        self._own_s = time.process_time()

    def sent(self, begin: int, end: int, now_ns: int) -> None:
        self._sent_at_ns[begin:end] = [now_ns] * (end - begin)

    def answered(self, rows: Sequence[int], now_ns: int) -> None:
        self.requests += len(rows)
        sent_at_ns = self._sent_at_ns
        self._waits_ns.extend([now_ns - sent_at_ns[row] for row in rows])

    def result(self, messages: int, refused: int, first_error: str) -> LoadResult:
        seconds = time.perf_counter() - self._began_s
        server_s, own_s = _cpu_of(self._plan.pids) - self._server_s, time.process_time() - self._own_s
        slaves_s = _cpu_of(self._plan.slave_pids) - self._slaves_s
        waits_us = np.array(self._waits_ns or [0]) / 1000
        p50, p99, p999 = np.percentile(waits_us, (50, 99, 99.9))
        return LoadResult(
            requests=self.requests,
            messages=messages,
            refused=refused,
            first_error=first_error,
            seconds=seconds,
            server_cpu_s=server_s,
            own_cpu_s=own_s,
            p50_us=float(p50),
            p99_us=float(p99),
            p999_us=float(p999),
            slaves_cpu_s=slaves_s,
        )


def _cpu_of(pids: Sequence[int]) -> float:
    return sum(map(cpu_s, pids))
