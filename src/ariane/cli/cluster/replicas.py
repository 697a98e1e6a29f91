"""`ariane cluster replicas`: masters and slaves, who is connected, and how far each slave is behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ariane.cli.common.admin import INCOMPLETE, run_admin
from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import OutputFormat, Row, output_option, printable, render
from ariane.cli.tree import cluster
from ariane.store.offline.annotate import time_text

if TYPE_CHECKING:
    from ariane.client.admin.replicas import Replica, ReplicaSet

COLUMNS = ("brokerName", "brokerId", "role", "address", "state", "end", "behindBytes", "behindS", "connected", "reason")
_OF_SLAVES = ("behindBytes", "behindS")
UNHEALTHY = 1


@cluster.command("replicas", short_help="Show masters and slaves, and how far each slave is behind.")
@click.argument("name", required=False, metavar="[BROKER-NAME]")
@click.option("--cluster", "cluster_name", metavar="NAME", help="Only the brokers of this cluster.")
@connected
@output_option()
def replicas(name: str | None, cluster_name: str | None, connection: Connection, output: OutputFormat) -> int:
    """Show the master and the slaves of each broker name, or of one.

    `end` is where a member's log ends. `behindBytes` is what a slave does not have of its master's log, and `behindS`
    how long ago it had everything; brokers of 4.x do not tell that, nor whether a slave is connected, and then it is
    unknown. A slave that is gone is shown for a day, unless its master was restarted.

    Exits with 1 if a slave is not connected, a broker name has no master, or a SYNC_MASTER has no slave in reach; else
    with 3 if a member does not respond. The reasons are on stderr.

    \b
    Examples:
      ariane cluster replicas
      ariane cluster replicas broker-a -o json
    """
    sets = run_admin(connection, lambda admin: admin.cluster.replicas(name, cluster=cluster_name))
    rows = [_row(member) for each in sets for member in each.members]
    render(map(_shown, rows) if output is OutputFormat.TABLE else rows, output, COLUMNS)
    return _report(sets)


def _row(member: Replica) -> Row:
    return {
        "cluster": member.cluster,
        "brokerName": member.name,
        "brokerId": member.broker_id,
        "role": member.role,
        "address": member.address,
        "registered": member.is_registered,
        "state": member.state,
        "reason": member.failure or member.reason,
        "begin": member.begin,
        "end": member.end,
        "dispatched": member.dispatched,
        "behindBytes": member.behind_bytes,
        "behindS": None if member.behind_s is None else round(member.behind_s, 1),
        "connected": _time(member.connected_ms),
        "lost": _time(member.lost_ms),
        "metadataCopied": _time(member.metadata_ms),
        "version": member.version,
        "notAsked": list(member.unknown),
    }


def _shown(row: Row) -> Row:
    """A master is not behind anything: its cells are empty, so what is not known of a slave needs a word."""
    if row["brokerId"] == 0:
        return row
    return {**row, **{name: "unknown" for name in _OF_SLAVES if row[name] is None}}


def _time(ms: int | None) -> str | None:
    return None if ms is None else time_text(ms)


def _report(sets: tuple[ReplicaSet, ...]) -> int:
    troubles = [trouble for each in sets for trouble in each.troubles]
    failures = [failure for each in sets for failure in each.failures]
    for trouble in troubles:
        click.echo(printable(f"trouble: {trouble}"), err=True)
    for each in sets:
        for refused in each.refused:
            reason = refused.reason or "it closed the connection"
            click.echo(printable(f"refused by the master of {each.name}: {refused.addr}: {reason}"), err=True)
    for failure in failures:
        click.echo(printable(f"incomplete: no data from {failure}"), err=True)
    if troubles:
        return UNHEALTHY
    return INCOMPLETE if failures else 0
