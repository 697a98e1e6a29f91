"""`ariane top`: a live view of the cluster."""

import contextlib
import sys

import click

from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import OutputFormat, output_option


@click.command(short_help="Watch brokers, topics and groups live.")
@click.option("--interval", type=click.FloatRange(0.2), default=2.0, show_default=True, help="Seconds between updates.")
@click.option(
    "--most", type=click.IntRange(1), default=200, show_default=True, help="Read at most this many topics and groups."
)
@click.option("--once", is_flag=True, help="Print the figures once and exit; default if the output is not a terminal.")
@connected
@output_option()
def top(interval: float, most: int, once: bool, connection: Connection, output: OutputFormat) -> int:
    """Watch brokers, topics and groups: messages in and out per second, and lag.

    Rates are measured between two updates. `?` means unknown (in JSON: null). Quit with `q` or Ctrl-C.

    \b
    Examples:
      ariane top
      ariane top --interval 5 -n 10.0.0.1:9876
      ariane top --once -o json
    """
    from ariane.cli.common.admin import INCOMPLETE, run_admin
    from ariane.cli.top.run import print_reading, two_readings, watch

    if once or output is not OutputFormat.TABLE or not sys.stdout.isatty():
        now, before = run_admin(connection, lambda admin: two_readings(admin, interval, most))
        print_reading(now, before, output)
        for note in now.truncations:
            click.echo(note, err=True)
        for server in now.missing:
            click.echo(f"incomplete: no data from {server}", err=True)
        return INCOMPLETE if now.missing else 0
    with contextlib.suppress(KeyboardInterrupt):
        run_admin(connection, lambda admin: watch(admin, connection.namesrv, interval, most))
    return 0
