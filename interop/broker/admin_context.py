"""Fixture of the mqadmin checks: a topic with messages and a group that consumes it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from interop.apache import CLIENT_VERSION
from interop.broker.client import Client
from interop.broker.foreign_clients import AdminShell, java_client
from interop.broker.servers import Servers
from interop.report import expect_in

TOPIC, GROUP = "AdminTopic", "AdminGroup"
QUEUES, MESSAGES = 4, 8


@dataclass(frozen=True, slots=True)
class AdminContext:
    servers: Servers
    admin: AdminShell
    java: Client
    client_id: str
    """Of the only consumer of the group."""
    sent: Sequence[Mapping[str, str]]
    """Responses to the sends of m0 to m7, round robin over the queues."""
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

    async def expect_output(self, command: str, *options: str, expected: Sequence[str]) -> str:
        """Runs a command and returns its output, which must contain each expected text (white space normalised)."""
        printed = await self.admin.run(command, *options)
        for text in expected:
            expect_in(text, " ".join(printed.split()))
        return printed


@asynccontextmanager
async def admin_context(servers: Servers, admin: AdminShell, work: Path) -> AsyncIterator[AdminContext]:
    options = ["-b", servers.plan.address, "-t", TOPIC, "-r", str(QUEUES), "-w", str(QUEUES)]
    expect_in("success", await admin.run("updateTopic", *options))
    async with java_client(CLIENT_VERSION, servers.nameserver, work / "admin-client") as java:
        sent = [
            await java.call("send", topic=TOPIC, body=f"m{number}", tags="TagA", keys=f"key{number}", queue=number % 4)
            for number in range(MESSAGES)
        ]
        started = await java.call("consume", inbox="admin", group=GROUP, topic=TOPIC)
        await java.inbox("admin").wait(lambda seen: len(seen) >= MESSAGES, "all messages")
        yield AdminContext(servers, admin, java, started["client_id"], sent, work / "exports")
