"""mqadmin's command for replication, which came with 5.x: `haStatus`, in Apache's output format."""

import asyncio

import click

from ariane.cli.common.admin import report_missing
from ariane.cli.common.output import printable
from ariane.cli.mqadmin.commands import TARGET, UNKNOWN, Option, apache, print_table
from ariane.cli.mqadmin.format import day_and_millisecond
from ariane.client.admin import Admin
from ariane.errors import ClientError, RequestFailed
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.replication import HaStatus, MasterConnection, SlaveConnection

_KIB = 1024.0


@apache(
    "haStatus",
    *TARGET,
    Option("i", "interval", "interval", "Repeat every N seconds, until Ctrl-C.", type=click.IntRange(1)),
)
async def ha_status(admin: Admin, broker: str | None, cluster: str | None, interval: int | None) -> int:
    """Show the slaves of a master, or the connection of a slave to its master. With -c only masters."""
    while True:
        statuses = await admin.cluster.ha_status(broker=broker, cluster=cluster)
        for failure in statuses.failures:
            if isinstance(failure.error, RequestFailed):
                _check_is_known(failure.server, failure.error)
        for source, status in statuses.some("reading the state of replication").responses.items():
            _print(source.address, status)
        left_out = report_missing(statuses.failures)
        if interval is None:
            return left_out
        await asyncio.sleep(interval)


def _check_is_known(server: str, error: RequestFailed) -> None:
    if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise ClientError(
            f"{server} does not know this request, which came with 5.x: `ariane cluster replicas` shows what it tells"
        ) from error


def _print(address: str, status: HaStatus) -> None:
    if status.master:
        click.echo(f"\n#MasterAddr\t{address}")
        click.echo(f"#MasterCommitLogMaxOffset\t{status.master_commit_log_max_offset}")
        click.echo(f"#SlaveNum\t{len(status.ha_connection_info)}\n#InSyncSlaveNum\t{status.in_sync_slave_nums}")
        headings = ["SlaveAddr", "SlaveAckOffset", "Diff", "TransferSpeed(KB/s)", "Status", "TransferFromWhere"]
        layout = "%-32s  %-16s %16s %16s %16s %16s"
        print_table(layout, headings, map(_slave, status.ha_connection_info))
    else:
        _print_slave(status.ha_client_runtime_info)


def _slave(slave: SlaveConnection) -> tuple[object, ...]:
    speed = f"{slave.transferred_byte_in_second / _KIB:.2f}"
    word = "OK" if slave.in_sync else "Fall Behind"
    return printable(slave.addr), slave.slave_ack_offset, slave.diff, speed, word, slave.transfer_from_where


def _print_slave(master: MasterConnection) -> None:
    address = UNKNOWN if master.master_addr is None else printable(master.master_addr)
    click.echo(f"\n#MasterAddr\t{address}\n#CommitLogMaxOffset\t{master.max_offset}")
    click.echo(f"#TransferSpeed(KB/s)\t{master.transferred_byte_in_second / _KIB:.2f}")
    click.echo(f"#LastReadTime\t{_time(master.last_read_timestamp)}")
    click.echo(f"#LastWriteTime\t{_time(master.last_write_timestamp)}")
    flushed = UNKNOWN if master.master_flush_offset is None else master.master_flush_offset
    click.echo(f"#MasterFlushOffset\t{flushed}")


def _time(ms: int | None) -> str:
    return UNKNOWN if ms is None else day_and_millisecond(ms)
