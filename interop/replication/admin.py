"""Checks of mqadmin's commands that show both ends of a pair."""

from dataclasses import dataclass

from interop.broker.check_context import until_printed
from interop.broker.client import NotOffered
from interop.broker.foreign_clients import AdminShell
from interop.broker.rows import Rows
from interop.replication.pair import CLUSTER, NAME, Pair


@dataclass(frozen=True, slots=True)
class PairAdmin:
    """While master and slave run, and have the same log."""

    pair: Pair
    admin: AdminShell
    admin5: AdminShell
    """mqadmin of 5.x, for the commands that 4.x does not have."""


ADMIN_CHECKS: Rows[PairAdmin] = Rows()


@ADMIN_CHECKS.row("clusterList")
async def cluster_list(context: PairAdmin) -> None:
    members = context.pair.master, context.pair.slave
    expected = [f"{CLUSTER} {NAME} {number} {member.plan.address} " for number, member in enumerate(members)]
    await until_printed(context.admin.run, expected, "clusterList")


@ADMIN_CHECKS.row("brokerStatus of both")
async def broker_status(context: PairAdmin) -> None:
    end = await context.pair.log_end(context.pair.master)
    expected = [f"commitLogMaxOffset : {end} ", "bootTimestamp : ", "putTps : ", "dispatchBehindBytes : 0 "]
    for member in (context.pair.master, context.pair.slave):
        await until_printed(context.admin.run, expected, "brokerStatus", "-b", member.plan.address)


@ADMIN_CHECKS.row("topicRoute")
async def topic_route(context: PairAdmin) -> None:
    members = context.pair.master, context.pair.slave
    expected = [f'{number}:"{member.plan.address}"' for number, member in enumerate(members)]
    await until_printed(context.admin.run, expected, "topicRoute", "-t", NAME)


@ADMIN_CHECKS.row("haStatus (of 5.x)")
async def ha_status(context: PairAdmin) -> None:
    """The master's end and its slave's, then what the slave itself says."""
    version = context.pair.master.vendor.version
    if version is not None and version.startswith("4"):
        raise NotOffered("brokers of 4.x do not have this request")
    master, slave = context.pair.master.plan.address, context.pair.slave.plan.address
    if version is None and "CODE: 3 " in await context.admin5.run("haStatus", "-b", master):
        raise NotOffered("this broker does not have the request GET_BROKER_HA_STATUS")
    end = await context.pair.log_end(context.pair.master)
    at_master = [f"#MasterAddr {master} #MasterCommitLogMaxOffset {end} #SlaveNum 1 #InSyncSlaveNum 1 ", f" {end} 0 "]
    await until_printed(context.admin5.run, at_master, "haStatus", "-b", master)
    at_slave = ["#MasterAddr ", f"#CommitLogMaxOffset {end} "]
    await until_printed(context.admin5.run, at_slave, "haStatus", "-b", slave)
