"""Runs every check for each client against one pair of servers."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ariane.client.core.instance import Instance
from interop.apache import CLIENT_VERSION, OLD_CLIENT_VERSION, VERSION_5
from interop.broker.ariane_client import ArianeClient
from interop.broker.client import Client, Couple
from interop.broker.guests import AdminShell, go_guest, java_guest
from interop.broker.judge import judge
from interop.broker.kinds import KINDS, Check
from interop.broker.servers import Servers
from interop.broker.stage import Stage, safe_name
from interop.broker.table import Cell, Table

AT_A_TIME = 6
"""Checks at once. Most of them wait most of the time, but each starts consumers."""


@dataclass(frozen=True, slots=True)
class Company:
    """The clients that come to one pair of servers, each opened when first asked for."""

    servers: Servers
    work: Path
    stack: AsyncExitStack
    known: dict[str, Client]

    async def client(self, name: str) -> Client:
        sender, arrow, receiver = name.partition(">")
        if arrow:
            return Couple(await self.client(sender), await self.client(receiver))
        if name not in self.known:
            self.known[name] = await self.stack.enter_async_context(self._open(name))
        return self.known[name]

    @asynccontextmanager
    async def _open(self, name: str) -> AsyncIterator[Client]:
        if name == "ariane":
            async with ArianeClient.open(self.servers.client_settings, self.work) as client:
                yield client
        elif name == "go":
            async with go_guest(self.servers.nameserver, self.work) as guest:
                yield guest
        else:
            version = {"java47": OLD_CLIENT_VERSION, "java4": CLIENT_VERSION, "java5": VERSION_5}[name]
            async with java_guest(version, self.servers.nameserver, self.work, self.servers.security) as guest:
                yield guest


async def run_columns(
    servers: Servers, names: Collection[str], kinds: Collection[str], admin: AdminShell, table: Table, work: Path
) -> None:
    async with Instance.open(servers.client_settings) as caller, AsyncExitStack() as stack:
        company = Company(servers, work, stack, {})
        clients = {name: await company.client(name) for name in names}
        seats = asyncio.Semaphore(AT_A_TIME)
        jobs = [
            _in_turn(KINDS[kind], Stage(client, servers, admin, caller, safe_name(f"{name}_{kind}")), seats)
            for kind in kinds
            for name, client in clients.items()
        ]
        cells = iter(await asyncio.gather(*jobs))
        for kind in kinds:
            for client in clients.values():
                table.put(kind, client.name, next(cells))


async def _in_turn(check: Check, stage: Stage, seats: asyncio.Semaphore) -> Cell:
    async with seats:
        return await judge(check(stage))
