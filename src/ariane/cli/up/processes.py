"""The broker processes of `ariane up` with several brokers or slaves: one each, so that one can be killed to see the
effect."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import click

from ariane import errors
from ariane.cli.up.child import FAILED, STOPPING
from ariane.errors import ArianeError
from ariane.lifecycle import background
from ariane.model.address import Address

Flags = Mapping[str, object]

STOP_TIMEOUT_S = 1.8
"""A process still running then is killed: Ctrl-C ends everything within two seconds."""
PAIR_STOP_TIMEOUT_S = STOP_TIMEOUT_S + 3.0
"""The same for masters and slaves: a master first gives its slaves what they do not have yet, for 3 s at most."""


@dataclass(frozen=True, slots=True)
class UpBroker:
    """A running broker."""

    label: str
    name: str
    broker_id: int
    pid: int
    address: Address

    def as_row(self) -> dict[str, object]:
        return {"name": self.name, "id": self.broker_id, "address": str(self.address), "pid": self.pid}


@dataclass(slots=True)
class BrokerProcess:
    label: str
    name: str
    broker_id: int
    process: asyncio.subprocess.Process
    address: Address | None = None

    @classmethod
    async def start(cls, label: str, flags: Flags, log_level: str) -> "BrokerProcess":
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "ariane.cli.up.child", label, json.dumps(flags), log_level),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C goes to a whole process group; the order of stopping is decided here
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        return cls(label, str(flags["name"]), int(str(flags.get("broker_id", 0))), process)

    @property
    def is_slave(self) -> bool:
        return self.broker_id > 0

    @property
    def broker(self) -> UpBroker:
        assert self.address is not None
        return UpBroker(self.label, self.name, self.broker_id, self.process.pid, self.address)

    async def until_ready(self) -> Address:
        """Raises the error that ended the process before it was ready."""
        assert self.process.stdout is not None
        line = (await self.process.stdout.readline()).decode()
        if " ready on " not in line:
            raise _start_error(self.label, line)
        self.address = Address.parse(line.split(" ready on ")[1].split()[0])
        return self.address

    def announce_stop(self) -> None:
        """To a slave: its master stops now, and this is no reason for a warning."""
        assert self.process.stdin is not None
        self.process.stdin.write(STOPPING)

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
    async def running(
        cls, masters: Mapping[str, Flags], slaves: Mapping[str, Flags], log_level: str
    ) -> AsyncIterator["BrokerProcesses"]:
        """All processes are ready when the body begins, and have ended when it is left. A slave starts after its
        master, because it asks where that is, and stops after it, because then it has all that the master has."""
        processes = cls()
        try:
            for stage in (masters, slaves):
                for label, flags in stage.items():
                    processes.members.append(await BrokerProcess.start(label, flags, log_level))
                for member in processes.members:
                    if member.address is None:
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
            f"{member.label} (pid {member.process.pid}) ended with status {status}; the others continue. Its messages "
            f"are on disk{self._other_copy(member)}: restart `ariane up` to bring it back",
            err=True,
        )

    def _other_copy(self, ended: BrokerProcess) -> str:
        others = [other for other in self.members if other.name == ended.name and other.process.returncode is None]
        if not others:
            return ""
        return ", and its master has them" if ended.is_slave else ", and consumers read them from its slave"

    async def _stop(self) -> None:
        self.stopping = True
        masters = [member for member in self.members if not member.is_slave]
        slaves = [member for member in self.members if member.is_slave]
        for slave in slaves:
            slave.announce_stop()
        timeout_s = PAIR_STOP_TIMEOUT_S if slaves else STOP_TIMEOUT_S
        await _end(masters, timeout_s)
        await _end(slaves, timeout_s)


async def _end(members: Collection[BrokerProcess], within_s: float) -> None:
    for member in members:
        member.request_stop()
    await asyncio.gather(*(member.ended(within_s) for member in members))


def _start_error(label: str, line: str) -> ArianeError:
    if not line.startswith(FAILED):
        return ArianeError(f"{label} ended before it was ready: see the lines above")
    cause = json.loads(line.removeprefix(FAILED))
    kind = getattr(errors, cause["kind"], ArianeError)
    return (
        kind(cause["text"]) if issubclass(kind, ArianeError) and kind is not errors.RequestFailed else ArianeError(line)
    )
