"""`ariane config`: the settings in force, where each of them came from, and changing those of brokers that run."""

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


# --- config_set ---
#
# `ariane config set`: settings of brokers that run, after showing what would change.


@click.command("set", short_help="Change settings of brokers that run.")
@click.argument("settings", nargs=-1, required=True, metavar="NAME=VALUE...", callback=name_value_pairs)
@click.option("--cluster", metavar="NAME", help="Only the brokers of this cluster.")
@click.option("--broker", metavar="NAME|HOST:PORT", help="Only this broker.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
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
    """Change settings of brokers that run, all that are named or none, until their next start.

    Names are RocketMQ's, as `ariane broker config get` shows them; docs/settings.md says which can be changed while a
    broker runs. What would change is shown first. To change them for good, write them into the broker's file as well.

    \b
    Examples:
      ariane config set fileReservedTime=48
      ariane config set diskMaxUsedSpaceRatio=80 --broker broker-a --yes
    """
    from ariane.cli.common.admin import confirm, report_missing, run_admin

    told = run_admin(connection, lambda admin: admin.brokers.config(cluster=cluster, broker=broker))
    changes = _changes(told, settings)
    if not changes:
        click.echo("nothing to change: every broker has these values already", err=True)
        return report_missing(told.failures)
    if not yes:
        render(changes, OutputFormat.TABLE)
    confirm(f"Change {_counted(settings)} at {len({row['brokerName'] for row in changes})} brokers?", yes=yes)

    async def change(admin: "Admin") -> Any:
        await admin.brokers.set_config(settings, cluster=cluster, broker=broker)
        return await admin.brokers.config(cluster=cluster, broker=broker)

    after = {one.name: table for one, table in run_admin(connection, change).responses.items()}
    render([{**row, "value": after.get(str(row["brokerName"]), {}).get(str(row["name"]))} for row in changes], output)
    return report_missing(told.failures)


def _changes(told: "Tables", settings: dict[str, str]) -> list[Row]:
    known = {name for table in told.responses.values() for name in table}
    for name in settings:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "see `ariane broker config get` for all"
            raise ClientError(f"no broker has a setting {name}: {hint}")
    return [
        {"brokerName": one.name, "name": name, "was": table.get(name), "value": value}
        for one, table in told.responses.items()
        for name, value in settings.items()
        if table.get(name) != value
    ]


def _counted(settings: dict[str, str]) -> str:
    return "1 setting" if len(settings) == 1 else f"{len(settings)} settings"


# ---

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


@click.group(short_help="Settings: look at them, and change those of brokers.")
def config() -> None:
    """Look at settings without starting anything, and change those of brokers that run.

    \b
    Examples:
      ariane config show -c broker.conf --origin
      ariane config set fileReservedTime=48
    """


config.add_command(set_settings)


@config.command(short_help="Show every setting, its value, and where it came from.")
@click.option(
    "-c", "--config", "file", type=click.Path(path_type=Path), help="Settings file: TOML, broker.conf or namesrv.conf."
)
@click.option("--section", type=click.Choice(list(_LOADERS)), default="broker", show_default=True, help="Whose.")
@click.option(
    "--origin", is_flag=True, help="Also show where each value came from: a file's line, a variable, default."
)
@output_option()
def show(file: Path | None, section: str, origin: bool, output: OutputFormat) -> None:
    """Show every setting and its value, from defaults, the file and the environment.

    A file with a fault ends this with the fault, as it would end the server. Secrets are never shown.

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
