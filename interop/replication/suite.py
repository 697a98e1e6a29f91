"""The suite of replication: which pairs of brokers run which checks, and the resulting tables."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from interop.apache import VERSION_5
from interop.broker.foreign_clients import admin_shell
from interop.broker.run_check import run_check
from interop.broker.table import Table, Verdict
from interop.replication.admin import ADMIN_CHECKS, PairAdmin
from interop.replication.members import VENDORS, Vendor
from interop.replication.pair import Pair, open_pair, title
from interop.replication.readers import run_readers
from interop.replication.statuses import STATUS_CHECKS
from interop.replication.statuses import TOPIC as STATUS_TOPIC
from interop.replication.traffic import TABLE_CHECKS, TRAFFIC_CHECKS

CONCURRENT_PAIRS = 3
"""Most of the time goes in waiting: reports of Apache's slaves come after 5 s, tables every 10 s."""
TRAFFIC, ADMIN = "traffic", "mqadmin"

PAIRS: dict[str, list[str]] = {
    "ariane:ariane": [ADMIN, "java4", "java5", "go", "cpp", "ariane"],
    "ariane:apache4": [TRAFFIC],
    "apache4:ariane": [TRAFFIC, "java4"],
    "ariane:apache5": [TRAFFIC],
    "apache5:ariane": [TRAFFIC, "java5"],
    # Apache's own slave of Apache's own master shows that the checks are right.
    "apache4:apache4": [TRAFFIC, ADMIN, "java4", "go", "cpp"],
    "apache5:apache5": [ADMIN],
}
"""By master and slave: checks of the two brokers, of mqadmin, and the clients that read from the slave."""


@dataclass(frozen=True, slots=True)
class Tables:
    pairs: Table = field(default_factory=lambda: Table("Masters and slaves", ""))
    readers: Table = field(default_factory=lambda: Table("Clients whose master is dead", ""))
    admin: Table = field(default_factory=lambda: Table("mqadmin against a master and its slave", "mqadmin"))

    @property
    def all(self) -> list[Table]:
        return [self.pairs, self.readers, self.admin]


def run_replication(pairs: Mapping[str, Sequence[str]], work: Path) -> list[Table]:
    logging.basicConfig(filename=work / "ariane-client.log", level=logging.INFO)
    return asyncio.run(_run_all(pairs, work))


async def _run_all(pairs: Mapping[str, Sequence[str]], work: Path) -> list[Table]:
    slots = asyncio.Semaphore(CONCURRENT_PAIRS)

    async def run(name: str, parts: Collection[str]) -> Tables:
        async with slots:
            master, _, slave = name.partition(":")
            home = work / f"replication-{master}-{slave}"
            home.mkdir()
            tables = Tables()
            ran = await run_check(_run_pair(VENDORS[master], VENDORS[slave], parts, home, tables))
            if ran.verdict is Verdict.FAILED:  # the others still run
                tables.pairs.put("servers run", title(VENDORS[master], VENDORS[slave]), ran)
            return tables

    results = await asyncio.gather(*(run(name, parts) for name, parts in pairs.items()))
    # In the order of the pairs, not in that of their ends.
    return [Table.joined(tables) for tables in zip(*(result.all for result in results), strict=True)]


async def _run_pair(master: Vendor, slave: Vendor, parts: Collection[str], work: Path, tables: Tables) -> None:
    async with open_pair(master, slave, work) as pair:
        print(f"master {pair.title}:", flush=True)
        await _run_parts(pair, parts, work, tables)


async def _run_parts(pair: Pair, parts: Collection[str], work: Path, tables: Tables) -> None:
    if TRAFFIC in parts:
        for row, check in (STATUS_CHECKS | TRAFFIC_CHECKS).items():
            tables.pairs.put(row, pair.title, await run_check(check(pair)))
        cells = await asyncio.gather(*(run_check(check(pair)) for check in TABLE_CHECKS.values()))
        for row, cell in zip(TABLE_CHECKS, cells, strict=True):
            tables.pairs.put(row, pair.title, cell)
    else:
        await pair.master.start(brokerRole="SYNC_MASTER")
        await pair.slave.start()
        await pair.create_topic(STATUS_TOPIC)
    if ADMIN in parts:
        async with AsyncExitStack() as stack:
            await pair.until_level()
            admin = await stack.enter_async_context(admin_shell(pair.nameserver, work))
            admin5 = await stack.enter_async_context(admin_shell(pair.nameserver, work, version=VERSION_5))
            context = PairAdmin(pair, admin, admin5)
            for row, command in ADMIN_CHECKS.items():
                tables.admin.put(row, pair.master.vendor.name, await run_check(command(context)))
    readers = [part for part in parts if part not in {TRAFFIC, ADMIN}]
    if readers:
        prepared = await run_check(run_readers(pair, readers, tables.readers, work))
        if prepared.verdict is Verdict.FAILED:
            tables.readers.put("servers and clients run", pair.title, prepared)
