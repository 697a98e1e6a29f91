"""`ariane group`: inspect, create, change and delete consumer groups. Moving their offsets is in group/offsets.py."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click
import msgspec

from ariane.cli.common.admin import Command, broker_options, broker_rows, confirm, report_missing, run_admin, yes_option
from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import OutputFormat, Row, output_option, render
from ariane.cli.tree import group
from ariane.client.admin import Admin
from ariane.client.admin.groups import GroupSummary
from ariane.client.admin.lag import GroupLag
from ariane.client.admin.members import GroupMembers
from ariane.client.admin.requests import Broker, Failure
from ariane.errors import ClientError
from ariane.model.group import GroupConfig
from ariane.store.offline.annotate import time_text

LAG_COLUMNS = ("topic", "brokerName", "queueId", "brokerOffset", "consumerOffset", "lag", "lastConsumed")

_SYSTEM_PREFIX = "CID_RMQ_SYS_"
_BUILT_IN = (
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "__MONITOR_CONSUMER",
)  # fmt: skip
"""Groups that every broker, Apache's or Ariane's, has from the start."""
_TOOLS = ("ariane-sql", "ariane-spark", "ariane-spark-ledger", "ariane-redrive")
"""Groups of Ariane's own tools: brokers create them on first use."""


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    configs: Mapping[Broker, GroupConfig]
    members: GroupMembers
    failures: tuple[Failure, ...]


async def view_group(admin: Admin, name: str) -> GroupView:
    """ClientError when no broker knows the group."""
    configs, members = await admin.groups.configs(name), await admin.groups.members(name)
    missing = {failure.server: failure for failure in (*configs.failures, *members.failures)}
    if not configs.responses and not members.is_online and not missing:
        raise _unknown(name)
    return GroupView(name=name, configs=configs.responses, members=members, failures=tuple(missing.values()))


async def check_known(admin: Admin, name: str) -> None:
    """ClientError for an unknown group: a misspelt name must not look like a group without lag."""
    await view_group(admin, name)


def _unknown(name: str) -> ClientError:
    return ClientError(f"no broker knows group {name}: it has no settings and no members; check the name")


def is_built_in_and_idle(summary: GroupSummary) -> bool:
    name, is_used = summary.members.group, summary.members.is_online or bool(summary.lag.queues)
    return not is_used and (name in (*_BUILT_IN, *_TOOLS) or name.startswith(_SYSTEM_PREFIX))


def summary_row(summary: GroupSummary) -> Row:
    members, lag = summary.members, summary.lag
    return {
        "group": members.group,
        "members": len(members.members) if members.is_complete else None,
        "messageModel": members.message_model,
        "consumeType": members.consume_type,
        "topics": list(lag.by_topic) or [subscription.topic for subscription in members.subscriptions],
        "lag": lag.total if lag.queues else None,
        "consumeTps": round(lag.consume_tps, 3),
    }


def group_row(view: GroupView) -> Row:
    members = view.members
    return {
        "group": view.name,
        "messageModel": members.message_model,
        "consumeType": members.consume_type,
        "consumeFromWhere": members.consume_from_where,
        "subscriptions": list(_subscription_rows(members)),
        "members": list(_member_rows(members)),
        "settings": list(_setting_rows(view)),
    }


def show_group_table(view: GroupView) -> None:
    """Three tables, one below the other."""
    members = view.members
    details = f", {members.message_model}, {members.consume_type}" if members.is_online else ""
    click.echo(f"group {view.name}: {len(members.members)} members online{details}")
    for rows in map(list, (_setting_rows(view), _subscription_rows(members), _member_rows(members))):
        if rows:
            click.echo("")
            render(rows, OutputFormat.TABLE)


def _subscription_rows(members: GroupMembers) -> Iterable[Row]:
    for subscription in members.subscriptions:
        yield {
            "topic": subscription.topic,
            "expression": subscription.sub_string,
            "expressionType": subscription.expression_type,
        }


def _member_rows(members: GroupMembers) -> Iterable[Row]:
    for member in members.members:
        yield {
            "clientId": member.client_id,
            "address": member.address,
            "language": member.language,
            "version": member.version,
            "brokers": list(member.brokers),
        }


def _setting_rows(view: GroupView) -> Iterable[Row]:
    for broker, config in view.configs.items():
        yield {
            "brokerName": broker.name,
            "consumeEnable": config.consume_enable,
            "consumeBroadcastEnable": config.consume_broadcast_enable,
            "retryMaxTimes": config.retry_max_times,
            "retryQueueNums": config.retry_queue_nums,
        }


def lag_rows(lag: GroupLag, *, owners: bool) -> Iterable[Row]:
    for queue in lag.queues:
        row: dict[str, object] = {
            "topic": queue.queue.topic,
            "brokerName": queue.queue.broker_name,
            "queueId": queue.queue.queue_id,
            "brokerOffset": queue.end,
            "consumerOffset": queue.offset,
            "lag": queue.lag,
            "lastConsumed": None if queue.last_consumed_ms is None else time_text(queue.last_consumed_ms),
            "lastConsumedTimestamp": queue.last_consumed_ms,
        }
        yield row | {"owner": queue.owner} if owners else row


def lag_summary(lag: GroupLag) -> str:
    if not lag.queues:
        return f"group {lag.group} has no offset in any topic yet"
    if lag.total is not None:
        return f"total lag: {lag.total:,}"
    unknown = sum(queue.lag is None for queue in lag.queues)
    missing = [f"{unknown} of {len(lag.queues)} queues where the group has no offset"] if unknown else []
    missing += ["the brokers that did not respond"] if lag.failures else []
    return f"total lag: unknown; at least {lag.known_total:,}, not counting {' and '.join(missing)}"


# --- commands ---


@group.command("list")
@click.option("-a", "--all", "everything", is_flag=True, help="Also list unused system groups.")
@connected
@output_option()
def list_groups(everything: bool, connection: Connection, output: OutputFormat) -> int:
    """List the groups with their members and their lag. An unknown lag is left empty (in JSON: null).

    \b
    Examples:
      ariane group list
      ariane group list -o json
    """
    groups = run_admin(connection, lambda admin: admin.groups.summaries())
    shown = [summary for summary in groups if everything or not is_built_in_and_idle(summary)]
    render(map(summary_row, shown), output)
    if len(shown) < len(groups):
        click.echo(f"{len(groups) - len(shown)} system groups are not shown: --all shows them", err=True)
    missing = {
        failure.server: failure for summary in groups for failure in (*summary.lag.failures, *summary.members.failures)
    }
    return report_missing(missing.values())


@group.command("show")
@click.argument("name", metavar="GROUP")
@connected
@output_option()
def show_group(name: str, connection: Connection, output: OutputFormat) -> int:
    """Show a group's settings, subscriptions and members.

    \b
    Examples:
      ariane group show billing
      ariane group show billing -o json
    """
    view = run_admin(connection, lambda admin: view_group(admin, name))
    if output is OutputFormat.TABLE:
        show_group_table(view)
    else:
        render([group_row(view)], output)
    return report_missing(view.failures)


@group.command("lag")
@click.argument("name", metavar="GROUP")
@click.option("--topic", metavar="TOPIC", help="Only in this topic.")
@click.option("--owners", is_flag=True, help="Also ask each member which queues it owns.")
@click.option("--at-most", type=click.IntRange(0), metavar="N", help="Exit with 1 if the lag is higher, or unknown.")
@connected
@output_option()
def lag_of_group(
    name: str, topic: str | None, owners: bool, at_most: int | None, connection: Connection, output: OutputFormat
) -> int:
    """Show a group's lag in each queue.

    The lag is the number of messages that the group has yet to consume.
    In a queue where the group has no offset the lag is unknown: empty (in JSON: null), not 0, unless the queue never
    had a message.

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

    lag = run_admin(connection, work)
    render(lag_rows(lag, owners=owners), output, (*LAG_COLUMNS, "owner") if owners else LAG_COLUMNS)
    click.echo(lag_summary(lag), err=True)
    is_too_much = at_most is not None and (lag.total is None or lag.total > at_most)
    return report_missing(lag.failures) or int(is_too_much)


def _setting_options(command: Command) -> Command:
    options: list[Callable[[Command], Command]] = [
        click.option("--consume/--no-consume", "consume_enable", default=None, help="Allow the group to consume."),
        click.option(
            "--broadcast/--no-broadcast", "consume_broadcast_enable", default=None, help="Allow broadcast consumption."
        ),
        click.option(
            "--retry-max",
            "retry_max_times",
            type=click.IntRange(0),
            help="Retries before a message becomes a dead letter.",
        ),
        click.option(
            "--retry-queues", "retry_queue_nums", type=click.IntRange(1, 64), help="Queues of its retry topic."
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@group.command("create")
@click.argument("name", metavar="GROUP")
@_setting_options
@broker_options
@connected
@output_option()
def create_group(
    name: str, cluster: str | None, broker: str | None, connection: Connection, output: OutputFormat, **settings: Any
) -> None:
    """Create a group on all brokers, or on those selected. Fails if the group exists.

    \b
    Examples:
      ariane group create billing
      ariane group create billing --retry-max 5 --no-broadcast
    """
    changes = {key: value for key, value in settings.items() if value is not None}

    async def work(admin: Admin) -> list[dict[str, object]]:
        if (await admin.groups.configs(name, cluster=cluster, broker=broker)).responses:
            raise ClientError(f"group {name} exists already: change it with `ariane group update`")
        config = GroupConfig(group_name=name, **changes)
        return broker_rows(await admin.groups.put(config, cluster=cluster, broker=broker))

    render([{"group": name, **row} for row in run_admin(connection, work)], output)


@group.command("update", short_help="Change settings of a group.")
@click.argument("name", metavar="GROUP")
@_setting_options
@broker_options
@connected
@output_option()
def update_group(
    name: str, cluster: str | None, broker: str | None, connection: Connection, output: OutputFormat, **settings: Any
) -> None:
    """Change the given settings of a group, on all its brokers or on those selected. Others stay as they are.

    \b
    Examples:
      ariane group update billing --retry-max 3
      ariane group update billing --no-consume --broker broker-a
    """
    if all(value is None for value in settings.values()):
        raise click.UsageError("nothing to change: give at least one setting", click.get_current_context())
    done = run_admin(connection, lambda admin: admin.groups.update(name, cluster=cluster, broker=broker, **settings))
    render([{"group": name, **row} for row in broker_rows(done)], output)


@group.command("delete")
@click.argument("name", metavar="GROUP")
@click.option("--offsets", is_flag=True, help="Also delete its offsets.")
@click.option("--topics", is_flag=True, help="Also delete its retry and dead letter topics.")
@broker_options
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
    output: OutputFormat,
) -> None:
    """Delete a group's settings, and optionally its offsets and topics.

    \b
    Examples:
      ariane group delete billing
      ariane group delete billing --offsets --topics --yes
    """
    view = run_admin(connection, lambda admin: view_group(admin, name))
    online = f", which has {len(view.members.members)} members online" if view.members.is_online else ""
    confirm(f"Delete group {name}{online}?", yes=yes)
    done = run_admin(
        connection,
        lambda admin: admin.groups.delete(name, offsets=offsets, topics=topics, cluster=cluster, broker=broker),
    )
    render([{"group": name, **row} for row in broker_rows(done)], output)
