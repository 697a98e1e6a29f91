"""`ariane broker list|show|config|clean`: brokers that run. `ariane broker` alone runs one; see servers.py."""

import click

from ariane.cli.cluster.rows import broker_row, pair_rows
from ariane.cli.common.admin import broker_options, broker_rows, confirm, report_missing, run_admin, yes_option
from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import OutputFormat, output_option, render
from ariane.cli.common.parameters import name_value_pairs
from ariane.cli.tree import broker
from ariane.client.admin import Admin
from ariane.client.admin.requests import Broker
from ariane.errors import ClientError


@broker.command("list")
@click.option("--cluster", metavar="NAME", help="Only the brokers of this cluster.")
@connected
@output_option()
def list_brokers(cluster: str | None, connection: Connection, output: OutputFormat) -> None:
    """List the brokers that the nameserver knows. See `ariane cluster` for how they are doing.

    \b
    Examples:
      ariane broker list
      ariane broker list --cluster DefaultCluster -o json
    """
    found = run_admin(connection, lambda admin: admin.cluster.brokers(cluster=cluster))
    render(map(broker_row, found), output)


@broker.command("show")
@click.argument("name", metavar="BROKER")
@connected
@output_option()
def show_broker(name: str, connection: Connection, output: OutputFormat) -> int:
    """Show everything that a broker tells of itself, under Apache's names. BROKER is a name or HOST:PORT.

    \b
    Examples:
      ariane broker show broker-a
      ariane broker show 127.0.0.1:10911 -o json
    """
    told = run_admin(connection, lambda admin: admin.cluster.runtime(broker=name))
    for failure in told.failures:
        raise failure.error
    render(pair_rows({one: runtime.table for one, runtime in told.responses.items()}), output)
    return 0


@broker.group("config")
def config() -> None:
    """The settings of brokers that run.

    \b
    Examples:
      ariane broker config get fileReservedTime
      ariane broker config set fileReservedTime=48 --broker broker-a
    """


@config.command("get", short_help="Show the settings in force, under RocketMQ's names.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@broker_options
@connected
@output_option()
def get_config(
    names: tuple[str, ...], cluster: str | None, broker: str | None, connection: Connection, output: OutputFormat
) -> int:
    """Show the settings in force, under RocketMQ's names: those named, or all.

    \b
    Examples:
      ariane broker config get
      ariane broker config get fileReservedTime flushDiskType -o json
    """
    told = run_admin(connection, lambda admin: admin.brokers.config(cluster=cluster, broker=broker))
    known = {name for table in told.responses.values() for name in table}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ClientError(f"no broker has a setting {unknown[0]}: see `ariane broker config get` for all")
    render(pair_rows(told.responses, names), output)
    return report_missing(told.failures)


@config.command("set")
@click.argument("settings", nargs=-1, required=True, metavar="NAME=VALUE...", callback=name_value_pairs)
@broker_options
@connected
@output_option()
def set_config(
    settings: dict[str, str], cluster: str | None, broker: str | None, connection: Connection, output: OutputFormat
) -> None:
    """Change settings of brokers that run, until their next start. The setting's page says which can be changed so.

    \b
    Examples:
      ariane broker config set fileReservedTime=48
      ariane broker config set traceOn=false --broker broker-a
    """
    done = run_admin(connection, lambda admin: admin.brokers.set_config(settings, cluster=cluster, broker=broker))
    render(broker_rows(done), output)


@broker.command("clean", short_help="Remove now what brokers would remove later.")
@click.option("--expired-queues", is_flag=True, help="Queues whose messages have all gone from the log.")
@click.option("--unused-topics", is_flag=True, help="Queues of topics that are no more.")
@click.option("--expired-files", is_flag=True, help="Commit log files past their time, without waiting for the hour.")
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
    """Remove now what brokers would remove later: the kinds named, or all three.

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
        wanted = [(name, step) for name, is_wanted, step in steps if is_wanted or everything]
        return [(name, await step(cluster=cluster, broker=broker)) for name, step in wanted]

    confirm("Remove queues and files that are past their time?", yes=yes)
    done = run_admin(connection, work)
    render([{"removed": name, **row} for name, brokers in done for row in broker_rows(brokers)], output)
