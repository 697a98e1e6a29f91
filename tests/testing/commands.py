"""Runs `ariane` commands as processes, with pipes or at a pseudo terminal."""

import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from typing import Any

import ariane

HANG_S = 60  # only a hang is this long; nothing here is measured
COMMAND = [sys.executable, "-m", "ariane"]
READY = re.compile(r"ariane up ready on (\S+:\d+) \(pid (\d+)\)\n")
# The source tree under test, installed or not, without settings from the environment.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith("ARIANE_") and name != "NAMESRV_ADDR"
} | {"PYTHONPATH": str(Path(ariane.__file__).parents[1])}
SMALL = {"ARIANE_BROKER__STORE__SEGMENT_BYTES": "8388608", "ARIANE_BROKER__STORE__INDEX_ENTRIES": "4000"}


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Decoded JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


def run(*arguments: str, cwd: Path, stdin: str | bytes = b"", **variables: str) -> Outcome:
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=ENVIRONMENT | SMALL | variables,
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=HANG_S,
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


class Terminal:
    """The screen and keyboard of a command. Made by `terminal`."""

    def __init__(self, process: "subprocess.Popen[bytes]", end: int) -> None:
        self._process = process
        self._end = end
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def read_until(self, text: str) -> None:
        while text not in self.seen:
            assert self._read(), f"it ended: {self.seen}"

    def status(self) -> int:
        while self._read():
            pass
        return self._process.wait(HANG_S)

    def _read(self) -> bool:
        assert select.select([self._end], [], [], HANG_S)[0], f"silent: {self.seen}"
        try:
            chunk = os.read(self._end, 65536)
        except OSError:  # Linux: the other end is closed
            return False
        self.seen += chunk.decode().replace("\r\n", "\n")
        return bool(chunk)


# The terminal must be the process's own for Ctrl-C to become a signal.
_OWN = "import fcntl,os,sys,termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


@contextmanager
def terminal(*arguments: str, cwd: Path, columns: int = 80) -> Iterator[Terminal]:
    """Runs a command at a terminal with `columns` columns; kills it at the end if it still runs."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", _OWN, *COMMAND, *arguments],
        cwd=cwd,
        env=ENVIRONMENT | SMALL | {"TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@dataclass(frozen=True)
class Up:
    process: "subprocess.Popen[str]"
    namesrv: str

    def stop(self, number: signal.Signals = signal.SIGINT) -> Outcome:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=HANG_S)
        return Outcome(self.process.returncode, out, err)

    def lines_until(self, text: str) -> list[str]:
        assert self.process.stdout is not None
        lines: list[str] = []
        while text not in "".join(lines[-1:]):
            line = self.process.stdout.readline()
            assert line, "it ended"
            lines.append(line)
        return lines


@contextmanager
def up(*arguments: str, cwd: Path, **variables: str) -> Iterator[Up]:
    """`ariane up` on free ports, ready; killed at the end if the test has not stopped it."""
    process = subprocess.Popen(
        [*COMMAND, "up", "--port", "0", "--broker-port", "0", *arguments],
        cwd=cwd,
        env=ENVIRONMENT | SMALL | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        ready = READY.fullmatch(line)
        assert ready is not None, (line, process.communicate())
        assert int(ready[2]) == process.pid
        yield Up(process, ready[1])
    finally:
        process.kill()
        process.communicate()
