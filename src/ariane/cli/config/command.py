"""`ariane config`: shows the effective settings and their origin, and changes those of running brokers."""

import os
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import OutputFormat, Row, output_option, render
from ariane.cli.common.parameters import name_value_pairs
from ariane.errors import ClientError
from ariane.settings import LoadedSettings, describe, to_text, value_of

if TYPE_CHECKING:
    from ariane.client.admin import Admin
    from ariane.client.admin.requests import PerBroker

    Tables = PerBroker[dict[str, str]]


@click.command("set", short_help="Change settings of running brokers.")
@click.argument("settings", nargs=-1, required=True, metavar="NAME=VALUE...", callback=name_value_pairs)
@click.option("--cluster", metavar="NAME", help="Only the brokers of this cluster.")
@click.option("--broker", metavar="NAME|HOST:PORT", help="Only this broker.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@connected
@output_option()
def set_settings(
    settings: dict[str, str],
    cluster: str | None,
    broker: str | None,
    yes: bool,
    connection: Connection,
    output: OutputFormat,
) -> int:
    """Change settings of running brokers until their next start: all given settings, or none if one is invalid.

    Names are RocketMQ's, as shown by `ariane broker config get`; docs/settings.md says which settings can be changed at
    run time. Shows the changes first, then asks. For a permanent change, edit the broker's settings file as well.

    \b
    Examples:
      ariane config set fileReservedTime=48
      ariane config set diskMaxUsedSpaceRatio=80 --broker broker-a --yes
    """
    from ariane.cli.common.admin import confirm, report_missing, run_admin

    before = run_admin(connection, lambda admin: admin.brokers.config(cluster=cluster, broker=broker))
    changes = _changes(before, settings)
    if not changes:
        click.echo("nothing to change: all brokers have these values already", err=True)
        return report_missing(before.failures)
    if not yes:
        render(changes, OutputFormat.TABLE)
    confirm(f"Change {_counted(settings)} on {len({row['brokerName'] for row in changes})} brokers?", yes=yes)

    async def change(admin: "Admin") -> Any:
        await admin.brokers.set_config(settings, cluster=cluster, broker=broker)
        return await admin.brokers.config(cluster=cluster, broker=broker)

    after = {target.name: table for target, table in run_admin(connection, change).responses.items()}
    render([{**row, "value": after.get(str(row["brokerName"]), {}).get(str(row["name"]))} for row in changes], output)
    return report_missing(before.failures)


def _changes(before: "Tables", settings: dict[str, str]) -> list[Row]:
    names = {name for table in before.responses.values() for name in table}
    for name in settings:
        if name not in names:
            similar = get_close_matches(name, names, n=1)
            hint = f"did you mean {similar[0]}?" if similar else "`ariane broker config get` lists all settings"
            raise ClientError(f"no broker has a setting {name}: {hint}")
    return [
        {"brokerName": broker.name, "name": name, "was": table.get(name), "value": value}
        for broker, table in before.responses.items()
        for name, value in settings.items()
        if table.get(name) != value
    ]


def _counted(settings: dict[str, str]) -> str:
    return "1 setting" if len(settings) == 1 else f"{len(settings)} settings"


_COLUMNS = ("setting", "value")


def _broker(file: Path | None) -> LoadedSettings[Any]:
    from ariane.cli.config.load import load_broker_settings

    return load_broker_settings(file, os.environ, {})


def _nameserver(file: Path | None) -> LoadedSettings[Any]:
    from ariane.nameserver.settings import UNSUPPORTED, NameserverSettings
    from ariane.settings import load

    return load(
        NameserverSettings, section="nameserver", file=file, environ=os.environ, flags={}, unsupported=UNSUPPORTED
    )


_LOADERS: dict[str, Callable[[Path | None], LoadedSettings[Any]]] = {"broker": _broker, "nameserver": _nameserver}


@click.group(short_help="Settings: show them, change those of running brokers.")
def config() -> None:
    """Show settings without starting a server, and change those of running brokers.

    \b
    Examples:
      ariane config show -c broker.conf --origin
      ariane config set fileReservedTime=48
    """


config.add_command(set_settings)


@config.command(short_help="Show all settings, their values and origins.")
@click.option(
    "-c", "--config", "file", type=click.Path(path_type=Path), help="Settings file: TOML, broker.conf or namesrv.conf."
)
@click.option(
    "--section",
    type=click.Choice(list(_LOADERS)),
    default="broker",
    show_default=True,
    help="Settings of which server.",
)
@click.option(
    "--origin", is_flag=True, help="Also show where each value comes from: a line of a file, a variable, default."
)
@output_option()
def show(file: Path | None, section: str, origin: bool, output: OutputFormat) -> None:
    """Show all settings and their values, from defaults, the file and the environment.

    An error in the file ends the command, as it would end the server. Secrets are never shown.

    \b
    Examples:
      ariane config show -c broker.conf --origin
      ariane config show --section nameserver -o json
    """
    loaded = _LOADERS[section](file)
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    render(_rows(loaded), output, (*_COLUMNS, "origin") if origin else _COLUMNS)


def _rows(loaded: LoadedSettings[Any]) -> Iterator[Row]:
    for declared in describe(type(loaded.settings)):
        value = value_of(loaded.settings, declared.name)
        yield {
            "setting": declared.name,
            "value": _shown(value, declared.secret),
            "origin": loaded.origins[declared.name],
            "key": declared.keys[0].name if declared.keys else None,
            "reloadable": declared.reloadable,
        }


def _shown(value: object, secret: bool) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    return "(secret)" if secret else to_text(value)
