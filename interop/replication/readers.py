"""Checks of clients whose master dies: consumers read from its slave, commit there, and go back; sends go elsewhere."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path

from ariane.client.producer.result import SendStatus
from ariane.errors import ArianeError
from ariane.wire.requests.offsets import GetConsumerOffset
from interop.broker.check_context import QUEUES, eventually, safe_name
from interop.broker.client import Client, NotOffered
from interop.broker.client_process import ClientProcess
from interop.broker.columns import Clients
from interop.broker.rows import Rows
from interop.broker.run_check import run_check
from interop.broker.servers import Servers
from interop.broker.table import Cell, Table
from interop.processes import paused
from interop.replication.members import VENDORS, Member
from interop.replication.pair import Pair, plan_of
from interop.replication.statuses import producer_of
from interop.report import CheckFailed, expect

COUNT = 20
REFRESH_S = 120.0
"""Clients ask for routes every thirty seconds, and send heartbeats as often."""


def bodies(word: str) -> set[str]:
    return {f"{word} {number}" for number in range(COUNT)}


@dataclass(frozen=True, slots=True)
class Reader:
    """One client with topics of its own."""

    client: Client
    pair: Pair
    other: Member
    """A master of another broker name."""

    @property
    def name(self) -> str:
        return safe_name(self.client.name)

    @property
    def topic(self) -> str:
        """At the pair alone."""
        return f"Read_{self.name}"

    @property
    def shared_topic(self) -> str:
        """At the pair and at the other broker."""
        return f"Shared_{self.name}"

    @property
    def running(self) -> str:
        """Inbox and group of a consumer that starts while the master lives."""
        return f"running_{self.name}"

    @property
    def starting(self) -> str:
        """Inbox and group of one that starts when the master is dead."""
        return f"starting_{self.name}"

    async def prepare(self) -> None:
        await self.pair.create_topic(self.topic)
        await self.pair.create_topic(self.shared_topic, at=[self.pair.master, self.other])
        # The client has both routes from now on.
        for body in bodies("before"):
            await self.send(self.topic, body)
            await self.send(self.shared_topic, body)
        await self.client.call("consume", inbox=self.running, group=self.running, topic=self.topic)
        await self.client.inbox(self.running).wait_bodies(bodies("before"), REFRESH_S)

    async def send(self, topic: str, body: str) -> None:
        """Once more when it fails: a client may need its next look at the route."""

        async def is_sent() -> bool:
            try:
                return (await self.client.call("send", topic=topic, body=body))["status"] in tuple(SendStatus)
            except CheckFailed:
                return False

        await eventually(is_sent, f"{body!r} is stored", REFRESH_S)

    async def offsets(self, group: str, member: Member) -> Sequence[int]:
        """What the group has committed there."""
        found = []
        for queue in range(QUEUES):
            request = GetConsumerOffset(consumer_group=group, topic=self.topic, queue_id=queue)
            found.append((await self.pair.call(member.plan.address, request)).offset)
        return found

    async def until_committed(self, group: str, member: Member) -> None:
        async def is_committed() -> bool:
            try:
                return await self.offsets(group, member) == await self.pair.max_offsets(member, self.topic)
            except ArianeError:  # nothing committed yet
                return False

        await eventually(is_committed, f"the offsets of {group} at {member.plan.address}", REFRESH_S)


MASTER_IS_DEAD: Rows[Reader] = Rows()
MASTER_IS_BACK: Rows[Reader] = Rows()


@MASTER_IS_DEAD.row("a running consumer that is behind reads on from the slave")
async def reads_on(reader: Reader) -> None:
    if not isinstance(reader.client, ClientProcess):
        raise NotOffered("it runs in the process of the checks, which cannot stand still so that it is behind")
    await reader.client.inbox(reader.running).wait_bodies(bodies("behind"), REFRESH_S)


@MASTER_IS_DEAD.row("a consumer that starts reads all from the slave")
async def reads(reader: Reader) -> None:
    _require_offsets_of_slaves(reader)
    await reader.client.call("consume", inbox=reader.starting, group=reader.starting, topic=reader.topic)
    await reader.client.inbox(reader.starting).wait_bodies(bodies("before") | bodies("behind"), REFRESH_S)


@MASTER_IS_DEAD.row("commits offsets at the slave")
async def commits(reader: Reader) -> None:
    _require_offsets_of_slaves(reader)
    await reader.until_committed(reader.starting, reader.pair.slave)


def _require_offsets_of_slaves(reader: Reader) -> None:
    if reader.client.name.startswith("Go"):
        raise NotOffered("the Go client reads and commits offsets at masters only")


@MASTER_IS_DEAD.row("sends to another broker name")
async def sends(reader: Reader) -> None:
    for body in bodies("dead"):
        await reader.send(reader.shared_topic, body)
    found = await reader.pair.bodies(reader.other, reader.shared_topic)
    expect({body.encode() for body in bodies("dead")} <= found, f"the other broker has {len(found)} messages")


@MASTER_IS_BACK.row("goes back to the master, reads and commits there")
async def goes_back(reader: Reader) -> None:
    """The slave is dead now, so nobody else can answer."""
    await _send_to_pair(reader.pair, reader.topic, bodies("back"))
    await reader.client.inbox(reader.running).wait_bodies(bodies("back"), REFRESH_S)
    await reader.until_committed(reader.running, reader.pair.master)


async def _send_to_pair(pair: Pair, topic: str, texts: Iterable[str]) -> None:
    async with producer_of(pair, "readers_producer") as producer:
        for text in texts:
            await producer.send(topic, text.encode())


async def run_readers(pair: Pair, names: Sequence[str], table: Table, work: Path) -> None:
    """Both brokers run at the beginning; in the end the slave does not."""
    other = Member(VENDORS["ariane"], plan_of(pair.nameserver, {}, "interop-other"), work / "other")
    servers = Servers(
        name=pair.title, nameserver=pair.nameserver, plan=pair.master.plan, delivers_at_a_time=False, is_ours=False
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(other.stop)
        await other.start()
        clients = Clients(servers, work, stack, {})
        readers = [Reader(await clients.client(name), pair, other) for name in names]
        await asyncio.gather(*(reader.prepare() for reader in readers))
        topics = [reader.topic for reader in readers]
        await eventually(lambda: pair.slave_knows(topics), "the slave knows the topics", REFRESH_S)
        await _kill_while_consumers_are_behind(pair, readers)
        await _run(MASTER_IS_DEAD, readers, table)
        await pair.master.start()
        await pair.slave.kill()
        await _run(MASTER_IS_BACK, readers, table)


async def _kill_while_consumers_are_behind(pair: Pair, readers: Sequence[Reader]) -> None:
    """What waits in a connection of a paused client when the master dies are the answers to one pull of each queue."""
    with ExitStack() as stack:
        for reader in readers:
            if isinstance(reader.client, ClientProcess):
                stack.enter_context(paused(reader.client.process.pid))
        for reader in readers:
            await _send_to_pair(pair, reader.topic, sorted(bodies("behind")))
        await pair.until_level(*(reader.topic for reader in readers))
        await pair.master.kill()


async def _run(checks: Rows[Reader], readers: Sequence[Reader], table: Table) -> None:
    async def column(reader: Reader) -> dict[str, Cell]:
        return {row: await run_check(check(reader)) for row, check in checks.items()}

    for reader, cells in zip(readers, await asyncio.gather(*map(column, readers)), strict=True):
        for row, cell in cells.items():
            table.put(row, f"{reader.client.name}: {reader.pair.title}", cell)
