"""The broker processes of `ariane up --brokers N`: one each, so that one can be killed to see the effect."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import click

from ariane import errors
from ariane.cli.up.child import FAILED
from ariane.errors import ArianeError
from ariane.lifecycle import background
from ariane.model.address import Address

STOP_TIMEOUT_S = 1.8
"""A process still running then is killed: Ctrl-C ends everything within two seconds."""


@dataclass(slots=True)
class BrokerProcess:
    name: str
    process: asyncio.subprocess.Process
    address: Address | None = None

    @classmethod
    async def start(cls, flags: Mapping[str, object], log_level: str) -> "BrokerProcess":
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "ariane.cli.up.child", json.dumps(flags), log_level),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C goes to a whole process group; the order of stopping is decided here
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        return cls(str(flags["name"]), process)

    async def until_ready(self) -> Address:
        """Raises the error that ended the process before it was ready."""
        assert self.process.stdout is not None
        line = (await self.process.stdout.readline()).decode()
        if " ready on " not in line:
            raise _start_error(self.name, line)
        self.address = Address.parse(line.split(" ready on ")[1].split()[0])
        return self.address

    def request_stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    async def ended(self, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


@dataclass(slots=True)
class BrokerProcesses:
    """Created by `running`."""

    members: list[BrokerProcess] = field(default_factory=list)
    stopping: bool = False

    @classmethod
    @asynccontextmanager
    async def running(cls, flags: Iterable[Mapping[str, object]], log_level: str) -> AsyncIterator["BrokerProcesses"]:
        """All processes are ready when the body begins, and have ended when it is left."""
        processes = cls()
        try:
            for broker_flags in flags:
                processes.members.append(await BrokerProcess.start(broker_flags, log_level))
            for member in processes.members:
                await member.until_ready()
            async with background(*(partial(processes._watch, member) for member in processes.members)):
                yield processes
        finally:
            await processes._stop()

    async def _watch(self, member: BrokerProcess) -> None:
        status = await member.process.wait()
        if self.stopping:
            return
        if all(other.process.returncode is not None for other in self.members):
            raise ArianeError(f"all brokers have ended, the last with status {status}: start `ariane up` again")
        click.echo(
            f"{member.name} (pid {member.process.pid}) ended with status {status}; the others continue. Its messages "
            "are on disk: restart `ariane up` to bring it back",
            err=True,
        )

    async def _stop(self) -> None:
        self.stopping = True
        for member in self.members:
            member.request_stop()
        await asyncio.gather(*(member.ended(STOP_TIMEOUT_S) for member in self.members))


def _start_error(name: str, line: str) -> ArianeError:
    if not line.startswith(FAILED):
        return ArianeError(f"{name} ended before it was ready: see the lines above")
    cause = json.loads(line.removeprefix(FAILED))
    kind = getattr(errors, cause["kind"], ArianeError)
    return (
        kind(cause["text"]) if issubclass(kind, ArianeError) and kind is not errors.RequestFailed else ArianeError(line)
    )
