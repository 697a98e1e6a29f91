"""`ariane config set`: settings of brokers that run, after showing what would change."""

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from ariane.cli.connection import Connection, connected
from ariane.cli.parameters import name_value_pairs
from ariane.cli.render import Form, Row, output_option, render
from ariane.errors import ClientError

if TYPE_CHECKING:
    from ariane.client.admin import Admin
    from ariane.client.admin.servers import PerBroker

    Tables = PerBroker[dict[str, str]]


@click.command("set", short_help="Change settings of brokers that run.")
@click.argument("settings", nargs=-1, required=True, metavar="NAME=VALUE...", callback=name_value_pairs)
@click.option("--cluster", metavar="NAME", help="Only the brokers of this cluster.")
@click.option("--broker", metavar="NAME|HOST:PORT", help="Only this broker.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@connected
@output_option()
def set_settings(
    settings: dict[str, str], cluster: str | None, broker: str | None, yes: bool, connection: Connection, form: Form
) -> int:
    """Change settings of brokers that run, all that are named or none, until their next start.

    Names are RocketMQ's, as `ariane broker config get` shows them; docs/settings.md says which can be changed while a
    broker runs. What would change is shown first. To change them for good, write them into the broker's file as well.

    \b
    Examples:
      ariane config set fileReservedTime=48
      ariane config set diskMaxUsedSpaceRatio=80 --broker broker-a --yes
    """
    from ariane.cli.asking import ask, confirm, tell_missing

    told = ask(connection, lambda admin: admin.brokers.config(cluster=cluster, broker=broker))
    changes = _changes(told, settings)
    if not changes:
        click.echo("nothing to change: every broker has these values already", err=True)
        return tell_missing(told.failures)
    if not yes:
        render(changes, Form.TABLE)
    confirm(f"Change {_counted(settings)} at {len({row['brokerName'] for row in changes})} brokers?", yes=yes)

    async def change(admin: "Admin") -> Any:
        await admin.brokers.set_config(settings, cluster=cluster, broker=broker)
        return await admin.brokers.config(cluster=cluster, broker=broker)

    after = {one.name: table for one, table in ask(connection, change).answers.items()}
    render([{**row, "value": after.get(str(row["brokerName"]), {}).get(str(row["name"]))} for row in changes], form)
    return tell_missing(told.failures)


def _changes(told: "Tables", settings: dict[str, str]) -> list[Row]:
    known = {name for table in told.answers.values() for name in table}
    for name in settings:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "see `ariane broker config get` for all"
            raise ClientError(f"no broker has a setting {name}: {hint}")
    return [
        {"brokerName": one.name, "name": name, "was": table.get(name), "value": value}
        for one, table in told.answers.items()
        for name, value in settings.items()
        if table.get(name) != value
    ]


def _counted(settings: dict[str, str]) -> str:
    return "1 setting" if len(settings) == 1 else f"{len(settings)} settings"
