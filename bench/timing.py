"""Micro-benchmark of a function: CPU microseconds per call, the best of several rounds, less the empty call."""

import time
from collections.abc import Callable
from functools import cache

ROUNDS = 30
ROUND_S = 0.01


def us_per_call(call: Callable[[], object]) -> float:
    return max(_best_us(call) - _empty_us(), 0.0)


@cache
def _empty_us() -> float:
    return _best_us(lambda: None)


def _best_us(call: Callable[[], object]) -> float:
    call()
    calls = max(1, round(ROUND_S / max(_round_s(call, 3) / 3, 1e-8)))
    return min(_round_s(call, calls) for _ in range(ROUNDS)) / calls * 1e6


def _round_s(call: Callable[[], object], calls: int) -> float:
    begin = time.process_time()
    for _ in range(calls):
        call()
    return time.process_time() - begin
