"""`ariane pipeline run` as people run it: a process of its own, which starts Spark and ends it."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from tests.cli.command_line import ENVIRONMENT, PROGRAM

HANG_S = 600  # only a hang is this long; nothing here is measured


@dataclass
class Run:
    """One that is under way, or over."""

    process: "subprocess.Popen[str]"
    lines: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    _readers: list[threading.Thread] = field(default_factory=list)

    def read(self) -> None:
        for stream, kept in ((self.process.stdout, self.lines), (self.process.stderr, self.errors)):
            assert stream is not None
            reader = threading.Thread(target=_gather, args=(stream, kept), daemon=True)
            reader.start()
            self._readers.append(reader)

    def status(self) -> int:
        status = self.process.wait(HANG_S)
        for reader in self._readers:
            reader.join()
        return status

    def interrupt(self) -> None:
        """Ctrl-C: to everybody in the terminal, so to Java and to the workers, too."""
        os.killpg(self.process.pid, signal.SIGINT)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = monotonic() + HANG_S
        while not condition():
            assert monotonic() < deadline, self.stderr
            sleep(0.1)

    @property
    def stderr(self) -> str:
        return "".join(self.errors)

    def rows(self, sink: str) -> list[dict[str, Any]]:
        """Of a console sink, with `-o jsonl`."""
        found = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [row for row in found if row["sink"] == sink]


def _gather(stream: Any, kept: list[str]) -> None:
    for line in stream:
        kept.append(line)
    stream.close()


@contextmanager
def under_way(nameserver: str, directory: Path, *arguments: str) -> Iterator[Run]:
    command = [*PROGRAM, "pipeline", "run", *arguments, "-n", nameserver, "-o", "jsonl"]
    process = subprocess.Popen(
        command,
        cwd=directory,
        env=ENVIRONMENT | {"PYTHONUNBUFFERED": "1", "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    run = Run(process)
    run.read()
    try:
        yield run
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        run.status()


def run_to_its_end(nameserver: str, directory: Path, *arguments: str) -> Run:
    """It went well, and said nothing that only Spark's developers understand."""
    with under_way(nameserver, directory, *arguments) as run:
        assert run.status() == 0, run.stderr
    assert "Traceback" not in run.stderr
    assert "WARN" not in run.stderr
    return run


def left_behind(leader: int) -> list[str]:
    """Processes of the run's session that outlive it."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append((stat.parent / "cmdline").read_text().replace("\0", " ")[:200])
        except OSError:  # it has just ended
            continue
    return found
