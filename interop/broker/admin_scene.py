"""A topic with messages and a group that consumes it, for mqadmin's commands to work on."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from interop.apache import CLIENT_VERSION
from interop.broker.client import Client
from interop.broker.guests import AdminShell, java_guest
from interop.broker.servers import Servers
from interop.report import expect_in

TOPIC, GROUP = "AdminTopic", "AdminGroup"
QUEUES, MESSAGES = 4, 8


@dataclass(frozen=True, slots=True)
class Scene:
    servers: Servers
    admin: AdminShell
    java: Client
    client_id: str
    """Of the one consumer of the group."""
    sent: Sequence[Mapping[str, str]]
    """The answers to the sends: m0 to m7, by turns to each queue."""
    exports: Path

    @property
    def broker(self) -> str:
        return self.servers.plan.address

    @property
    def broker_name(self) -> str:
        return self.servers.plan.name

    @property
    def cluster(self) -> str:
        return self.servers.plan.cluster

    async def says(self, command: str, *options: str, wanted: Sequence[str]) -> str:
        """Runs a command, which must print each of these words, white space apart. Returns all of it."""
        printed = await self.admin.run(command, *options)
        for words in wanted:
            expect_in(words, " ".join(printed.split()))
        return printed


@asynccontextmanager
async def scene(servers: Servers, admin: AdminShell, work: Path) -> AsyncIterator[Scene]:
    options = ["-b", servers.plan.address, "-t", TOPIC, "-r", str(QUEUES), "-w", str(QUEUES)]
    expect_in("success", await admin.run("updateTopic", *options))
    async with java_guest(CLIENT_VERSION, servers.nameserver, work / "scene") as java:
        sent = [
            await java.call("send", topic=TOPIC, body=f"m{number}", tags="TagA", keys=f"key{number}", queue=number % 4)
            for number in range(MESSAGES)
        ]
        started = await java.call("consume", inbox="scene", group=GROUP, topic=TOPIC)
        await java.inbox("scene").wait(lambda seen: len(seen) >= MESSAGES, "all messages")
        yield Scene(servers, admin, java, started["client_id"], sent, work / "exports")


Command = Callable[[Scene], Awaitable[object]]


class Rows(dict[str, Command]):
    """Checks by the name of their row, in the order in which they are written down."""

    def row(self, name: str) -> Callable[[Command], Command]:
        def keep(command: Command) -> Command:
            self[name] = command
            return command

        return keep
