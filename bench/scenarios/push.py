"""End-to-end latency on an idle system: from the send of a message to its arrival at a waiting consumer."""

import socket
import time
from collections.abc import Iterator

import numpy as np

from bench.load.plan import Kind, LoadPlan
from bench.load.ring import Ring
from bench.load.wires import connect, ring_of
from bench.scenarios.long_polls import LongPoll, open_long_poll
from bench.scenarios.scenario import Column, Effort, Measured, Scenario
from bench.systems.system import Running, Setup

GAP_S = 0.005
"""Long enough for the consumer's request to arrive and wait."""
MESSAGES, QUICK_MESSAGES = 1_000, 50


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

    def measure(self, running: Running, setup: str, effort: Effort) -> Iterator[Measured]:
        count = QUICK_MESSAGES if effort.is_quick else MESSAGES
        warm = count // 4
        consumer = open_long_poll(running, 0, 0, connection=1)
        with consumer.peer, connect(running.wire, running.addresses[0]) as producer:
            ring = ring_of(_plan(running))
            for offset in range(warm):
                _deliver(consumer, producer, ring, offset)
            cpu_s = running.cpu_s()
            waits_us = [_deliver(consumer, producer, ring, warm + number) for number in range(count)]
            cpu_s = running.cpu_s() - cpu_s
        p50, p99, p999 = map(float, np.percentile(waits_us, (50, 99, 99.9)))
        figures = {"p50_us": p50, "p99_us": p99, "p999_us": p999, "server_us": cpu_s / count * 1e6}
        yield Measured("one at a time", figures)


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
