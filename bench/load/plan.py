"""What the load generator is told, and what it tells: JSON over its standard input and output.

The generator is a process of its own. So its CPU can be told from the server's, and a pause of its collector from a
pause of the program that runs the comparison.
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
    """What is asked for, in whatever words the protocol has for it."""

    SEND = "send"
    BATCH = "batch"
    PULL = "pull"
    FILL = "fill"
    """Messages for `PULL` to find, at positions that a generator knows beforehand."""


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True):
    wire: Wire
    kind: Kind
    addresses: tuple[str, ...]
    """Connections are dealt to these in turn."""
    connections: int
    in_flight: int
    """Requests of one connection that may wait for their answers."""
    body_bytes: int
    topics: int = 1
    queues: int = 8
    messages_a_request: int = 1
    filled: int = 0
    """Messages in each queue, for `PULL`."""
    delay_level: int = 0
    warm_s: float = 0.0
    seconds: float = 0.0
    requests: int | None = None
    """Stop after so many, whatever the time."""
    rate: float | None = None
    """Requests a second that are sent whether or not answers come; None: as soon as an answer makes room."""
    pids: tuple[int, ...] = ()
    """Processes whose CPU time is read when measuring begins and ends."""


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """Of the measured time alone, without the warm-up."""

    requests: int
    messages: int
    refused: int
    refusal: str
    """The first answer that said no."""
    seconds: float
    server_cpu_s: float
    own_cpu_s: float
    p50_us: float
    p99_us: float
    p999_us: float

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
