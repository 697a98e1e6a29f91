"""How each client that is not ours is built and invited, and mqadmin as a guest that runs one command after another."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from interop.apache import compile_java, fetch, java_command, prepare_home
from interop.broker.guest import Guest, invited
from interop.broker.security import Security
from interop.mqadmin import shell_command
from interop.other_clients import GO_CLIENT_VERSION
from interop.processes import InteropError, program
from interop.report import CheckFailed

HERE = Path(__file__).resolve().parents[1]
SOURCES = [
    HERE / "java" / f"{name}.java" for name in ("Line", "Guest", "GuestAccount", "GuestProducers", "GuestConsumers")
]


@asynccontextmanager
async def java_guest(
    version: str, nameserver: str, work: Path, security: Security | None = None
) -> AsyncIterator[Guest]:
    home = _home(work / f"java-{version}")
    classpath = compile_java(SOURCES, fetch("client", version), home / "classes")
    command = java_command(
        classpath, "Guest", nameserver, home=home, properties=security.java_client() if security else {}
    )
    async with invited(f"Java {version}", command, home / "guest.log") as guest:
        yield guest


@asynccontextmanager
async def go_guest(nameserver: str, work: Path) -> AsyncIterator[Guest]:
    home = _home(work / "go")
    binary = home / "guest"
    build = [program("go"), "build", "-o", str(binary), "./guest"]
    done = subprocess.run(build, cwd=HERE / "go", check=False, capture_output=True, text=True)  # noqa: ASYNC221
    if done.returncode:
        raise InteropError(f"go build failed:\n{done.stderr}")
    # The client writes its logs and broadcast offsets below the home directory.
    environment = {**os.environ, "HOME": str(home)}
    async with invited(f"Go {GO_CLIENT_VERSION}", [str(binary), nameserver], home / "guest.log", environment) as guest:
        yield guest


@dataclass(frozen=True, slots=True)
class AdminShell:
    """mqadmin; one command at a time, for all of them print to the same place."""

    guest: Guest
    nameserver: str
    turn: asyncio.Lock

    async def run(self, command: str, *options: str) -> str:
        """What the command printed: mqadmin has no exit status to speak of."""
        words = [command, "-n", self.nameserver, *options]
        async with self.turn:
            response = await self.guest.ask({f"word{number}": word for number, word in enumerate(words)})
        if "printed" not in response:
            raise CheckFailed(
                f"mqadmin {command} {' '.join(options)} has ended the Java machine: is there a wrong option?"
            )
        return response["printed"]


@asynccontextmanager
async def admin_shell(nameserver: str, work: Path, security: Security | None = None) -> AsyncIterator[AdminShell]:
    home = work / "mqadmin"
    if security:
        security.write_accounts(home)
    async with invited(
        "mqadmin", shell_command(home, security.java_client() if security else {}), home / "shell.log"
    ) as guest:
        yield AdminShell(guest, nameserver, asyncio.Lock())


def _home(home: Path) -> Path:
    prepare_home(home)
    return home
