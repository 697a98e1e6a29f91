"""`ariane group seek|skip|clone`: moving a group to another place. What will happen is shown before it does."""

from collections.abc import Iterable

import click

from ariane.cli.common.admin import broker_rows, confirm, run_admin, yes_option
from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import Form, Row, output_option, render
from ariane.cli.common.parameters import FORMS, moment_or
from ariane.cli.msg.command import queue_named
from ariane.cli.tree import group
from ariane.client.admin import Admin
from ariane.client.admin.offsets import ResetPlan, To
from ariane.client.core.queue_bounds import readable_queues
from ariane.errors import ClientError
from ariane.model.route import MessageQueue

_COLUMNS = ("brokerName", "queueId", "from", "to", "skips", "repeats")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would happen, and do nothing.")


@group.command("seek", short_help="Move a group to another place in a topic.")
@click.argument("name", metavar="GROUP")
@click.argument("topic")
@click.option(
    "--to",
    metavar="earliest|latest|TIME",
    callback=moment_or("earliest", "latest"),
    help=f"Where to go on. A time is {FORMS}.",
)
@click.option("--offset", "offsets", multiple=True, metavar="[BROKER:]QUEUE=OFFSET", help="One queue; may be repeated.")
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
    form: Form,
) -> None:
    """Move a group to another place in a topic, whether its members run or not.

    First it shows, for each queue, how many messages will be skipped or consumed again; then it asks.

    \b
    Examples:
      ariane group seek billing orders --to -1h
      ariane group seek billing orders --to earliest --dry-run
      ariane group seek billing orders --offset broker-a:0=1200 --offset broker-a:1=1180 --yes
    """
    if (to is None) == (not offsets):
        raise click.UsageError("either --to or --offset must say where", click.get_current_context())
    _move(connection, name, topic, offsets or to, form, dry_run=dry_run, yes=yes)


@group.command("skip")
@click.argument("name", metavar="GROUP")
@click.argument("topic")
@_DRY_RUN
@yes_option
@connected
@output_option()
def skip(name: str, topic: str, dry_run: bool, yes: bool, connection: Connection, form: Form) -> None:
    """Give up everything in a topic that a group has not consumed yet.

    \b
    Examples:
      ariane group skip billing orders
      ariane group skip billing orders --yes
    """
    _move(connection, name, topic, "latest", form, dry_run=dry_run, yes=yes)


@group.command("clone")
@click.argument("source")
@click.argument("target")
@click.option("--topic", metavar="TOPIC", help="Only the offsets in this topic.")
@click.option("--offline", is_flag=True, help="Also topics that SOURCE, being online, does not subscribe to now.")
@connected
@output_option()
def clone(source: str, target: str, topic: str | None, offline: bool, connection: Connection, form: Form) -> None:
    """Let the group TARGET go on where SOURCE is. Stop the members of TARGET first: they would overwrite it.

    \b
    Examples:
      ariane group clone billing billing-2
      ariane group clone billing billing-2 --topic orders
    """

    async def work(admin: Admin) -> list[dict[str, object]]:
        if (await admin.groups.members(target)).is_online:
            raise ClientError(f"group {target} has members online, which would overwrite its offsets: stop them first")
        return broker_rows(await admin.offsets.clone(source, target, topic, offline=offline))

    render([{"source": source, "target": target, **row} for row in run_admin(connection, work)], form)


def _move(
    connection: Connection,
    name: str,
    topic: str,
    to: int | str | tuple[str, ...] | None,
    form: Form,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    if yes and not dry_run:
        plan = run_admin(connection, lambda admin: _reset(admin, name, topic, to))
        render(_rows(plan), form, _COLUMNS)
        _tell(plan, "moved")
        return
    plan = run_admin(connection, lambda admin: _preview(admin, name, topic, to))
    render(_rows(plan), form, _COLUMNS)
    _tell(plan, "would move")
    if not dry_run:
        confirm(f"Move group {name} in {len(plan.moves)} queues of {topic}?", yes=False)
        _tell(run_admin(connection, lambda admin: _reset(admin, name, topic, to)), "moved")


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
    place, _, offset = text.partition("=")
    if not (offset.isdecimal() and place.rpartition(":")[2].isdecimal()):
        raise click.BadParameter(f"{text!r}: [BROKER:]QUEUE=OFFSET expected, for example broker-a:0=1200")
    return queue_named(place, queues), int(offset)


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


def _tell(plan: ResetPlan, verb: str) -> None:
    skips = "an unknown number of" if plan.skips is None else f"{plan.skips:,}"
    repeats = "an unknown number of" if plan.repeats is None else f"{plan.repeats:,}"
    online = "its members are told" if plan.is_online else "none of its members is online"
    click.echo(
        f"{verb} {plan.group} in {len(plan.moves)} queues of {plan.topic}: {skips} messages skipped, {repeats} "
        f"consumed again; {online}",
        err=True,
    )
