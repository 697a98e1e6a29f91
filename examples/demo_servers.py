"""The servers of the demo, as a user runs them: `ariane namesrv` and `ariane broker`, in a directory that goes away."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

STOP_TIMEOUT_S = 10
_READY = re.compile(r"ready on (\S+) ")

# Apache's keys. Delays and questions come within seconds, so that the demo does not take minutes.
BROKER_CONF = {
    "brokerName": "broker-a",
    "brokerClusterName": "DemoCluster",
    "messageDelayLevel": "1s 2s 1s 1s 1s",
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 500,
    "mappedFileSizeCommitLog": 64 * 1024 * 1024,
}


@dataclass
class Server:
    """One process. `ready` is the line it printed when it could be used."""

    ready: str
    process: "subprocess.Popen[str]"
    exit_status: int | None = None

    @property
    def address(self) -> str:
        found = _READY.search(self.ready)
        assert found is not None
        return found[1]

    def kill(self) -> None:
        """With -9: it can tidy nothing up."""
        self.process.kill()


@contextmanager
def nameserver(root: Path) -> Iterator[Server]:
    with _running(root / "namesrv.log", "namesrv", "--listen", "127.0.0.1:0") as server:
        yield server


@contextmanager
def broker(root: Path, nameserver_address: str) -> Iterator[Server]:
    """On the store under `root`, which a second one of the same root finds as the first left it."""
    root.mkdir(exist_ok=True)
    conf = root / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in BROKER_CONF.items()))
    arguments = ("-c", str(conf), "-n", nameserver_address, "--listen", "127.0.0.1:0", "--store", str(root / "store"))
    with _running(root / "broker.log", "broker", *arguments) as server:
        yield server


@contextmanager
def _running(log: Path, *arguments: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "ariane", *arguments, "--log-level", "warning"]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            server = Server(process.stdout.readline().strip(), process)
            if _READY.search(server.ready) is None:
                raise SystemExit(f"ariane {arguments[0]} did not start:\n{log.read_text()}")
            yield server
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
    server.exit_status = process.returncode


def verify_store(root: Path) -> tuple[bool, str]:
    """`ariane store verify`, over what the broker left behind: whether all is well, and what it looked at."""
    command = [sys.executable, "-m", "ariane", "store", "verify", str(root / "store"), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return False, done.stderr.strip()
    found = json.loads(done.stdout)["summary"]
    return True, f"{found['records']:,} records, {found['queues']} queues and their index agree"
