"""Spark's own servers as processes on loopback and free ports: a standalone cluster, and a Connect server."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Queue

import pyspark

from ariane.spark.spark_session import find_java

_START_TIMEOUT_S = 180
_DIES_WITH_TESTS = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: also when the tests are killed and cannot clean up
os.execv(sys.argv[1], sys.argv[1:])
"""
_SMALL = "-XX:TieredStopAtLevel=1 -Xss4m"


def environment() -> dict[str, str]:
    """What Spark's scripts need, as `ariane.spark.spark_session` would set it."""
    java = find_java(os.environ)
    home = {} if java.home is None else {"JAVA_HOME": str(java.home)}
    return {
        **os.environ,
        **home,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "768m",
        "SPARK_DAEMON_JAVA_OPTS": _SMALL,
        "PYSPARK_PYTHON": sys.executable,
    }


@contextmanager
def server(log: Path, ready: str, script: str, *arguments: str) -> Iterator[str]:
    """The first group of `ready` in the server's log; the server and its child processes end with the block."""
    command = [sys.executable, "-c", _DIES_WITH_TESTS, f"{environment()['SPARK_HOME']}/bin/{script}", *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(),
        text=True,
        start_new_session=True,
    )
    matches: Queue[str | None] = Queue()
    reader = threading.Thread(target=_follow, args=(process, log, re.compile(ready), matches), daemon=True)
    reader.start()
    try:
        match = matches.get(timeout=_START_TIMEOUT_S)
        assert match is not None, f"{arguments} did not start:\n{log.read_text()[-3000:]}"
        yield match
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its own group: the executors of a worker are in it
        process.wait()
        reader.join()


def _follow(process: "subprocess.Popen[str]", log: Path, ready: re.Pattern[str], matches: "Queue[str | None]") -> None:
    assert process.stdout is not None
    with process.stdout, log.open("w") as file:
        for line in process.stdout:
            file.write(line)
            file.flush()
            match = ready.search(line)
            if match is not None:
                matches.put(match[1])
    matches.put(None)


@contextmanager
def standalone_cluster(root: Path, workers: int = 2) -> Iterator[str]:
    """The address of a master with workers of one core each."""
    here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        master = stack.enter_context(
            server(
                root / "master.log",
                r"Starting Spark master at (spark://\S+)",
                "spark-class",
                "org.apache.spark.deploy.master.Master",
                *here,
            )
        )
        for number in range(workers):
            stack.enter_context(
                server(
                    root / f"worker-{number}.log",
                    r"(Successfully registered with master)",
                    "spark-class",
                    "org.apache.spark.deploy.worker.Worker",
                    *here,
                    *("--cores", "1", "--memory", "1g", "--work-dir", str(root / f"worker-{number}"), master),
                )
            )
        yield master


@contextmanager
def connect_server(root: Path, master: str = "local[2]") -> Iterator[str]:
    """The address of a Spark Connect server, sc://127.0.0.1:PORT."""
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": _SMALL,
        "spark.sql.warehouse.dir": str(root / "warehouse"),
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    with server(
        root / "connect.log",
        r"Spark Connect server started at: \S*?:(\d+)",
        "spark-submit",
        *("--master", master, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *options,
        "spark-internal",
    ) as port:
        yield f"sc://127.0.0.1:{port}"


def run_job(address: str, root: Path, nameserver: str, topic: str, out: str, store: Path) -> str:
    """What tests/spark/spark_job.py prints, run as a user runs a program: its own process, its own session."""
    arguments = [address, str(root), nameserver, topic, out, str(store)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.spark_job", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout.splitlines()[-1]
