"""The `console` blocks of the README and of docs/operations.md: servers, and the commands that operate them."""

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.command_line import ENVIRONMENT, HANG_S, PROGRAM, CommandLine
from tests.examples.snippets import ADDRESS, ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TRY, FIRST, SERVERS = _CONSOLE.findall(TEXT)
OPERATE = _CONSOLE.findall((ROOT / "docs" / "operations.md").read_text(encoding="utf-8"))[-1]
FREE = ("--listen", "127.0.0.1:0")
NOT_RUN = {
    "make demo": "runs for a minute: tests/examples/test_demo.py runs its parts",
    "make test": "is what runs this",
    "make install && . .venv/bin/activate": "has been done where this runs",
}


def commands(block: str) -> list[str]:
    return [line.split(" #")[0].strip() for line in block.splitlines()]


def test_every_console_line_is_run_or_listed_as_not_run(tmp_path: Path) -> None:
    assert [line for line in commands(TRY + FIRST) if line not in NOT_RUN] == ["ariane up"]
    with server(tmp_path, "ariane up", "--port", "0", "--broker-port", "0") as line:
        assert "ready" in line
    assert (tmp_path / ".ariane").is_dir()


def test_the_servers_start_and_are_operated(tmp_path: Path) -> None:
    namesrv, broker = commands(SERVERS)
    config, store = tmp_path / "broker.conf", tmp_path / "store"
    config.write_text("fileReservedTime=24\n")
    with server(tmp_path, namesrv, *FREE) as line:
        address = re.findall(r"127\.0\.0\.1:\d+", line)[0]
        with server(tmp_path, broker.replace(ADDRESS, address), *FREE):
            command = CommandLine(address)
            assert command.run("send", "orders", "two tickets").status == 0
            show, change, *stores = [
                shlex.split(line.replace("FILE", str(config)).replace("DIR", str(store)))[1:]
                for line in commands(OPERATE)
            ]
            assert "broker.conf" in command.run_words(*show).out
            assert command.on_terminal(*change, keys="y\n").status == 0
    for words in stores:
        done = command.run_words(*words)
        assert done.status == 0, (words, done)


@contextmanager
def server(directory: Path, line: str, *more: str) -> Iterator[str]:
    """Its first line, when it is ready; it ends on Ctrl-C. Variables may stand before its name."""
    settings, _, program = line.partition("ariane ")
    variables = dict(pair.split("=", 1) for pair in settings.split())
    process = subprocess.Popen(
        [*PROGRAM, *shlex.split(program), *more],
        cwd=directory,
        env=ENVIRONMENT | variables,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline()
        finally:
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(HANG_S) == 0
