"""`ariane group seek|skip|clone`: moves the offsets of a group. `seek` and `skip` show the effect before they ask."""

from collections.abc import Iterable

import click

from ariane.cli.common.admin import broker_rows, confirm, run_admin, yes_option
from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import OutputFormat, Row, output_option, render
from ariane.cli.common.parameters import TIME_FORMATS, queue_named, time_or
from ariane.cli.tree import group
from ariane.client.admin import Admin
from ariane.client.admin.offsets import ResetPlan, To
from ariane.client.core.queue_bounds import readable_queues
from ariane.errors import ClientError
from ariane.model.route import MessageQueue

_COLUMNS = ("brokerName", "queueId", "from", "to", "skips", "repeats")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would happen, and change nothing.")


@group.command("seek", short_help="Move a group's offsets in a topic.")
@click.argument("name", metavar="GROUP")
@click.argument("topic")
@click.option(
    "--to",
    metavar="earliest|latest|TIME",
    callback=time_or("earliest", "latest"),
    help=f"Where to continue. A time is {TIME_FORMATS}.",
)
@click.option(
    "--offset", "offsets", multiple=True, metavar="[BROKER:]QUEUE=OFFSET", help="Offset of one queue; can be repeated."
)
@_DRY_RUN
@yes_option
@connected
@output_option()
def seek(
    name: str,
    topic: str,
    to: int | str | None,
    offsets: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    connection: Connection,
    output: OutputFormat,
) -> None:
    """Move a group's offsets in a topic, whether its members run or not.

    First shows, for each queue, how many messages will be skipped or consumed again; then asks for confirmation.

    \b
    Examples:
      ariane group seek billing orders --to -1h
      ariane group seek billing orders --to earliest --dry-run
      ariane group seek billing orders --offset broker-a:0=1200 --offset broker-a:1=1180 --yes
    """
    if (to is None) == (not offsets):
        raise click.UsageError("give either --to or --offset", click.get_current_context())
    _move(connection, name, topic, offsets or to, output, dry_run=dry_run, yes=yes)


@group.command("skip")
@click.argument("name", metavar="GROUP")
@click.argument("topic")
@_DRY_RUN
@yes_option
@connected
@output_option()
def skip(name: str, topic: str, dry_run: bool, yes: bool, connection: Connection, output: OutputFormat) -> None:
    """Skip all messages of a topic that a group has not consumed yet.

    \b
    Examples:
      ariane group skip billing orders
      ariane group skip billing orders --yes
    """
    _move(connection, name, topic, "latest", output, dry_run=dry_run, yes=yes)


@group.command("clone")
@click.argument("source")
@click.argument("target")
@click.option("--topic", metavar="TOPIC", help="Only the offsets in this topic.")
@click.option(
    "--offline", is_flag=True, help="Also copy offsets of topics that an online SOURCE no longer subscribes to."
)
@connected
@output_option()
def clone(
    source: str, target: str, topic: str | None, offline: bool, connection: Connection, output: OutputFormat
) -> None:
    """Copy the offsets of the group SOURCE to TARGET. Stop the members of TARGET first: they would overwrite them.

    \b
    Examples:
      ariane group clone billing billing-2
      ariane group clone billing billing-2 --topic orders
    """

    async def work(admin: Admin) -> list[dict[str, object]]:
        if (await admin.groups.members(target)).is_online:
            raise ClientError(f"group {target} has online members, which would overwrite the offsets: stop them first")
        return broker_rows(await admin.offsets.clone(source, target, topic, offline=offline))

    render([{"source": source, "target": target, **row} for row in run_admin(connection, work)], output)


def _move(
    connection: Connection,
    name: str,
    topic: str,
    to: int | str | tuple[str, ...] | None,
    output: OutputFormat,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    if yes and not dry_run:
        plan = run_admin(connection, lambda admin: _reset(admin, name, topic, to))
        render(_rows(plan), output, _COLUMNS)
        _report(plan, "moved")
        return
    plan = run_admin(connection, lambda admin: _preview(admin, name, topic, to))
    render(_rows(plan), output, _COLUMNS)
    _report(plan, "would move")
    if not dry_run:
        confirm(f"Move group {name} in {len(plan.moves)} queues of {topic}?", yes=False)
        _report(run_admin(connection, lambda admin: _reset(admin, name, topic, to)), "moved")


async def _preview(admin: Admin, name: str, topic: str, to: object) -> ResetPlan:
    return await admin.offsets.preview(name, topic, await _target(admin, topic, to))


async def _reset(admin: Admin, name: str, topic: str, to: object) -> ResetPlan:
    return await admin.offsets.reset(name, topic, await _target(admin, topic, to))


async def _target(admin: Admin, topic: str, to: object) -> To:
    if to == "earliest":
        return "earliest"
    if isinstance(to, int):
        return to
    if isinstance(to, tuple):
        queues = readable_queues(topic, await admin.topics.route(topic))
        return dict(_offset(text, queues) for text in to)
    return "latest"


def _offset(text: str, queues: Iterable[MessageQueue]) -> tuple[MessageQueue, int]:
    name, _, offset = text.partition("=")
    if not (offset.isdecimal() and name.rpartition(":")[2].isdecimal()):
        raise click.BadParameter(f"{text!r}: [BROKER:]QUEUE=OFFSET expected, for example broker-a:0=1200")
    return queue_named(name, queues), int(offset)


def _rows(plan: ResetPlan) -> Iterable[Row]:
    for move in plan.moves:
        yield {
            "group": plan.group,
            "topic": plan.topic,
            "brokerName": move.queue.broker_name,
            "queueId": move.queue.queue_id,
            "from": move.current,
            "to": move.target,
            "skips": move.skips,
            "repeats": move.repeats,
        }


def _report(plan: ResetPlan, verb: str) -> None:
    skips = "an unknown number of" if plan.skips is None else f"{plan.skips:,}"
    repeats = "an unknown number of" if plan.repeats is None else f"{plan.repeats:,}"
    online = "its members are notified" if plan.is_online else "it has no online members"
    click.echo(
        f"{verb} {plan.group} in {len(plan.moves)} queues of {plan.topic}: {skips} messages skipped, {repeats} "
        f"consumed again; {online}",
        err=True,
    )
