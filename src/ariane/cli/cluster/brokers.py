"""`ariane broker list|show|config|clean`: running brokers. `ariane broker` alone runs one: servers/command.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ariane.cli.cluster.rows import broker_row, pair_rows
from ariane.cli.common.admin import broker_options, broker_rows, confirm, report_missing, run_admin, yes_option
from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import OutputFormat, output_option, render
from ariane.cli.common.parameters import name_value_pairs
from ariane.cli.tree import broker
from ariane.errors import ClientError

if TYPE_CHECKING:
    from ariane.client.admin import Admin
    from ariane.client.admin.requests import Broker


@broker.command("list")
@click.option("--cluster", metavar="NAME", help="Only the brokers of this cluster.")
@connected
@output_option()
def list_brokers(cluster: str | None, connection: Connection, output: OutputFormat) -> None:
    """List the brokers that are registered with the nameserver. `ariane cluster` also shows their state.

    \b
    Examples:
      ariane broker list
      ariane broker list --cluster DefaultCluster -o json
    """
    brokers = run_admin(connection, lambda admin: admin.cluster.brokers(cluster=cluster))
    render(map(broker_row, brokers), output)


@broker.command("show")
@click.argument("name", metavar="BROKER")
@connected
@output_option()
def show_broker(name: str, connection: Connection, output: OutputFormat) -> int:
    """Show the runtime information of a broker, under Apache's names. BROKER is a name or HOST:PORT.

    \b
    Examples:
      ariane broker show broker-a
      ariane broker show 127.0.0.1:10911 -o json
    """
    runtimes = run_admin(connection, lambda admin: admin.cluster.runtime(broker=name))
    for failure in runtimes.failures:
        raise failure.error
    render(pair_rows({broker: runtime.table for broker, runtime in runtimes.responses.items()}), output)
    return 0


@broker.group("config")
def config() -> None:
    """Show and change the settings of running brokers.

    \b
    Examples:
      ariane broker config get fileReservedTime
      ariane broker config set fileReservedTime=48 --broker broker-a
    """


@config.command("get", short_help="Show the effective settings, under RocketMQ's names.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@broker_options
@connected
@output_option()
def get_config(
    names: tuple[str, ...], cluster: str | None, broker: str | None, connection: Connection, output: OutputFormat
) -> int:
    """Show the effective settings, under RocketMQ's names: those given, or all.

    \b
    Examples:
      ariane broker config get
      ariane broker config get fileReservedTime flushDiskType -o json
    """
    settings = run_admin(connection, lambda admin: admin.brokers.config(cluster=cluster, broker=broker))
    existing = {name for table in settings.responses.values() for name in table}
    unknown = [name for name in names if name not in existing]
    if unknown:
        raise ClientError(f"no broker has a setting {unknown[0]}: `ariane broker config get` lists all settings")
    render(pair_rows(settings.responses, names), output)
    return report_missing(settings.failures)


@config.command("set", short_help="Change settings of running brokers until their next start.")
@click.argument("settings", nargs=-1, required=True, metavar="NAME=VALUE...", callback=name_value_pairs)
@broker_options
@connected
@output_option()
def set_config(
    settings: dict[str, str], cluster: str | None, broker: str | None, connection: Connection, output: OutputFormat
) -> None:
    """Change settings of running brokers, until their next start. docs/settings.md says which can be changed.

    \b
    Examples:
      ariane broker config set fileReservedTime=48
      ariane broker config set traceOn=false --broker broker-a
    """
    done = run_admin(connection, lambda admin: admin.brokers.set_config(settings, cluster=cluster, broker=broker))
    render(broker_rows(done), output)


@broker.command("clean", short_help="Delete expired queues, unused topics and expired files now.")
@click.option("--expired-queues", is_flag=True, help="Consume queues whose messages have all expired.")
@click.option("--unused-topics", is_flag=True, help="Consume queues of deleted topics.")
@click.option(
    "--expired-files", is_flag=True, help="Expired commit log files, without waiting for the hour of cleaning."
)
@broker_options
@yes_option
@connected
@output_option()
def clean(
    expired_queues: bool,
    unused_topics: bool,
    expired_files: bool,
    cluster: str | None,
    broker: str | None,
    yes: bool,
    connection: Connection,
    output: OutputFormat,
) -> None:
    """Delete now what brokers would delete later: what the options select, or all three kinds.

    \b
    Examples:
      ariane broker clean --yes
      ariane broker clean --unused-topics --broker broker-a
    """
    everything = not (expired_queues or unused_topics or expired_files)

    async def work(admin: Admin) -> list[tuple[str, list[Broker]]]:
        steps = [
            ("expired queues", expired_queues, admin.brokers.clean_expired_queues),
            ("unused topics", unused_topics, admin.brokers.clean_unused_topics),
            ("expired files", expired_files, admin.brokers.delete_expired_files),
        ]
        selection = [(name, step) for name, is_selected, step in steps if is_selected or everything]
        return [(name, await step(cluster=cluster, broker=broker)) for name, step in selection]

    confirm("Delete expired queues and files?", yes=yes)
    done = run_admin(connection, work)
    render([{"removed": name, **row} for name, brokers in done for row in broker_rows(brokers)], output)
