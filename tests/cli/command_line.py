"""Runs `ariane` in a process of its own, with pipes or on a pseudo-terminal."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ariane

HANG_S = 60  # only a hang is this long; nothing here is measured
PROGRAM = (sys.executable, "-m", "ariane")
MQADMIN = (sys.executable, "-c", "import sys; from ariane.cli.mqadmin import main; sys.exit(main())")
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith("ARIANE_") and name != "NAMESRV_ADDR"
} | {"PYTHONPATH": str(Path(ariane.__file__).parents[1]), "COLUMNS": "80", "LINES": "24"}


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def rows(self) -> list[dict[str, Any]]:
        rows = json.loads(self.out)
        assert isinstance(rows, list)
        return rows


@dataclass(frozen=True)
class CommandLine:
    namesrv: str
    program: tuple[str, ...] = PROGRAM
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, stdin: str = "") -> Outcome:
        return self.run_words(*arguments, "-n", self.namesrv, stdin=stdin)

    def run_words(self, *arguments: str, stdin: str = "") -> Outcome:
        """For commands that need no cluster."""
        done = subprocess.run(
            [*self.program, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=ENVIRONMENT | self.variables,
            timeout=HANG_S,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Outcome(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: str) -> Outcome:
        done = self.run(*arguments)
        assert done.status == 0, done
        return done

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        return self.ok(*arguments, "-o", "json").rows

    def on_terminal(self, *arguments: str, keys: str = "") -> Outcome:
        """`keys` are typed ahead. stdout and stderr are one screen there."""
        master, slave = pty.openpty()
        with closing(os.fdopen(master, "wb", buffering=0)) as keyboard:
            process = subprocess.Popen(
                [*self.program, *arguments, "-n", self.namesrv],
                stdin=slave,
                stdout=slave,
                stderr=slave,
                env=ENVIRONMENT | self.variables,
                close_fds=True,
            )
            os.close(slave)
            keyboard.write(keys.encode())
            screen = b"".join(_read(master))
            return Outcome(process.wait(HANG_S), screen.decode().replace("\r\n", "\n"), "")


def _read(master: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # Linux says so when the last process has left the terminal
            return
        if not chunk:
            return
        yield chunk
