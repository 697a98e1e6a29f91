"""A broker at its limits: many topics, groups, connections and waiting pulls, and clients that mean no good.

    python -m bench.limits
    python -m bench.limits --topics 10000 --groups 10000 --connections 1000 --pulls 5000

Prints the start time, and after each step the memory of the broker and the latency of one honest producer: 1 KiB, one
send after the other. Each connection has sent a heartbeat. Connections come from several loopback addresses, because
a broker limits those of one address. The hard limit of open files (`ulimit -Hn`) must allow them all.
"""

import argparse
import resource
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import urlopen

from ariane.model.group import GroupConfig
from ariane.model.topic import DataVersion, TopicConfig
from ariane.transport.blocking import BlockingConnection
from ariane.wire.codes import ResponseCode
from ariane.wire.exchange import request_command
from ariane.wire.frame import Command, encode_frame
from ariane.wire.requests.clients import ConsumerData, Heartbeat, HeartbeatData
from ariane.wire.requests.groups import GetGroupTable, GroupTable
from ariane.wire.requests.offsets import ConsumerOffsetTable, GetAllConsumerOffsets
from ariane.wire.requests.send import SendMessage
from ariane.wire.requests.topics import GetTopicTable, TopicTable
from bench.load.names import CONSUMER_GROUP
from bench.load.rocketmq import pull
from bench.processes import memory_bytes
from interop.processes import free_port, running

PER_ADDRESS = 900
SUSPEND_MS = 110_000
MiB = 1024 * 1024
STRANGERS, STRANGER_BYTES = 100, 14 * MiB
DEAF = 30


def main() -> None:
    counts = _counts()
    _allow_files(counts.connections + 1_000)
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        home = Path(directory)
        _write_tables(home / "store" / "config", counts.topics, counts.groups)
        port, metrics = free_port((0, -2)), free_port()
        began = time.perf_counter()
        pid = stack.enter_context(_broker(home, port, metrics, counts.connections))
        started = f"start with {counts.topics:,} topics and {counts.groups:,} groups with offsets"
        print(f"| {started} | {time.perf_counter() - began:.1f} s | | |")
        honest = BlockingConnection.open(f"127.0.0.1:{port}")
        show = _Report(pid, honest, counts.sends)
        show("then")
        peers = _connect(port, counts.connections, stack)
        show(f"{counts.connections:,} connections that sent a heartbeat")
        _park(peers, counts.pulls, counts.topics)
        show(f"{_parked(metrics, counts.pulls):,} waiting pulls")
        _read_tables(port, show)
        for number in range(DEAF):
            _deaf(port, number, stack)
        show(f"{DEAF} consumers that read nothing of 8 MiB each")
        for _ in range(STRANGERS):
            _half_frame(port, stack)
        show(f"{STRANGERS} strangers that sent most of a frame of {STRANGER_BYTES // MiB} MiB")
        honest.close()


def _counts() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.limits", description="A broker at its limits.")
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--pulls", type=int, default=50_000)
    parser.add_argument("--sends", type=int, default=2_000, help="of the honest producer after each step")
    return parser.parse_args()


def _allow_files(needed: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        sys.exit(f"{needed} open files are needed, {hard} are allowed: raise `ulimit -Hn`, or use fewer --connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))


# --- the broker -------------------------------------------------------------------------------------------------------


def _write_tables(config: Path, topics: int, groups: int) -> None:
    config.mkdir(parents=True)
    names = [f"topic-{number}" for number in range(topics)]
    table = {name: TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4) for name in names}
    version = DataVersion(timestamp=1, counter=1)
    (config / "topics.json").write_bytes(TopicTable(data_version=version, topic_config_table=table).to_bytes())
    names = [CONSUMER_GROUP, *(f"group-{number}" for number in range(groups - 1))]
    configs = {name: GroupConfig(group_name=name) for name in names}
    (config / "subscriptionGroup.json").write_bytes(GroupTable(subscription_group_table=configs).to_bytes())
    offsets = {f"topic-{number % topics}@{name}": dict.fromkeys(range(4), 0) for number, name in enumerate(names)}
    (config / "consumerOffset.json").write_bytes(ConsumerOffsetTable(offset_table=offsets).to_bytes())


@contextmanager
def _broker(home: Path, port: int, metrics: int, connections: int) -> Iterator[int]:
    settings = home / "broker.toml"
    settings.write_text(
        f'[broker]\nname = "limits"\nport = {port}\ntopics_max = 1000000\nmetrics_exporter = "PROM"\n'
        f"metrics_port = {metrics}\n\n"
        f"[broker.transport]\nconnections_max = {connections + 1_000}\n\n"
        f'[broker.store]\nroot = "{home / "store"}"\n'
    )
    words = [sys.executable, "-m", "ariane", "broker", "-c", str(settings)]
    with running(words, ready="ready on", log=home / "broker.log") as pid:
        yield pid


# --- honest clients ---------------------------------------------------------------------------------------------------


class _Report:
    """Prints a line of a table: memory, and latency of the honest producer."""

    def __init__(self, pid: int, honest: BlockingConnection, sends: int) -> None:
        self._pid = pid
        self._sends = sends
        self._honest = honest
        print("| step | memory, MiB | send p50, ms | p99, ms |")
        print("|---|---:|---:|---:|")

    def __call__(self, step: str) -> None:
        times = sorted(_timed(self._send) for _ in range(self._sends))
        p50, p99 = (times[int(len(times) * part)] * 1000 for part in (0.5, 0.99))
        print(f"| {step} | {memory_bytes(self._pid) / MiB:,.0f} | {p50:.2f} | {p99:.2f} |", flush=True)

    def _send(self) -> None:
        response = self._honest.call(request_command(_MESSAGE, opaque=0), timeout_s=60)
        if response.code != ResponseCode.SUCCESS:
            sys.exit(f"a send was refused: {response.code} {response.remark}")


_MESSAGE = SendMessage(
    producer_group="honest", topic="topic-0", default_topic="TBW102", default_topic_queue_nums=4, queue_id=0,
    sys_flag=0, born_timestamp=0, flag=0, properties="", body=bytes(1024),
)  # fmt: skip


def _timed(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _open(port: int, number: int, stack: ExitStack) -> socket.socket:
    source = f"127.0.0.{2 + number // PER_ADDRESS}"
    peer = socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(source, 0))
    return stack.enter_context(peer)


def _connect(port: int, count: int, stack: ExitStack) -> list[socket.socket]:
    peers = []
    for number in range(count):
        peer = _open(port, number, stack)
        consumer = ConsumerData(group_name=f"group-{number}")
        beat = Heartbeat(body=HeartbeatData(client_id=f"client-{number}", consumer_data_set=[consumer]))
        _call(peer, request_command(beat, opaque=1))
        peers.append(peer)
    return peers


def _call(peer: socket.socket, command: Command) -> None:
    peer.sendall(encode_frame(command))
    (length,) = struct.unpack(">i", _exactly(peer, 4))
    _exactly(peer, length)


def _exactly(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = peer.recv(count - len(data))
        if not chunk:
            sys.exit("the broker closed an honest connection")
        data += chunk
    return data


def _park(peers: list[socket.socket], pulls: int, topics: int) -> None:
    """Not of topic 0, to which the honest producer sends."""
    for number in range(pulls):
        topic = f"topic-{1 + number % (topics - 1)}"
        peers[number % len(peers)].sendall(pull(100 + number, topic, number % 4, 0, 32, SUSPEND_MS))


def _parked(metrics: int, wanted: int) -> int:
    """How many pulls wait, once all were read or a minute is over."""
    deadline = time.monotonic() + 60
    while True:
        with urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=60) as response:
            lines = response.read().decode().splitlines()
        parked = next(
            int(float(line.split()[-1]))
            for line in lines
            if line.startswith(("ariane_parked_pulls ", "ariane_parked_pulls{"))
        )
        if parked >= wanted or time.monotonic() > deadline:
            return parked
        time.sleep(1)


def _read_tables(port: int, show: _Report) -> None:
    """Another client asks for the whole tables while the producer sends."""
    admin = BlockingConnection.open(f"127.0.0.1:{port}")
    tables = (GetTopicTable(), GetGroupTable(), GetAllConsumerOffsets())
    opaques = admin.send_all([request_command(table, opaque=0) for table in tables])
    show("while a tool reads the tables of topics, groups and offsets")
    admin.receive(opaques, timeout_s=120)
    admin.close()


# --- others -----------------------------------------------------------------------------------------------------------


def _deaf(port: int, number: int, stack: ExitStack) -> None:
    """A consumer that pulls what the producer has sent, again and again, and reads none of it."""
    peer = _open(port, 100_000 + number, stack)
    peer.sendall(b"".join(pull(1 + count, "topic-0", 0, 0, 32) for count in range(256)))


def _half_frame(port: int, stack: ExitStack) -> None:
    peer = _open(port, 110_000, stack)
    try:
        peer.sendall(struct.pack(">ii", STRANGER_BYTES + 1024, 100) + bytes(STRANGER_BYTES))
    except OSError:
        return  # the broker has closed it to protect its memory


if __name__ == "__main__":
    main()
