"""Runs the clients that are not Java: Apache's Go client and ali-ons for Node, each a small program in its directory.

Each sends messages to an existing topic through a nameserver, consumes them and prints how many arrived.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from interop.processes import InteropError, cache_directory, program

HERE = Path(__file__).resolve().parent
# As go/go.mod and node/package.json say.
GO_CLIENT_VERSION = "2.1.2"
NODE_CLIENT_VERSION = "3.12.0"
# As pyproject.toml says.
CPP_CLIENT_VERSION = "0.4.4"
# The Go program also sends a one-way message and a batch of two.
GO_EXTRA_MESSAGES = 3
# Nameserver, topic, how many messages, a directory for files.
ClientProgram = Callable[[str, str, int, Path], subprocess.CompletedProcess[str]]
RUN_SECONDS = 150.0


def run_go(nameserver: str, topic: str, count: int, home: Path) -> subprocess.CompletedProcess[str]:
    """Build the Go program (Go has its own build cache) and run it."""
    binary = home / "go-client"
    _must_succeed([program("go"), "build", "-o", str(binary), "."], HERE / "go")
    # The client writes its logs below the home directory.
    environment = {**os.environ, "HOME": str(home)}
    return _run([str(binary), nameserver, topic, str(count)], environment)


def run_node(nameserver: str, topic: str, count: int, home: Path) -> subprocess.CompletedProcess[str]:
    """Install the Node client into the cache unless it is there, and run the program with it."""
    installed = cache_directory() / f"ali-ons-{NODE_CLIENT_VERSION}"
    if not (installed / "complete").exists():
        shutil.rmtree(installed, ignore_errors=True)
        installed.mkdir()
        shutil.copy(HERE / "node" / "package.json", installed)
        _must_succeed([program("npm"), "install", "--silent", "--no-audit", "--no-fund"], installed)
        (installed / "complete").touch()
    environment = {**os.environ, "HOME": str(home), "NODE_PATH": str(installed / "node_modules")}
    return _run([program("node"), str(HERE / "node" / "main.js"), nameserver, topic, str(count)], environment)


def _must_succeed(command: list[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, check=False, capture_output=True, text=True)
    if done.returncode:
        raise InteropError(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=RUN_SECONDS)
