"""`ariane top`: the cluster live, on one screen."""

import contextlib
import sys

import click

from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import Form, output_option


@click.command(short_help="Watch brokers, topics and groups live.")
@click.option(
    "--interval", type=click.FloatRange(0.2), default=2.0, show_default=True, help="Seconds between readings."
)
@click.option("--most", type=click.IntRange(1), default=200, show_default=True, help="Topics and groups to read.")
@click.option("--once", is_flag=True, help="Print one reading and end; so it does when the output is not a terminal.")
@connected
@output_option()
def top(interval: float, most: int, once: bool, connection: Connection, form: Form) -> int:
    """Watch brokers, topics and groups: what comes in, what goes out, who is behind.

    Rates are counted between two readings. `?` stands where nothing is known (in JSON: null). `q` or Ctrl-C ends it.

    \b
    Examples:
      ariane top
      ariane top --interval 5 -n 10.0.0.1:9876
      ariane top --once -o json
    """
    from ariane.cli.common.admin import INCOMPLETE, run_admin
    from ariane.cli.top.run import print_reading, two_readings, watch

    if once or form is not Form.TABLE or not sys.stdout.isatty():
        now, before = run_admin(connection, lambda admin: two_readings(admin, interval, most))
        print_reading(now, before, form)
        for cut in now.cuts:
            click.echo(cut, err=True)
        for server in now.missing:
            click.echo(f"incomplete: the part of {server} is missing", err=True)
        return INCOMPLETE if now.missing else 0
    with contextlib.suppress(KeyboardInterrupt):
        run_admin(connection, lambda admin: watch(admin, connection.namesrv, interval, most))
    return 0
