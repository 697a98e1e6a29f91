"""`ariane namesrv` and `ariane broker`: run a server in the foreground.

The server's code is imported inside the command, so that --help stays fast.
"""

import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ariane.cli.common.parameters import listen_address
from ariane.cli.servers.garbage_collector import collector_disabled
from ariane.logs import LogForm, configure
from ariane.model.address import Address

if TYPE_CHECKING:
    from ariane.settings import LoadedSettings

log = logging.getLogger(__name__)

LISTEN_HELP = "Address to listen on; :PORT keeps the default host, port 0 takes a free one."


INSECURE_HELP = "Listen beyond this machine although there is no access control."

insecure_option = click.option("--insecure", is_flag=True, default=None, help=INSECURE_HELP)


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--log-level` and `--log-format` of the servers."""
    level = click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="Lowest level to log.",
    )
    log_format = click.option(
        "--log-format",
        type=click.Choice([log_format.value for log_format in LogForm]),
        default="text",
        show_default=True,
        help="Text for people, or JSON lines for programs.",
    )
    return level(log_format(command))


@click.command()
@click.option(
    "-c", "--config", "file", type=click.Path(path_type=Path), help="Settings file: TOML, or RocketMQ's namesrv.conf."
)
@click.option("--listen", metavar="HOST:PORT", callback=listen_address, help=LISTEN_HELP)
@insecure_option
@log_options
@click.option("-p", "--print-config", is_flag=True, help="Print the settings as TOML and exit.")
@collector_disabled()
def namesrv(
    file: Path | None,
    listen: Address | None,
    insecure: bool | None,
    log_level: str,
    log_format: str,
    print_config: bool,
) -> None:
    """Run a nameserver in the foreground until Ctrl-C or SIGTERM.

    Brokers register with it, and clients look up there which brokers have a topic. It prints one line on stdout when it
    is ready; its log goes to stderr. A settings file of Apache RocketMQ works unchanged.

    \b
    Examples:
      ariane namesrv
      ariane namesrv --listen 10.0.0.1:9876 --insecure --log-format json
      ariane namesrv -c namesrv.conf --print-config > ariane.toml
    """
    from ariane.nameserver.settings import UNSUPPORTED, NameserverSettings
    from ariane.settings import load

    loaded = load(
        NameserverSettings,
        section="nameserver",
        file=file,
        environ=os.environ,
        flags=_listen_flags(listen) | {"insecure": insecure},
        unsupported=UNSUPPORTED,
    )
    _begin_log(log_level, log_format, loaded)
    if print_config:
        from ariane.cli.config.load import to_toml

        click.echo(to_toml(loaded.settings, "nameserver"), nl=False)
        return

    from ariane.cli.servers.run import run_server
    from ariane.nameserver.server import serve

    run_server("namesrv", partial(serve, loaded.settings))


@click.command()
@click.option(
    "-c", "--config", "file", type=click.Path(path_type=Path), help="Settings file: TOML, or RocketMQ's broker.conf."
)
@click.option(
    "-n",
    "--namesrv",
    metavar="HOST:PORT[;HOST:PORT]",
    help="Nameservers to register with. Default: the settings file, then $NAMESRV_ADDR, as in Apache.",
)
@click.option("--listen", metavar="HOST:PORT", callback=listen_address, help=LISTEN_HELP)
@insecure_option
@click.option("--advertise", metavar="HOST[:PORT]", help="Address for clients, if it differs from the listen address.")
@click.option("--store", type=click.Path(path_type=Path), metavar="DIR", help="Directory for the messages.")
@log_options
@click.option("-p", "--print-config", is_flag=True, help="Print the settings as TOML and exit.")
@click.option(
    "-m", "--print-important", is_flag=True, help="Print the settings that differ from the defaults and exit."
)
@collector_disabled()
def broker(
    file: Path | None,
    namesrv: str | None,
    listen: Address | None,
    insecure: bool | None,
    advertise: str | None,
    store: Path | None,
    log_level: str,
    log_format: str,
    print_config: bool,
    print_important: bool,
) -> None:
    """Run a broker in the foreground until Ctrl-C or SIGTERM.

    It stores messages under --store, listens on its port and on the VIP port (port-2), and registers with all
    nameservers. It prints one line on stdout when it is ready; its log goes to stderr. A settings file of Apache
    RocketMQ works unchanged: keys that Ariane does not use are logged.

    \b
    Examples:
      ariane broker -n 127.0.0.1:9876
      ariane broker -c broker.conf --listen 0.0.0.0:10911 --advertise 10.0.0.5 --insecure
      ariane broker -c broker.conf --print-config > ariane.toml
    """
    from ariane.cli.config.load import load_broker_settings

    flags = _listen_flags(listen) | _advertise_flags(advertise)
    flags |= {"insecure": insecure, "namesrv_addr": namesrv, "store.root": store}
    loaded = load_broker_settings(file, os.environ, flags)
    _begin_log(log_level, log_format, loaded)
    if print_config or print_important:
        from ariane.cli.config.load import to_toml

        names = {name for name, origin in loaded.origins.items() if origin != "default"}
        click.echo(to_toml(loaded.settings, "broker", names if print_important else None), nl=False)
        return

    from ariane.broker.server import serve
    from ariane.cli.servers.run import run_server

    run_server("broker", partial(serve, loaded.settings))


def _begin_log(level: str, log_format: str, loaded: "LoadedSettings[Any]") -> None:
    configure(level, LogForm(log_format), sys.stderr)
    for warning in loaded.warnings:
        log.warning("setting ignored", extra={"setting": warning})
    if loaded.file_warning is not None:
        log.warning("settings file is not private", extra={"reason": loaded.file_warning})


def _listen_flags(listen: Address | None) -> dict[str, object]:
    return {"host": listen.host or None, "port": listen.port} if listen else {}


def _advertise_flags(text: str | None) -> dict[str, object]:
    """`HOST`, `HOST:PORT` or `[::1]:PORT`; an IPv6 address without brackets has no port."""
    if text is None:
        return {}
    if text.count(":") != 1 and not text.startswith("["):
        return {"advertised_host": text}
    try:
        address = Address.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--advertise'") from error
    return {"advertised_host": address.host, "advertised_port": address.port}
