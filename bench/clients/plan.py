"""The plan and the result of a client process, as JSON: each client runs in a process of its own."""

import subprocess
import sys
from enum import StrEnum

import msgspec


class Job(StrEnum):
    SEND_ONE_BY_ONE = "one by one"
    SEND_IN_FLIGHT = "256 in flight"
    SEND_BATCHED = "batched"
    """Many messages per request: by linger in Ariane's client, by send_batch in the C++ client."""
    SEND_NOWAIT = "batched, send_nowait"
    """The same without a task per sender: the results are awaited later."""
    CONSUME = "consume"


class ClientPlan(msgspec.Struct, frozen=True, kw_only=True):
    client: str
    job: Job
    nameserver: str
    topic: str
    messages: int
    body_bytes: int = 1024


class ClientResult(msgspec.Struct, frozen=True, kw_only=True):
    messages: int
    seconds: float
    cpu_s: float

    @property
    def per_second(self) -> float:
        return self.messages / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.messages * 1e6


class ClientFailed(Exception):
    """The client program failed; the text is the end of its output."""


RUN_S = 180.0


def run_client(plan: ClientPlan) -> ClientResult:
    command = [sys.executable, "-m", "bench.clients"]
    try:
        done = subprocess.run(command, input=msgspec.json.encode(plan), capture_output=True, check=False, timeout=RUN_S)
    except subprocess.TimeoutExpired:
        raise ClientFailed(f"{plan.client}, {plan.job}: not done within {RUN_S:.0f} s") from None
    if done.returncode:
        raise ClientFailed(f"{plan.client}, {plan.job}: {done.stderr.decode(errors='replace')[-500:]}")
    # C++ clients write to standard output as well; the result is the last line.
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=ClientResult)
