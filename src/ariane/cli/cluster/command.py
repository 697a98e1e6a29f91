"""`ariane cluster`: the brokers and their state."""

import click

from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import OutputFormat, output_option, render

COLUMNS = (
    *("cluster", "brokerName", "brokerId", "role", "address", "state", "behindBytes"),
    *("version", "putTps", "getTps", "diskUsed", "booted"),
)


@click.command(short_help="Show the brokers and their state.")
@click.option("--cluster", "name", metavar="NAME", help="Only the brokers of this cluster.")
@connected
@output_option()
def cluster(name: str | None, connection: Connection, output: OutputFormat) -> int:
    """Show all brokers that are registered with the nameserver, and their state.

    A broker that does not respond is shown as `silent`, and the exit status is 3. `behindBytes` is how much shorter the
    log of a slave is than its master's. Values that a broker does not report are left empty (in JSON: null).

    \b
    Examples:
      ariane cluster
      ariane cluster -n 10.0.0.1:9876 -o json
    """
    from ariane.cli.cluster.rows import brokers_and_runtime, cluster_rows
    from ariane.cli.common.admin import report_missing

    brokers, runtime = brokers_and_runtime(connection, name)
    render(cluster_rows(brokers, runtime), output, COLUMNS)
    return report_missing(runtime.failures)
