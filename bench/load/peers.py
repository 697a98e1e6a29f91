"""The connections of the load generator, in one epoll set."""

import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.load.gauge import Gauge
from bench.load.plan import LoadPlan
from bench.load.responses import ResponseReader
from bench.load.ring import Ring
from bench.load.wires import connect, response_reader

READ_BYTES = 1 << 18
"""Smaller reads cost both ends more: at 256 in flight 20 % with 64 KiB."""


class ServerGone(Exception):
    """The server closed a connection in the middle of a run."""


@dataclass(slots=True)
class Peer:
    number: int
    socket: socket.socket
    responses: ResponseReader


class Peers:
    def __init__(self, plan: LoadPlan, ring: Ring, gauge: Gauge, peers: list[Peer]) -> None:
        self._plan = plan
        self._ring = ring
        self._gauge = gauge
        self._peers = peers
        self._by_fd = {peer.socket.fileno(): peer for peer in peers}
        self._epoll = select.epoll()
        for fd in self._by_fd:
            self._epoll.register(fd, select.EPOLLIN)
        self.waiting = 0
        """Requests without a response."""

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._peers)

    @property
    def messages(self) -> int:
        """Messages in all responses so far."""
        return sum(peer.responses.messages for peer in self._peers)

    @property
    def refused(self) -> int:
        return sum(peer.responses.refused for peer in self._peers)

    @property
    def first_error(self) -> str:
        return next((peer.responses.first_error for peer in self._peers if peer.responses.first_error), "")

    def fileno(self) -> int:
        """Readable when a connection is."""
        return self._epoll.fileno()

    def send(self, peer: Peer, count: int, due_ns: int | None = None) -> None:
        """Sends the next requests. Blocking is safe: few requests are in flight, so the server can always write its
        responses and then continues to read."""
        now_ns = due_ns or time.perf_counter_ns()
        for piece in self._ring.take(count, peer.number):
            self._gauge.sent(piece.begin, piece.end, now_ns)
            peer.responses.sent(piece.begin, piece.end)
            peer.socket.sendall(piece.data)
        self.waiting += count

    def answered(self, timeout_s: float) -> Iterator[tuple[Peer, int]]:
        """Waits for data; yields the connections that got responses, with their number."""
        for fd, _ in self._epoll.poll(timeout_s):
            peer = self._by_fd[fd]
            data = peer.socket.recv(READ_BYTES)
            if not data:
                raise ServerGone(f"connection {peer.number} was closed with {self.waiting} requests unanswered")
            rows = peer.responses.feed(data)
            if rows:
                self._gauge.answered(rows, time.perf_counter_ns())
                self.waiting -= len(rows)
                yield peer, len(rows)

    def drain(self, timeout_s: float = 30.0) -> None:
        """Waits for outstanding responses, so that no load remains for the next run."""
        deadline = time.monotonic() + timeout_s
        while self.waiting and time.monotonic() < deadline:
            for _ in self.answered(0.1):
                pass


@contextmanager
def connected(plan: LoadPlan, ring: Ring, gauge: Gauge) -> Iterator[Peers]:
    numbers = range(plan.connections)
    sockets = [connect(plan.wire, plan.addresses[number % len(plan.addresses)], number) for number in numbers]
    try:
        yield Peers(plan, ring, gauge, [Peer(number, sockets[number], response_reader(plan)) for number in numbers])
    finally:
        for peer in sockets:
            peer.close()
