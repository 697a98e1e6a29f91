"""The suite: which clients run against which servers, and the resulting tables."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from interop.apache import SERVER_VERSION, VERSION_5
from interop.broker.admin_column import run_admin_column
from interop.broker.columns import run_columns
from interop.broker.foreign_clients import admin_shell
from interop.broker.servers import Servers, apache_servers, our_secured_servers, our_servers, secured_apache_servers
from interop.broker.table import Table

MQADMIN = "mqadmin"
SERVERS: dict[str, Callable[[Path], AbstractContextManager[Servers]]] = {
    "ariane": our_servers,
    "ariane-secured": our_secured_servers,
    "apache4": partial(apache_servers, version=SERVER_VERSION),
    "apache5": partial(apache_servers, version=VERSION_5),
    "apache4-secured": partial(secured_apache_servers, version=SERVER_VERSION),
}
PAIRS: dict[str, list[str]] = {
    "ariane": [MQADMIN, "java47", "java4", "java5", "go", "ariane", "java4>ariane", "ariane>java4"],
    # Apache's own client against Apache's own broker proves that a check is right.
    "apache4": [MQADMIN, "ariane", "java4", "ariane>java4"],
    "apache5": ["ariane", "java5"],
    "ariane-secured": ["java4", "java5", "ariane"],
    "apache4-secured": ["ariane", "java4"],
}


def run_suite(pairs: Mapping[str, Sequence[str]], kinds: Sequence[str], work: Path) -> list[Table]:
    """A table for each server, and one for mqadmin."""
    logging.basicConfig(filename=work / "ariane-client.log", level=logging.INFO)
    admin_table = Table("mqadmin against brokers", "mqadmin")
    tables = []
    for server, clients in pairs.items():
        with SERVERS[server](work / server) as servers:
            print(f"against {servers.name}:", flush=True)
            table = Table(f"Clients against the broker of {servers.name}", "")
            asyncio.run(_run(servers, clients, kinds, table, admin_table, work / server))
            tables.append(table)
    return [*tables, admin_table]


async def _run(
    servers: Servers, clients: Sequence[str], kinds: Sequence[str], table: Table, admin_table: Table, work: Path
) -> None:
    async with admin_shell(servers.nameserver, work, servers.security) as admin:
        if MQADMIN in clients:
            await run_admin_column(servers, admin, admin_table, work)
        await run_columns(servers, [name for name in clients if name != MQADMIN], kinds, admin, table, work)
