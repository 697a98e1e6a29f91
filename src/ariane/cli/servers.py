"""Commands that run a server in the foreground. Servers are imported by their command, so that --help stays fast."""

import logging
import os
import sys
from functools import partial
from pathlib import Path

import click

from ariane.cli.parameters import listen_address
from ariane.logs import LogForm, configure
from ariane.model.address import Address

log = logging.getLogger(__name__)


@click.command()
@click.option(
    "-c", "--config", "file", type=click.Path(path_type=Path), help="Settings file: TOML, or RocketMQ's namesrv.conf."
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    callback=listen_address,
    help="Address to listen on; :PORT keeps the host, port 0 takes a free one.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Least urgent lines to log.",
)
@click.option(
    "--log-format",
    type=click.Choice([form.value for form in LogForm]),
    default="text",
    show_default=True,
    help="For people, or JSON lines for machines.",
)
@click.option("-p", "--print-config", is_flag=True, help="Print the settings as TOML and leave.")
def namesrv(file: Path | None, listen: Address | None, log_level: str, log_format: str, print_config: bool) -> None:
    """Run a nameserver in the foreground until Ctrl-C or SIGTERM.

    Brokers register with it and clients ask it where topics are. It prints one line on stdout when it is ready; its
    log goes to stderr. A settings file of Apache RocketMQ works as it is.

    \b
    Examples:
      ariane namesrv
      ariane namesrv --listen 0.0.0.0:9876 --log-format json
      ariane namesrv -c namesrv.conf --print-config > ariane.toml
    """
    from ariane.cli.print_settings import to_toml
    from ariane.nameserver.settings import UNSUPPORTED, NameserverSettings
    from ariane.settings import load

    flags = {"host": listen.host or None, "port": listen.port} if listen else {}
    loaded = load(
        NameserverSettings,
        section="nameserver",
        file=file,
        environ=os.environ,
        flags=flags,
        unsupported=UNSUPPORTED,
    )
    configure(log_level, LogForm(log_format), sys.stderr)
    for warning in loaded.warnings:
        log.warning("setting ignored", extra={"setting": warning})
    if print_config:
        click.echo(to_toml(loaded.settings, "nameserver"), nl=False)
        return

    from ariane.cli.serving import run_server
    from ariane.nameserver.app import serve

    run_server("namesrv", partial(serve, loaded.settings))
