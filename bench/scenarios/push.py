"""End-to-end latency on an idle system: from the send of a message to its arrival at a waiting consumer."""

import socket
import time
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import numpy as np

from bench.load.plan import Kind, LoadPlan
from bench.load.ring import Ring
from bench.load.wires import connect, ring_of
from bench.scenarios.long_polls import LongPoll, open_long_poll
from bench.scenarios.scenario import Cases, Column, Effort, Measured, Scenario
from bench.scenarios.warm_up import until_flat
from bench.systems.system import Running, Setup

GAP_S = 0.005
"""Long enough for the consumer's request to arrive and wait."""
MESSAGES, QUICK_MESSAGES = 500, 50
"""In each round."""


class Push(Scenario):
    name = "push"
    title = "End to end, idle: one message of 1 KiB every 5 ms to a consumer that waits for it"
    columns = (
        Column("p50_us", "p50 us", ratio=True),
        Column("p99_us", "p99 us", ratio=True),
        Column("p999_us", "p99.9 us"),
        Column("server_us", "CPU us", ".1f", ratio=True),
    )

    def setups(self, effort: Effort) -> dict[str, Setup]:
        return {"": Setup(queues=1)}

    def begin(self, running: Running, setup: str, effort: Effort, stack: ExitStack) -> Cases:
        pair = _Pair(running, stack)
        until_flat(running, effort, lambda seconds: pair.deliver(round(seconds / (2 * GAP_S))).server_us)
        return {"one at a time": partial(_measure, pair, QUICK_MESSAGES if effort.is_quick else MESSAGES)}


class _Delivered(NamedTuple):
    waits_us: list[float]
    server_us: float
    """CPU of the server for a message."""


class _Pair:
    """A producer and a consumer of the same queue, each with its connection."""

    def __init__(self, running: Running, stack: ExitStack) -> None:
        self._running = running
        self._consumer = open_long_poll(running, 0, 0, connection=1)
        stack.enter_context(self._consumer.peer)
        self._producer = stack.enter_context(connect(running.wire, running.addresses[0]))
        self._ring = ring_of(_plan(running))
        self._offset = 0

    def deliver(self, count: int) -> _Delivered:
        cpu_s = self._running.cpu_s()
        waits_us = []
        for _ in range(count):
            waits_us.append(_deliver(self._consumer, self._producer, self._ring, self._offset))
            self._offset += 1
        return _Delivered(waits_us, (self._running.cpu_s() - cpu_s) / max(count, 1) * 1e6)


def _measure(pair: _Pair, count: int) -> Measured:
    pair.deliver(count // 4)
    delivered = pair.deliver(count)
    p50, p99, p999 = map(float, np.percentile(delivered.waits_us, (50, 99, 99.9)))
    figures = {"p50_us": p50, "p99_us": p99, "p999_us": p999, "server_us": delivered.server_us}
    return Measured("one at a time", figures)


def _plan(running: Running) -> LoadPlan:
    return LoadPlan(
        wire=running.wire,
        kind=Kind.SEND,
        addresses=running.addresses,
        connections=1,
        in_flight=1,
        body_bytes=1024,
        queues=1,
    )


def _deliver(consumer: LongPoll, producer: socket.socket, ring: Ring, offset: int) -> float:
    """Sends one message to a consumer that already waits; microseconds until it has it."""
    consumer.send(offset)
    time.sleep(GAP_S)
    (piece,) = ring.take(1)
    began = time.perf_counter()
    producer.sendall(piece.data)
    consumer.read_message()
    elapsed = time.perf_counter() - began
    producer.recv(65_536)  # the acknowledgement, which may arrive before or after
    return elapsed * 1e6
