"""Runs every check for each client against one nameserver and broker: the columns of a table."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ariane.client.core.instance import Instance
from interop.apache import CLIENT_VERSION, OLD_CLIENT_VERSION, VERSION_5
from interop.broker.ariane_client import ArianeClient
from interop.broker.check_context import CheckContext, safe_name
from interop.broker.client import Client, ClientPair
from interop.broker.foreign_clients import AdminShell, cpp_client, go_client, java_client
from interop.broker.kinds import KINDS, Check
from interop.broker.run_check import run_check
from interop.broker.servers import Servers
from interop.broker.table import Cell, Table

CONCURRENT_CHECKS = 6
"""Concurrent checks. Checks mostly wait, but each starts consumers."""


@dataclass(frozen=True, slots=True)
class Clients:
    """The clients of one pair of servers, each started on first use."""

    servers: Servers
    work: Path
    stack: AsyncExitStack
    open_clients: dict[str, Client]

    async def client(self, name: str) -> Client:
        sender, arrow, receiver = name.partition(">")
        if arrow:
            return ClientPair(await self.client(sender), await self.client(receiver))
        if name not in self.open_clients:
            self.open_clients[name] = await self.stack.enter_async_context(self._open(name))
        return self.open_clients[name]

    @asynccontextmanager
    async def _open(self, name: str) -> AsyncIterator[Client]:
        if name == "ariane":
            async with ArianeClient.open(self.servers.client_settings, self.work) as client:
                yield client
        elif name == "go":
            async with go_client(self.servers.nameserver, self.work) as process:
                yield process
        elif name == "cpp":
            async with cpp_client(self.servers.nameserver, self.work) as process:
                yield process
        else:
            version = {"java47": OLD_CLIENT_VERSION, "java4": CLIENT_VERSION, "java5": VERSION_5}[name]
            async with java_client(version, self.servers.nameserver, self.work, self.servers.security) as process:
                yield process


async def run_columns(
    servers: Servers, names: Collection[str], kinds: Collection[str], admin: AdminShell, table: Table, work: Path
) -> None:
    async with Instance.open(servers.client_settings) as caller, AsyncExitStack() as stack:
        clients_by_name = Clients(servers, work, stack, {})
        clients = {name: await clients_by_name.client(name) for name in names}
        slots = asyncio.Semaphore(CONCURRENT_CHECKS)
        jobs = [
            _run_with_limit(
                KINDS[kind], CheckContext(client, servers, admin, caller, safe_name(f"{name}_{kind}")), slots
            )
            for kind in kinds
            for name, client in clients.items()
        ]
        cells = iter(await asyncio.gather(*jobs))
        for kind in kinds:
            for client in clients.values():
                table.put(kind, client.name, next(cells))


async def _run_with_limit(check: Check, context: CheckContext, slots: asyncio.Semaphore) -> Cell:
    async with slots:
        return await run_check(check(context))
