"""`ariane group`: look at consumer groups, make, change and delete them. Moving them is in group_moves.py."""

from collections.abc import Callable
from typing import Any

import click

from ariane.cli.asking import Command, ask, broker_rows, confirm, place_options, tell_missing, yes_option
from ariane.cli.connection import Connection, connected
from ariane.cli.group_rows import (
    LAG_COLUMNS,
    check_known,
    is_built_in_and_idle,
    lag_rows,
    lag_summary,
    show_group_table,
    shown_group,
    summary_row,
    view_group,
)
from ariane.cli.render import Form, output_option, render
from ariane.cli.tree import group
from ariane.client.admin import Admin
from ariane.client.admin.lag import GroupLag
from ariane.errors import ClientError
from ariane.model.group import GroupConfig


@group.command("list")
@click.option("-a", "--all", "everything", is_flag=True, help="Also groups of the system that nobody uses.")
@connected
@output_option()
def list_groups(everything: bool, connection: Connection, form: Form) -> int:
    """List the groups with their members and their lag. A lag that nobody knows is left empty (in JSON: null).

    \b
    Examples:
      ariane group list
      ariane group list -o json
    """
    found = ask(connection, lambda admin: admin.groups.summaries())
    shown = [one for one in found if everything or not is_built_in_and_idle(one)]
    render(map(summary_row, shown), form)
    if len(shown) < len(found):
        click.echo(f"{len(found) - len(shown)} groups of the system are not shown: --all shows them", err=True)
    missing = {failure.server: failure for one in found for failure in (*one.lag.failures, *one.members.failures)}
    return tell_missing(missing.values())


@group.command("show")
@click.argument("name", metavar="GROUP")
@connected
@output_option()
def show_group(name: str, connection: Connection, form: Form) -> int:
    """Show a group's settings, what it subscribes to, and who is in it.

    \b
    Examples:
      ariane group show billing
      ariane group show billing -o json
    """
    view = ask(connection, lambda admin: view_group(admin, name))
    if form is Form.TABLE:
        show_group_table(view)
    else:
        render([shown_group(view)], form)
    return tell_missing(view.failures)


@group.command("lag")
@click.argument("name", metavar="GROUP")
@click.option("--topic", metavar="TOPIC", help="Only in this topic.")
@click.option("--owners", is_flag=True, help="Also ask each member which queues it has.")
@click.option("--at-most", type=click.IntRange(0), metavar="N", help="Exit with 1 unless it is known to be so little.")
@connected
@output_option()
def lag_of_group(
    name: str, topic: str | None, owners: bool, at_most: int | None, connection: Connection, form: Form
) -> int:
    """Show how many messages a group is behind, in each queue.

    A queue in which the group has no offset has no lag either: it is left empty (in JSON: null), and is not 0, unless
    the queue never had a message.

    \b
    Examples:
      ariane group lag billing
      ariane group lag billing -o json
      ariane group lag billing --topic orders --at-most 1000
    """

    async def work(admin: Admin) -> GroupLag:
        lag = await admin.groups.lag(name, topic, owners=owners)
        if not lag.queues:
            await check_known(admin, name)
        return lag

    lag = ask(connection, work)
    render(lag_rows(lag, owners=owners), form, (*LAG_COLUMNS, "owner") if owners else LAG_COLUMNS)
    click.echo(lag_summary(lag), err=True)
    is_too_much = at_most is not None and (lag.total is None or lag.total > at_most)
    return tell_missing(lag.failures) or int(is_too_much)


def _setting_options(command: Command) -> Command:
    options: list[Callable[[Command], Command]] = [
        click.option("--consume/--no-consume", "consume_enable", default=None, help="Whether it may consume."),
        click.option(
            "--broadcast/--no-broadcast", "consume_broadcast_enable", default=None, help="Whether it may broadcast."
        ),
        click.option("--retry-max", "retry_max_times", type=click.IntRange(0), help="Retries before a dead letter."),
        click.option("--retry-queues", "retry_queue_nums", type=click.IntRange(1, 64), help="Queues of its retries."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@group.command("create")
@click.argument("name", metavar="GROUP")
@_setting_options
@place_options
@connected
@output_option()
def create_group(
    name: str, cluster: str | None, broker: str | None, connection: Connection, form: Form, **settings: Any
) -> None:
    """Make a group at every broker, or at those named. Refused when it is there already.

    \b
    Examples:
      ariane group create billing
      ariane group create billing --retry-max 5 --no-broadcast
    """
    named = {key: value for key, value in settings.items() if value is not None}

    async def work(admin: Admin) -> list[dict[str, object]]:
        if (await admin.groups.configs(name, cluster=cluster, broker=broker)).answers:
            raise ClientError(f"group {name} is there already: change it with `ariane group update`")
        config = GroupConfig(group_name=name, **named)
        return broker_rows(await admin.groups.put(config, cluster=cluster, broker=broker))

    render([{"group": name, **row} for row in ask(connection, work)], form)


@group.command("update", short_help="Change what is named and nothing else.")
@click.argument("name", metavar="GROUP")
@_setting_options
@place_options
@connected
@output_option()
def update_group(
    name: str, cluster: str | None, broker: str | None, connection: Connection, form: Form, **settings: Any
) -> None:
    """Change what is named and nothing else, at every broker that has the group or at those named.

    \b
    Examples:
      ariane group update billing --retry-max 3
      ariane group update billing --no-consume --broker broker-a
    """
    if all(value is None for value in settings.values()):
        raise click.UsageError("nothing to change: name a setting", click.get_current_context())
    done = ask(connection, lambda admin: admin.groups.update(name, cluster=cluster, broker=broker, **settings))
    render([{"group": name, **row} for row in broker_rows(done)], form)


@group.command("delete")
@click.argument("name", metavar="GROUP")
@click.option("--offsets", is_flag=True, help="Also forget how far it came.")
@click.option("--topics", is_flag=True, help="Also delete its retries and its dead letters.")
@place_options
@yes_option
@connected
@output_option()
def delete_group(
    name: str,
    offsets: bool,
    topics: bool,
    cluster: str | None,
    broker: str | None,
    yes: bool,
    connection: Connection,
    form: Form,
) -> None:
    """Delete a group's settings, and what else is named.

    \b
    Examples:
      ariane group delete billing
      ariane group delete billing --offsets --topics --yes
    """
    view = ask(connection, lambda admin: view_group(admin, name))
    online = f", which has {len(view.members.members)} members online" if view.members.is_online else ""
    confirm(f"Delete group {name}{online}?", yes=yes)
    done = ask(
        connection,
        lambda admin: admin.groups.delete(name, offsets=offsets, topics=topics, cluster=cluster, broker=broker),
    )
    render([{"group": name, **row} for row in broker_rows(done)], form)
