"""The servers of the demo, started as a user does: `ariane namesrv` and `ariane broker`, in a temporary directory."""

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

# RocketMQ's setting names. Short delays and transaction checks, so that the demo takes seconds and not minutes.
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
    """One server process. `ready` is the line that it printed when it was ready."""

    ready: str
    process: "subprocess.Popen[str]"
    exit_status: int | None = None

    @property
    def address(self) -> str:
        match = _READY.search(self.ready)
        assert match is not None
        return match[1]

    def kill(self) -> None:
        """With SIGKILL (-9): the process cannot clean up."""
        self.process.kill()


@contextmanager
def nameserver(root: Path) -> Iterator[Server]:
    with _running(root / "namesrv.log", "namesrv", "--listen", "127.0.0.1:0") as server:
        yield server


@contextmanager
def broker(root: Path, nameserver_address: str) -> Iterator[Server]:
    """Uses the store in `root`. A second broker with the same `root` opens the store that the first one left."""
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
    """Runs `ariane store verify` on the store of the broker: whether it is consistent, and a summary."""
    command = [sys.executable, "-m", "ariane", "store", "verify", str(root / "store"), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return False, done.stderr.strip()
    summary = json.loads(done.stdout)["summary"]
    return True, f"{summary['records']:,} records, {summary['queues']} queues and their index agree"
