"""The load program in Java on Apache's official client: its plan, its result, and the process that runs many plans.

One process for each serialisation of headers, for all systems and all cases of a scenario: its own code is then
compiled once, and is equally warm for all of them.
"""

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from bench.processes import cpu_s
from interop.apache import CLIENT_VERSION, Serialisation, compile_java, fetch, java_command, prepare_home
from interop.processes import tail

SOURCES = sorted(Path(__file__).resolve().parent.glob("*.java"))
HEAP = ("-Xms1g", "-Xmx1g")


class JavaKind(StrEnum):
    SEND = "send"
    BATCH = "batch"
    TRANSACTION = "transaction"
    CONSUME = "consume"


class JavaPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    kind: JavaKind
    nameserver: str
    topic: str
    threads: int = 1
    """They share one producer. A consumer has the 20 threads that are its default."""
    body_bytes: int = 1024
    batch: int = 1
    messages: int = 0
    """In the topic, for a consumer, which is measured while it consumes most of them, and not for some seconds."""
    warm_seconds: float = 0.0
    seconds: float = 0.0


class ResultLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Of the program's output: `begin` and `end` of the measured time, and then the result."""

    event: str
    messages: int = 0
    requests: int = 0
    failures: int = 0
    seconds: float = 0.0
    p50_us: float = 0.0
    p99_us: float = 0.0
    p999_us: float = 0.0
    first_error: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaResult:
    """Of the measured time, without the warm-up."""

    messages: int
    requests: int
    failures: int
    first_error: str
    seconds: float
    server_cpu_share: float
    """CPU seconds of the servers for each second."""
    own_cpu_share: float
    p50_us: float
    p99_us: float
    p999_us: float

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.seconds

    @property
    def server_us(self) -> float:
        """CPU of the server for one message."""
        return self.server_cpu_share / self.messages_per_s * 1e6

    @property
    def own_us(self) -> float:
        return self.own_cpu_share / self.messages_per_s * 1e6


class LoadFailed(Exception):
    """The load program did not run through, or too many of its requests failed; the text says why."""


class JavaLoad:
    """A running load program."""

    def __init__(self, process: "subprocess.Popen[bytes]", errors: Path) -> None:
        self._process = process
        self._errors = errors

    def run(self, plan: JavaPlan, servers: Sequence[int]) -> JavaResult:
        """CPU is read when the lines for begin and end arrive, a little after they are written: so it is a share of the
        time between, and not a sum."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(plan) + b"\n")
        self._process.stdin.flush()
        self._line("begin", plan)
        began = self._clocks(servers)
        self._line("end", plan)
        ended = self._clocks(servers)
        result = self._line("result", plan)
        wall_s, server_s, own_s = (end - begin for begin, end in zip(began, ended, strict=True))
        if not result.messages:
            raise LoadFailed(f"{plan.kind}: no message; {result.failures} requests failed: {result.first_error}")
        return JavaResult(
            messages=result.messages,
            requests=result.requests,
            failures=result.failures,
            first_error=result.first_error,
            seconds=result.seconds,
            server_cpu_share=server_s / wall_s,
            own_cpu_share=own_s / wall_s,
            p50_us=result.p50_us,
            p99_us=result.p99_us,
            p999_us=result.p999_us,
        )

    def _clocks(self, servers: Sequence[int]) -> tuple[float, float, float]:
        return time.perf_counter(), sum(map(cpu_s, servers)), cpu_s(self._process.pid)

    def _line(self, event: str, plan: JavaPlan) -> ResultLine:
        assert self._process.stdout is not None
        text = self._process.stdout.readline()
        if not text:
            raise LoadFailed(f"{plan.kind}: the load program ended:\n{tail(self._errors)}")
        line = msgspec.json.decode(text, type=ResultLine)
        if line.failed or line.event != event:
            raise LoadFailed(f"{plan.kind}: {line.first_error or line.event}:\n{tail(self._errors)}")
        return line


@contextmanager
def java_load(serialisation: Serialisation, home: Path) -> Iterator[JavaLoad]:
    """Compiles and starts the program; all its files are below `home`."""
    prepare_home(home)
    classpath = compile_java(SOURCES, fetch("client", CLIENT_VERSION), home / "classes")
    command = java_command(
        classpath,
        "LoadProgram",
        home=home,
        properties={"rocketmq.serialize.type": serialisation},
        flags=HEAP,
    )
    errors = home / "errors.log"
    with errors.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        try:
            yield JavaLoad(process, errors)
        finally:
            process.kill()
            process.communicate()
