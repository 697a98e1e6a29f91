"""Builds and starts the clients of other vendors (Java, Go) and a long-running mqadmin process."""

import asyncio
import importlib.util
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from interop.apache import CLIENT_VERSION, compile_java, fetch, java_command, prepare_home
from interop.broker.client_process import ClientProcess, client_process
from interop.broker.security import Security
from interop.mqadmin import shell_command
from interop.other_clients import GO_CLIENT_VERSION
from interop.processes import InteropError, program
from interop.report import CheckFailed

HERE = Path(__file__).resolve().parents[1]
CPP_CLIENT = HERE.parent / "tests" / "clients" / "cpp_client.py"
SOURCES = [
    HERE / "java" / f"{name}.java"
    for name in ("Line", "ClientDriver", "Credentials", "ProducerCommands", "ConsumerCommands")
]


@asynccontextmanager
async def java_client(
    version: str, nameserver: str, work: Path, security: Security | None = None
) -> AsyncIterator[ClientProcess]:
    home = _home(work / f"java-{version}")
    jars = await asyncio.to_thread(fetch, "client", version)
    classpath = await asyncio.to_thread(compile_java, SOURCES, jars, home / "classes")
    command = java_command(
        classpath, "ClientDriver", nameserver, home=home, properties=security.java_client() if security else {}
    )
    async with client_process(f"Java {version}", command, home / "client.log") as process:
        yield process


@asynccontextmanager
async def go_client(nameserver: str, work: Path) -> AsyncIterator[ClientProcess]:
    home = _home(work / "go")
    binary = home / "driver"
    build = [program("go"), "build", "-o", str(binary), "./driver"]
    run = partial(subprocess.run, build, cwd=HERE / "go", check=False, capture_output=True, text=True)
    done = await asyncio.to_thread(run)
    if done.returncode:
        raise InteropError(f"go build failed:\n{done.stderr}")
    # The client writes its logs and broadcast offsets below the home directory.
    environment = {**os.environ, "HOME": str(home)}
    async with client_process(
        f"Go {GO_CLIENT_VERSION}", [str(binary), nameserver], home / "client.log", environment
    ) as process:
        yield process


@asynccontextmanager
async def cpp_client(nameserver: str, work: Path) -> AsyncIterator[ClientProcess]:
    """The wheel is there for Linux x86-64 only."""
    if importlib.util.find_spec("rocketmq") is None:
        raise InteropError("the C++ client is not installed: pip install rocketmq")
    home = _home(work / "cpp")
    # The client writes its logs and offsets below the home directory.
    environment = {**os.environ, "HOME": str(home)}
    command = [sys.executable, str(CPP_CLIENT), nameserver]
    async with client_process("C++", command, home / "client.log", environment) as process:
        yield process


@dataclass(frozen=True, slots=True)
class AdminShell:
    """mqadmin in one process. One command at a time, because all commands share the standard output."""

    process: ClientProcess
    nameserver: str
    lock: asyncio.Lock

    async def run(self, command: str, *options: str) -> str:
        """Returns what the command printed; mqadmin's exit status says nothing."""
        words = [command, "-n", self.nameserver, *options]
        async with self.lock:
            response = await self.process.request({f"word{number}": word for number, word in enumerate(words)})
        if "printed" not in response:
            raise CheckFailed(f"mqadmin {command} {' '.join(options)} terminated the JVM: check its options")
        return response["printed"]


@asynccontextmanager
async def admin_shell(
    nameserver: str, work: Path, security: Security | None = None, version: str = CLIENT_VERSION
) -> AsyncIterator[AdminShell]:
    home = work / f"mqadmin-{version}"
    if security:
        security.write_accounts(home)
    properties = security.java_client() if security else {}
    command = await asyncio.to_thread(shell_command, home, properties, version)
    # consumerStatus writes its result to the working directory.
    async with client_process("mqadmin", command, home / "shell.log", directory=home) as process:
        yield AdminShell(process, nameserver, asyncio.Lock())


def _home(home: Path) -> Path:
    prepare_home(home)
    return home
