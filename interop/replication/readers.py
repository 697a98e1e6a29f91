"""Checks of clients whose master dies: consumers read from its slave, commit there, and go back; sends go elsewhere."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from ariane.client.producer.result import SendStatus
from ariane.errors import ArianeError
from ariane.wire.requests.offsets import GetConsumerOffset
from ariane.wire.requests.topics import GetTopicTable
from interop.broker.check_context import eventually, safe_name
from interop.broker.client import Client
from interop.broker.columns import Clients
from interop.broker.rows import Rows
from interop.broker.run_check import run_check
from interop.broker.servers import Servers
from interop.broker.table import Cell, Table
from interop.replication.members import VENDORS, Member
from interop.replication.pair import QUEUES, Pair, plan_of
from interop.replication.statuses import producer_of
from interop.report import CheckFailed, expect

COUNT = 20
REFRESH_S = 120.0
"""Clients ask for routes every thirty seconds, and send heartbeats as often."""


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
    def group(self) -> str:
        return f"readers_{self.name}"

    async def prepare(self) -> None:
        await self.pair.create_topic(self.topic)
        await self.pair.create_topic(self.shared_topic, at=[self.pair.master, self.other])
        # The client has both routes from now on.
        for number in range(COUNT):
            await self.send(self.topic, f"before {number}")
            await self.send(self.shared_topic, f"before {number}")

    async def send(self, topic: str, body: str) -> None:
        """Once more when it fails: a client may need its next look at the route."""

        async def is_sent() -> bool:
            try:
                return (await self.client.call("send", topic=topic, body=body))["status"] in tuple(SendStatus)
            except CheckFailed:
                return False

        await eventually(is_sent, f"{body!r} is stored", REFRESH_S)

    async def offsets(self, member: Member) -> list[int]:
        """What the group has committed there."""
        found = []
        for queue in range(QUEUES):
            request = GetConsumerOffset(consumer_group=self.group, topic=self.topic, queue_id=queue)
            found.append((await self.pair.caller.call(member.plan.address, request)).offset)
        return found

    async def until_committed(self, member: Member) -> None:
        async def is_committed() -> bool:
            try:
                return await self.offsets(member) == await self.pair.max_offsets(member, self.topic)
            except ArianeError:  # nothing committed yet
                return False

        await eventually(is_committed, f"the offsets of the group at {member.plan.address}", REFRESH_S)


MASTER_IS_DEAD: Rows[Reader] = Rows()
MASTER_IS_BACK: Rows[Reader] = Rows()


@MASTER_IS_DEAD.row("reads from the slave")
async def reads(reader: Reader) -> None:
    await reader.client.call("consume", inbox=reader.name, group=reader.group, topic=reader.topic)
    await reader.client.inbox(reader.name).wait_bodies({f"before {number}" for number in range(COUNT)}, REFRESH_S)


@MASTER_IS_DEAD.row("commits offsets at the slave")
async def commits(reader: Reader) -> None:
    await reader.until_committed(reader.pair.slave)


@MASTER_IS_DEAD.row("sends to another broker name")
async def sends(reader: Reader) -> None:
    bodies = [f"dead {number}" for number in range(COUNT)]
    for body in bodies:
        await reader.send(reader.shared_topic, body)
    found = await reader.pair.bodies(reader.other, reader.shared_topic)
    expect({body.encode() for body in bodies} <= found, f"the other broker has {len(found)} messages")


@MASTER_IS_BACK.row("goes back to the master, reads and commits there")
async def goes_back(reader: Reader) -> None:
    """The slave is dead now, so nobody else can answer."""
    bodies = {f"back {number}" for number in range(COUNT)}
    async with producer_of(reader.pair, "readers_producer") as producer:
        for body in bodies:
            await producer.send(reader.topic, body.encode())
    await reader.client.inbox(reader.name).wait_bodies(bodies, REFRESH_S)
    await reader.until_committed(reader.pair.master)


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
        await pair.until_level(*(reader.topic for reader in readers))
        await eventually(lambda: _are_copied(pair, readers), "the slave knows the topics", REFRESH_S)
        await pair.master.kill()
        await _run(MASTER_IS_DEAD, readers, table)
        await pair.master.start()
        await pair.slave.kill()
        await _run(MASTER_IS_BACK, readers, table)


async def _are_copied(pair: Pair, readers: Sequence[Reader]) -> bool:
    table = (await pair.caller.call(pair.slave.plan.address, GetTopicTable())).body.topic_config_table
    return all(reader.topic in table for reader in readers)


async def _run(checks: Rows[Reader], readers: Sequence[Reader], table: Table) -> None:
    async def column(reader: Reader) -> dict[str, Cell]:
        return {row: await run_check(check(reader)) for row, check in checks.items()}

    for reader, cells in zip(readers, await asyncio.gather(*map(column, readers)), strict=True):
        for row, cell in cells.items():
            table.put(row, f"{reader.client.name}: {reader.pair.title}", cell)
