"""`ariane cluster`: the brokers, and how each is doing."""

import click

from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import OutputFormat, output_option, render

COLUMNS = ("cluster", "brokerName", "brokerId", "address", "state", "version", "putTps", "getTps", "diskUsed", "booted")


@click.command(short_help="Brokers, and how each of them is doing.")
@click.option("--cluster", "name", metavar="NAME", help="Only the brokers of this cluster.")
@connected
@output_option()
def cluster(name: str | None, connection: Connection, output: OutputFormat) -> int:
    """Show every broker that the nameserver knows, and how it is doing.

    A broker that does not answer is shown as `silent`; the exit code is then 3. What a broker does not tell is left
    empty (in JSON: null), and is not 0.

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
