"""Runs all mqadmin checks against one broker: one column of the table."""

from pathlib import Path

from interop.broker.admin_brokers import BROKER_COMMANDS
from interop.broker.admin_context import admin_context
from interop.broker.admin_groups import GROUP_COMMANDS
from interop.broker.admin_messages import MESSAGE_COMMANDS
from interop.broker.foreign_clients import AdminShell
from interop.broker.run_check import run_check
from interop.broker.servers import Servers
from interop.broker.table import Table


async def run_admin_column(servers: Servers, admin: AdminShell, table: Table, work: Path) -> None:
    async with admin_context(servers, admin, work) as context:
        for row, command in (BROKER_COMMANDS | GROUP_COMMANDS | MESSAGE_COMMANDS).items():
            table.put(row, servers.name, await run_check(command(context)))
