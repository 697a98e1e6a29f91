"""Runs every command of mqadmin against one broker."""

from pathlib import Path

from interop.broker.admin_brokers import BROKER_COMMANDS
from interop.broker.admin_groups import GROUP_COMMANDS
from interop.broker.admin_messages import MESSAGE_COMMANDS
from interop.broker.admin_scene import scene
from interop.broker.guests import AdminShell
from interop.broker.judge import judge
from interop.broker.servers import Servers
from interop.broker.table import Table


async def run_admin_column(servers: Servers, admin: AdminShell, table: Table, work: Path) -> None:
    async with scene(servers, admin, work) as stage:
        for row, command in (BROKER_COMMANDS | GROUP_COMMANDS | MESSAGE_COMMANDS).items():
            table.put(row, servers.name, await judge(command(stage)))
