"""The plan and the result of a load generator process: JSON over standard input and output.

The generator is a process of its own. So its CPU is measured separately, and garbage collection in
the comparing program does not disturb it.
"""

import subprocess
import sys
from enum import StrEnum

import msgspec


class Wire(StrEnum):
    """The protocol that a system speaks."""

    ROCKETMQ = "rocketmq"
    NATS = "nats"
    REDIS = "redis"


class Kind(StrEnum):
    """The kind of request; each protocol has its own form of it."""

    SEND = "send"
    BATCH = "batch"
    PULL = "pull"
    FILL = "fill"
    """Sends of messages for `PULL`, at positions known in advance."""


class Serialization(StrEnum):
    """The form of RocketMQ's headers, by the names of Apache's clients."""

    JSON = "JSON"
    BINARY = "ROCKETMQ"


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True):
    wire: Wire
    kind: Kind
    addresses: tuple[str, ...]
    """Connections are distributed over these round-robin."""
    connections: int
    in_flight: int
    """Requests of one connection in flight at the same time."""
    body_bytes: int
    topics: int = 1
    topic_first: int = 0
    """The number of the first topic."""
    queues: int = 8
    messages_a_request: int = 1
    filled: int = 0
    """Messages in each queue, for `PULL`."""
    delay_level: int = 0
    serialization: Serialization = Serialization.JSON
    warm_s: float = 0.0
    seconds: float = 0.0
    requests: int | None = None
    """Stop after this number of requests."""
    rate: float | None = None
    """Requests a second of an open loop; None: closed loop."""
    pids: tuple[int, ...] = ()
    """Processes whose CPU time is read when measuring begins and ends."""
    slave_pids: tuple[int, ...] = ()
    """The same for slaves, by themselves."""


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """Of the measured time, without the warm-up."""

    requests: int
    messages: int
    refused: int
    first_error: str
    """The first error response."""
    seconds: float
    server_cpu_s: float
    own_cpu_s: float
    p50_us: float
    p99_us: float
    p999_us: float
    slaves_cpu_s: float = 0.0

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.seconds

    @property
    def server_us(self) -> float:
        """CPU of the server for one message."""
        return self.server_cpu_s / max(self.messages, 1) * 1e6

    @property
    def own_us(self) -> float:
        return self.own_cpu_s / max(self.messages, 1) * 1e6


def run_load(plan: LoadPlan) -> LoadResult:
    """Runs the plan in a process of its own."""
    command = [sys.executable, "-m", "bench.load"]
    done = subprocess.run(command, input=msgspec.json.encode(plan), stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=LoadResult)
