"""A SYNC_MASTER with slaves and a nameserver, each a process on its own node of a network (network.py)."""

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ariane.clock import Clock
from ariane.errors import ArianeError
from ariane.rpc.caller import Caller
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import HandlerTable
from ariane.transport.pool import Pool
from ariane.transport.settings import TransportSettings
from ariane.wire.requests.brokers import GetRuntimeInfo
from tests.chaos.network import Loopback, Namespaces, Node
from tests.chaos.power_cut import mounted, run
from tests.cluster.processes import ServerProcess, properties, server

BROKER = "broker-a"
FILE_BYTES = 1024 * 1024
SLAVE_TIMEOUT_S = 1.0
HOUSEKEEPING_S = 3.0
FALL_BEHIND_BYTES = 128 * 1024
DISK_BYTES = 192 * 1024 * 1024
CALL_S = 2.0
CATCH_UP_S = 60.0

Network = Loopback | Namespaces


@dataclass
class Member:
    """The master, or a slave."""

    node: Node
    disk: Path
    """What a fault may fill: at a slave of a network of namespaces a small file system of its own."""
    process: ServerProcess
    emptied: int = 0

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def store(self) -> Path:
        return self.disk / "store"

    @property
    def log(self) -> Path:
        return self.store / "commitlog"


@dataclass
class Replicas:
    directory: Path
    network: Network
    caller: Caller
    nameserver: str
    master: Member
    slaves: list[Member]
    sent_ok: Callable[[], float] = lambda: 0.0
    """When the last message was sent that got SEND_OK, on the monotonic clock. The traffic sets it."""
    has_route: bool = True
    """Whether clients must find the slave that is left by the nameserver."""

    @classmethod
    @asynccontextmanager
    async def running(
        cls, directory: Path, network: Network, slaves: int, role: str = "SYNC_MASTER"
    ) -> AsyncIterator["Replicas"]:
        async with AsyncExitStack() as stack:
            listen = ("--listen", f"{network.host}:0", "--insecure")
            nameserver = await stack.enter_async_context(server(directory / "namesrv.log", "namesrv", *listen))
            pool = await stack.enter_async_context(
                Pool.open(TransportSettings(), Clock(), Dispatcher(HandlerTable.of()).receive)
            )
            (directory / "secret").write_text("the secret of these replicas\n")
            address = nameserver.address
            master = await _member(stack, directory, network, address, "master", role)
            members = [
                await _member(stack, directory, network, address, f"slave-{n + 1}", "SLAVE") for n in range(slaves)
            ]
            yield cls(directory, network, Caller(pool), address, master, members)

    @property
    def members(self) -> list[Member]:
        return [self.master, *self.slaves]

    # --- ends of logs -----------------------------------------------------------------------------------------------

    async def log_end(self, member: Member) -> int:
        """ArianeError when it does not say."""
        response = await self.caller.call(member.process.address, GetRuntimeInfo(), CALL_S)
        return int(response.body.table["commitLogMaxOffset"])

    async def until(self, condition: Callable[[], Any], timeout_s: float) -> bool:
        """Whether the awaited condition became true in time; a server that does not respond may do so later."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            with suppress(ArianeError):
                if await condition():
                    return True
            await asyncio.sleep(0.05)
        return False

    async def caught_up(self, slave: Member) -> float | None:
        """How long it takes until the slave has all that the master has now; None when it does not."""
        began, goal = time.monotonic(), -1

        async def has_all() -> bool:
            nonlocal goal
            goal = await self.log_end(self.master) if goal < 0 else goal
            return await self.log_end(slave) >= goal

        return time.monotonic() - began if await self.until(has_all, CATCH_UP_S) else None

    async def ends_at_rest(self) -> dict[str, int]:
        """Where the logs of the slaves end, when the master is gone and nothing arrives any more."""
        ends: dict[str, int] = {}

        async def is_at_rest() -> bool:
            before = dict(ends)
            for slave in self.slaves:
                ends[slave.name] = await self.log_end(slave)
            await asyncio.sleep(0.3)
            return before == ends

        assert await self.until(is_at_rest, CATCH_UP_S), "a slave does not say where its log ends"
        return ends

    # --- by hand ----------------------------------------------------------------------------------------------------

    async def promoted(self, slave: Member) -> None:
        """Restarts a stopped slave as the master, as an operator would."""
        slave.process = _broker(self.directory, slave.node, slave.disk, self.nameserver, "ASYNC_MASTER")
        await slave.process.start()

    async def emptied(self, slave: Member) -> None:
        """Kills it, removes all it has, and starts it again."""
        await slave.process.kill()
        slave.emptied += 1
        await asyncio.to_thread(shutil.rmtree, slave.store)
        await slave.process.start()


async def _member(
    stack: AsyncExitStack, directory: Path, network: Network, nameserver: str, name: str, role: str
) -> Member:
    disk = directory / name
    disk.mkdir()
    if isinstance(network, Namespaces) and name != "master":
        image = directory / f"{name}.image"
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        await asyncio.to_thread(run, "mkfs.ext4", "-q", "-F", "-m", "0", image)  # no blocks for root only: we are root
        stack.enter_context(mounted(image, disk))
    node = await asyncio.to_thread(network.node, name)
    member = Member(node, disk, _broker(directory, node, disk, nameserver, role))

    async def end() -> None:
        await member.process.kill()

    stack.push_async_callback(end)
    await member.process.start()
    member.process.keep_address()
    return member


def _broker(directory: Path, node: Node, disk: Path, nameserver: str, role: str) -> ServerProcess:
    number = int(node.name.rpartition("-")[2]) if role == "SLAVE" else 0
    file = properties(
        directory / f"{node.name}-{role}.conf",
        {
            "brokerName": BROKER,
            "brokerRole": role,
            "brokerId": number,
            "storePathRootDir": disk / "store",
            "mappedFileSizeCommitLog": FILE_BYTES,
            "maxHashSlotNum": 5000,  # the index of a small disk: its blocks are allocated as keys come
            "maxIndexNum": 20_000,
            "flushDiskType": "ASYNC_FLUSH",  # what is in the page cache outlives a killed process
            "slaveTimeout": round(SLAVE_TIMEOUT_S * 1000),
            "haHousekeepingInterval": round(HOUSEKEEPING_S * 1000),
            "haSendHeartbeatInterval": 500,
            "haSlaveFallbehindMax": FALL_BEHIND_BYTES,
            "cleanFileForciblyEnable": "false",  # a full disk must not make the slave delete what it has
            "cleanResourceInterval": 500,
            "insecure": "true",
        },
    )
    port = 10911 if node.prefix else 0  # a port of its own where all share one host
    arguments = ("broker", "-c", str(file), "-n", nameserver, "--listen", f"{node.host}:{port}")
    secret = f"ARIANE_BROKER__REPLICATION__SECRET_FILE={directory / 'secret'}"
    return ServerProcess(directory / f"{node.name}.log", *arguments, prefix=(*node.prefix, "env", secret))


def last_lines(log: Path, count: int = 5) -> str:
    lines = log.read_text(errors="replace").splitlines()[-count:]
    return " | ".join(_short(line) for line in lines)


def _short(line: str) -> str:
    with suppress(ValueError):
        line = json.dumps(json.loads(line))
    return line[:200]
