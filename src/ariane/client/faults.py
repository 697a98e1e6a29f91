"""Which brokers to leave alone for a while, by how long they took (RocketMQ's sendLatencyFaultEnable). Pure.

    a send took at least   50 ms  100 ms  550 ms   1 s    2 s    3 s    15 s
    leave it alone for        0       0    30 s   1 min  2 min  3 min  10 min

An attempt that failed counts as 30 s.
"""

from bisect import bisect_right
from dataclasses import dataclass

_LATENCIES_S = (0.05, 0.1, 0.55, 1.0, 2.0, 3.0, 15.0)
_PAUSES_S = (0.0, 0.0, 30.0, 60.0, 120.0, 180.0, 600.0)
_FAILURE_S = 30.0


@dataclass(slots=True)
class _Fault:
    latency_s: float
    until: float


class FaultTable:
    """By broker name. Times are those of a monotonic clock, given by the caller."""

    def __init__(self) -> None:
        self._faults: dict[str, _Fault] = {}
        self._turn = 0

    def took(self, broker: str, latency_s: float, now: float) -> None:
        self._faults[broker] = _Fault(latency_s, now + pause_for(latency_s))

    def failed(self, broker: str, now: float) -> None:
        self.took(broker, _FAILURE_S, now)

    def is_usable(self, broker: str, now: float) -> bool:
        fault = self._faults.get(broker)
        return fault is None or now >= fault.until

    def least_bad(self, now: float) -> str | None:
        """When all are left alone: one of the better half in turn, so that no single one gets everything."""
        ranked = sorted(self._faults, key=lambda broker: self._badness(broker, now))
        if not ranked:
            return None
        self._turn += 1
        return ranked[self._turn % max(1, len(ranked) // 2)]

    def _badness(self, broker: str, now: float) -> tuple[bool, float, float]:
        fault = self._faults[broker]
        return now < fault.until, fault.latency_s, fault.until


def pause_for(latency_s: float) -> float:
    """How long to leave a broker alone whose last send took so long."""
    step = bisect_right(_LATENCIES_S, latency_s) - 1
    return _PAUSES_S[step] if step >= 0 else 0.0
