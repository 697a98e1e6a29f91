"""The two kinds of load. Closed loop: a response triggers the next request. Open loop: requests at a fixed rate."""

import select
import time

from bench.load.gauge import Gauge
from bench.load.peers import Peers, connected
from bench.load.plan import Kind, LoadPlan, LoadResult
from bench.load.wires import ring_of

POLL_S = 0.05
TICK_S = 0.0005
"""Time between two bursts of an open loop: short against the latencies of interest, long against a system call."""


def run(plan: LoadPlan) -> LoadResult:
    ring = ring_of(plan)
    if ring.count < 2 * plan.connections * plan.in_flight:
        raise ValueError(f"{ring.count} rows are too few: a row would be sent again before its response has arrived")
    gauge = Gauge(plan, ring.count)
    with connected(plan, ring, gauge) as peers:
        if plan.requests is not None:
            return _until_all_sent(plan, peers, gauge, plan.requests)
        spend = _Open(peers, plan.rate).spend if plan.rate else _Closed(peers, plan.in_flight).spend
        spend(plan.warm_s)
        gauge.begin()
        messages, refused = peers.messages, peers.refused
        spend(plan.seconds)
        result = _result(plan, peers, gauge, messages, refused)
        peers.drain()
        return result


def _result(plan: LoadPlan, peers: Peers, gauge: Gauge, messages: int = 0, refused: int = 0) -> LoadResult:
    """Without what was counted before the measurement began."""
    refused = peers.refused - refused
    carried = peers.messages - messages
    accepted = (gauge.requests - refused) * plan.messages_a_request
    return gauge.result(carried if plan.kind is Kind.PULL else accepted, refused, peers.first_error)


def _until_all_sent(plan: LoadPlan, peers: Peers, gauge: Gauge, requests: int) -> LoadResult:
    left = requests
    for peer in peers:
        count = min(plan.in_flight, left)
        peers.send(peer, count)
        left -= count
    while peers.waiting:
        for peer, answered in peers.answered(POLL_S):
            count = min(answered, left)
            peers.send(peer, count)
            left -= count
    return _result(plan, peers, gauge)


class _Closed:
    def __init__(self, peers: Peers, in_flight: int) -> None:
        self._peers = peers
        for peer in peers:
            peers.send(peer, in_flight)

    def spend(self, seconds: float) -> None:
        peers = self._peers
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            for peer, answered in peers.answered(POLL_S):
                peers.send(peer, answered)


class _Open:
    """Bursts at fixed times, distributed over the connections. A late burst is timed from when it was due, so a stalled
    server cannot hide its latency (coordinated omission)."""

    def __init__(self, peers: Peers, rate: float) -> None:
        self._peers = peers
        self._all = list(peers)
        self._rate = rate
        self._owed = 0.0
        self._turn = 0

    def spend(self, seconds: float) -> None:
        tick = time.perf_counter()
        deadline = tick + seconds
        while tick < deadline:
            self._wait_until(tick)
            self._owed += self._rate * TICK_S
            self._burst(int(self._owed), tick)
            self._owed -= int(self._owed)
            tick += TICK_S

    def _burst(self, count: int, due_s: float) -> None:
        for _ in range(count):
            self._turn = (self._turn + 1) % len(self._all)
            self._peers.send(self._all[self._turn], 1, round(due_s * 1e9))

    def _wait_until(self, tick: float) -> None:
        """select() and not epoll, whose timeouts are whole milliseconds."""
        while (left := tick - time.perf_counter()) > 0:
            readable, _, _ = select.select([self._peers.fileno()], (), (), left)
            if readable:
                self._read_responses()
        self._read_responses()

    def _read_responses(self) -> None:
        for _ in self._peers.answered(0):
            pass
