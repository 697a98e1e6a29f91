"""Route look-ups per second and CPU per look-up, compared with Apache's nameserver in the same run.

    python -m bench.nameserver [--seconds 3] [--repeats 3]

1,000 topics on 4 brokers. The load generator sends frames that are encoded once and counts response bytes, so it costs
far less than the server. CPU is the whole server process's, user and kernel, by its own clock. Order alternates between
repeats; the table shows medians.
"""

import argparse
import asyncio
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ariane.clock import Clock
from ariane.model.topic import DataVersion, TopicConfig
from ariane.rpc.caller import Caller
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import HandlerTable
from ariane.transport.pool import Pool
from ariane.transport.settings import TransportSettings
from ariane.wire.frame import Command, encode_frame
from ariane.wire.registration import RegistrationBody, encode_registration
from ariane.wire.requests.brokers import RegisterBroker
from interop.apache import SERVER_VERSION, fetch, start_nameserver
from interop.processes import InteropError, free_port

TOPICS = [f"topic-{number:04d}" for number in range(1000)]
BROKERS = 4
IN_FLIGHT = (1, 16, 256)
CALL_TIMEOUT_S = 30


@dataclass(frozen=True)
class Server:
    name: str
    address: str
    pid: int

    def cpu_s(self) -> float:
        """The process's CPU clock (Linux's id for "all threads of pid")."""
        return time.clock_gettime((~self.pid << 3) | 2)


@dataclass(frozen=True)
class Sample:
    per_second: float
    cpu_us: float
    client_cpu_us: float


@contextmanager
def ariane() -> Iterator[Server]:
    command = [sys.executable, "-m", "ariane", "namesrv", "--listen", "127.0.0.1:0", "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Server("Ariane", process.stdout.readline().split("ready on ")[1].split()[0], process.pid)
        finally:
            process.terminate()


def registrations() -> Iterator[RegisterBroker]:
    table = RegistrationBody(
        data_version=DataVersion(timestamp=1, counter=1),
        topics={name: TopicConfig(topic_name=name, read_queue_nums=8, write_queue_nums=8) for name in TOPICS},
    )
    body, crc = encode_registration(table, compressed=False)
    for number in range(BROKERS):
        yield RegisterBroker(
            broker_name=f"broker-{number}",
            broker_addr=f"127.0.0.1:{10911 + 100 * number}",
            cluster_name="DefaultCluster",
            broker_id=0,
            body_crc32=crc,
            body=body,
        )


async def measure(server: Server, seconds: float) -> dict[int, Sample]:
    """Registers the brokers, keeps their connection open, and measures with each number of requests in flight."""
    no_requests = Dispatcher(HandlerTable.of())
    async with Pool.open(TransportSettings(), Clock(), no_requests.receive) as pool:
        for request in registrations():
            await Caller(pool).call(server.address, request, CALL_TIMEOUT_S)
        return {depth: await asyncio.to_thread(request_routes, server, depth, seconds) for depth in IN_FLIGHT}


def request_routes(server: Server, depth: int, seconds: float) -> Sample:
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port))) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frames = [_frame(topic) for topic in TOPICS]
        response_bytes = _response_length(peer, frames[0])  # all topics have names and numbers of equal length
        chunks = [b"".join(frames[(n + k) % len(frames)] for k in range(depth)) for n in range(0, len(frames), depth)]
        _rounds(peer, chunks, response_bytes * depth, seconds / 3)  # warm: caches here, the compiler there
        began, cpu, own = time.perf_counter(), server.cpu_s(), time.thread_time()
        count = depth * _rounds(peer, chunks, response_bytes * depth, seconds)
        elapsed, cpu, own = time.perf_counter() - began, server.cpu_s() - cpu, time.thread_time() - own
    return Sample(count / elapsed, cpu / count * 1e6, own / count * 1e6)


def _frame(topic: str) -> bytes:
    return encode_frame(Command(code=105, opaque=1000, version=409, language="JAVA", ext_texts={"topic": topic}))


def _response_length(peer: socket.socket, frame: bytes) -> int:
    peer.sendall(frame)
    prefix = peer.recv(4, socket.MSG_WAITALL)
    length = int.from_bytes(prefix, "big")
    response = peer.recv(length, socket.MSG_WAITALL)
    assert b'"brokerDatas"' in response, response
    return 4 + length


def _rounds(peer: socket.socket, chunks: list[bytes], expected: int, seconds: float) -> int:
    """Sends a chunk, waits for all its responses, and repeats; returns the number of chunks."""
    buffer = memoryview(bytearray(1 << 20))
    deadline, rounds = time.perf_counter() + seconds, 0
    while time.perf_counter() < deadline:
        peer.sendall(chunks[rounds % len(chunks)])
        missing = expected
        while missing:
            missing -= peer.recv_into(buffer[: min(missing, len(buffer))])
        rounds += 1
    return rounds


@contextmanager
def apache() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as home, start_nameserver(port := free_port(), Path(home)) as process_id:
        yield Server(f"Apache {SERVER_VERSION}", f"127.0.0.1:{port}", process_id)


def run(kind: Callable[[], AbstractContextManager[Server]], seconds: float) -> tuple[str, dict[int, Sample]]:
    with kind() as server:
        return server.name, asyncio.run(measure(server, seconds))


def medians(samples: list[dict[int, Sample]], depth: int) -> Sample:
    columns = ([getattr(sample[depth], name) for sample in samples] for name in Sample.__dataclass_fields__)
    return Sample(*map(statistics.median, columns))


def table(results: dict[str, list[dict[int, Sample]]]) -> Iterator[str]:
    headings = f"{'routes/s':>12}{'CPU us':>9}{'client us':>11}{'rate ratio':>12}{'CPU ratio':>11}"
    yield f"{'server':<16}{'in flight':>10}{headings}"
    ours, *_ = results
    for depth in IN_FLIGHT:
        own = medians(results[ours], depth)
        for name, samples in results.items():
            row = medians(samples, depth)
            figures = f"{row.per_second:>12,.0f}{row.cpu_us:>9.1f}{row.client_cpu_us:>11.1f}"
            ratios = f"{own.per_second / row.per_second:>12.2f}{own.cpu_us / row.cpu_us:>11.2f}"
            yield f"{name:<16}{depth:>10}{figures}{'' if name == ours else ratios}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=3)
    options.add_argument("--repeats", type=int, default=3)
    args = options.parse_args()
    kinds: list[Callable[[], AbstractContextManager[Server]]] = [ariane, apache]
    try:
        fetch("server", SERVER_VERSION)
    except InteropError as error:
        print(f"peer missing: Apache's nameserver is not available: {error}")
        kinds.remove(apache)
    results: dict[str, list[dict[int, Sample]]] = {}
    for repeat in range(args.repeats):
        for kind in kinds if repeat % 2 == 0 else reversed(kinds):
            name, samples = run(kind, args.seconds)
            results.setdefault(name, []).append(samples)
    print(f"GET_ROUTEINFO_BY_TOPIC, {len(TOPICS)} topics on {BROKERS} brokers, medians of {args.repeats}; "
          "ratios are Ariane / Apache")  # fmt: skip
    print("\n".join(table(dict(sorted(results.items(), reverse=True, key=lambda item: item[0] == "Ariane")))))


if __name__ == "__main__":
    main()
