"""A slave that comes back after its master has stored 4 GiB, beside `cp` of the same files."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from ariane.transport.blocking import BlockingConnection
from ariane.wire.exchange import read_response, request_command
from ariane.wire.requests.offsets import GetMaxOffset
from bench.load.names import topic_name
from bench.load.plan import Kind, Wire
from bench.log_ends import LogEnd
from bench.processes import cpu_s
from bench.scenarios.loads import load
from bench.scenarios.replicated import APACHE_KEY, ASYNC_MASTER
from bench.scenarios.scenario import Cases, Column, Effort, Measured, Scenario
from bench.systems.system import Running, Setup, System
from interop.processes import InteropError, wait_until

BYTES, QUICK_BYTES = 4 * 1024**3, 16 * 1024**2
RECORD_BYTES = 1_200
"""About that much is a message of 1 KiB in the log."""
BATCH = 10
LIMITED, UNLIMITED = "as it is", "without catch_up_mib_s"
MIB_S_MAX = 100_000.0
CAUGHT_UP_S = 240.0
POLL_S = 0.01


class ReplicatedCatchUp(Scenario):
    name = "replication-catch-up"
    title = "A slave comes back when its master has 4 GiB more, async flush; CPU is for a message of 1 KiB"
    wires = frozenset({Wire.ROCKETMQ})
    alone = True
    rounds_max = 2
    room_gb = 24
    columns = (
        Column("mb_per_s", "MB/s", ratio=True),
        Column("readable_mb_per_s", "readable MB/s", ratio=True),
        Column("server_us", "CPU us", ".2f", ratio=True),
        Column("slave_us", "slave us", ".2f", ratio=True),
    )

    def setups(self, effort: Effort) -> Mapping[str, Setup]:
        return {
            LIMITED: Setup(role=ASYNC_MASTER),
            UNLIMITED: Setup(role=ASYNC_MASTER, catch_up_mib_s=MIB_S_MAX),
        }

    def has_setup(self, system: System, label: str) -> bool:
        return label == LIMITED or not system.key.startswith(APACHE_KEY)

    def begin(self, running: Running, setup: str, effort: Effort, stack: ExitStack) -> Cases:
        _begin_slave(running)
        size = QUICK_BYTES if effort.is_quick else BYTES
        requests = size // RECORD_BYTES // BATCH
        shape = {"connections": 4, "in_flight": 16, "body_bytes": 1024}
        load(running, Kind.BATCH, **shape, messages_a_request=BATCH, requests=requests)
        return {"copy": partial(_copy, running), "slave": partial(_catch_up, running, setup)}


def _log(running: Running) -> Path:
    assert running.log is not None
    return running.log


def _begin_slave(running: Running) -> None:
    """An empty slave would get the last file only from a master of Apache: it has seen a few messages."""
    assert running.start_slave is not None
    with running.start_slave(1) as slave:
        load(running, Kind.SEND, connections=1, in_flight=1, body_bytes=1024, requests=100)
        ends = LogEnd(_log(running)), LogEnd(slave.log)
        wait_until(lambda: ends[0].read() == ends[1].read() > 0, f"{running.name}: the first messages at the slave")


def _catch_up(running: Running, setup: str) -> Measured:
    assert running.start_slave is not None
    end = LogEnd(_log(running)).read()
    ends = _max_offsets(running.addresses[0])
    cpu_before = running.cpu_s()
    with running.start_slave(1) as slave:
        log = LogEnd(slave.log)
        begin = log.read()
        _poll(lambda: log.read() > begin, running)  # it has connected
        began, first, slave_cpu = time.perf_counter(), log.read(), cpu_s(slave.pid)
        _poll(lambda: log.read() >= end, running)
        copied_s = time.perf_counter() - began
        _poll(lambda: _max_offsets(slave.address) == ends, running)
        readable_s = time.perf_counter() - began
        slave_cpu = cpu_s(slave.pid) - slave_cpu
    size = end - first
    messages = size / RECORD_BYTES
    figures = {
        "mb_per_s": size / copied_s / 1e6,
        "readable_mb_per_s": size / readable_s / 1e6,
        "server_us": (running.cpu_s() - cpu_before) / messages * 1e6,
        "slave_us": slave_cpu / messages * 1e6,
    }
    return Measured(f"catch-up, {setup}", figures)


def _poll(condition: Callable[[], bool], running: Running) -> None:
    deadline = time.perf_counter() + CAUGHT_UP_S
    while not condition():
        if time.perf_counter() > deadline:
            raise InteropError(f"{running.name}: the slave has not caught up within {CAUGHT_UP_S:.0f} s")
        time.sleep(POLL_S)


def _max_offsets(address: str) -> list[int]:
    connection = BlockingConnection.open(address)
    try:
        requests = [GetMaxOffset(topic=topic_name(0), queue_id=queue) for queue in range(Setup().queues)]
        responses = [connection.call(request_command(request, opaque=0), timeout_s=30) for request in requests]
        return [read_response(*pair).offset for pair in zip(requests, responses, strict=True)]
    finally:
        connection.close()


def _copy(running: Running) -> Measured:
    """`cp` of the files that are full: the rest of the last one has no bytes yet that a slave would get."""
    log = _log(running)
    end = LogEnd(log).read()
    files = [path for path in sorted(log.iterdir()) if path.name.isdigit() and int(path.name) < end]
    full = [path for path in files if int(path.name) + path.stat().st_size <= end] or files
    size = sum(path.stat().st_size for path in full)
    with tempfile.TemporaryDirectory(prefix="ariane-bench-copy-") as target:
        began = time.perf_counter()
        subprocess.run([shutil.which("cp") or "cp", *map(str, full), target], check=True)
        copied_s = time.perf_counter() - began
    system = f"cp of {running.name.split()[0]}'s files"
    return Measured(f"catch-up, {LIMITED}", {"mb_per_s": size / copied_s / 1e6}, system)
