"""`ariane config`: the settings in force, where each of them came from, and changing those of brokers that run."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from ariane.cli.config_set import set_settings
from ariane.cli.render import Form, Row, output_option, render
from ariane.settings import Loaded, describe, to_text, value_of

_COLUMNS = ("setting", "value")


def _broker(file: Path | None) -> Loaded[Any]:
    from ariane.cli.broker_settings import load_broker_settings

    return load_broker_settings(file, os.environ, {})


def _nameserver(file: Path | None) -> Loaded[Any]:
    from ariane.nameserver.settings import UNSUPPORTED, NameserverSettings
    from ariane.settings import load

    return load(
        NameserverSettings, section="nameserver", file=file, environ=os.environ, flags={}, unsupported=UNSUPPORTED
    )


_LOADERS: dict[str, Callable[[Path | None], Loaded[Any]]] = {"broker": _broker, "nameserver": _nameserver}


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
def show(file: Path | None, section: str, origin: bool, form: Form) -> None:
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
    render(_rows(loaded), form, (*_COLUMNS, "origin") if origin else _COLUMNS)


def _rows(loaded: Loaded[Any]) -> Iterator[Row]:
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
