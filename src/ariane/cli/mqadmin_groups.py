"""mqadmin's commands for consumer groups and connected clients."""

from typing import Literal

import click
import msgspec

from ariane.cli.asking import tell_missing
from ariane.cli.group_rows import view_group
from ariane.cli.mqadmin_shape import GROUP, PLACE, TOPIC, Option, apache, moment_of, print_table
from ariane.cli.mqadmin_words import day_and_second, group_words, java, version_name
from ariane.client.admin import Admin
from ariane.client.admin.groups import GroupSummary
from ariane.client.admin.lag import GroupLag
from ariane.errors import ClientError
from ariane.model.group import GroupConfig
from ariane.model.ids import DEAD_LETTER_PREFIX, RETRY_PREFIX

_THE_END = -1  # instead of a time: behind the newest message
_CONSUMER_GROUP = Option("g", "consumerGroup", "group", "The consumer group.", example="billing")


@apache(
    "updateSubGroup",
    *PLACE,
    GROUP,
    Option("s", "consumeEnable", "consume_enable", "Whether it may consume.", type=bool, default=True),
    Option(
        "m", "consumeFromMinEnable", "consume_from_min_enable", "Whether from the oldest.", type=bool, default=False
    ),
    Option("d", "consumeBroadcastEnable", "consume_broadcast_enable", "May it broadcast.", type=bool, default=False),
    Option("q", "retryQueueNums", "retry_queue_nums", "Queues of its retries.", type=int, default=1),
    Option("r", "retryMaxTimes", "retry_max_times", "Retries before a dead letter.", type=int, default=16),
    Option("i", "brokerId", "broker_id", "The broker that it reads from.", type=int, default=0),
    Option(
        "w", "whichBrokerWhenConsumeSlowly", "which_broker_when_consume_slowly", "And if slow.", type=int, default=1
    ),
    Option("a", "notifyConsumerIdsChanged", "notify_consumer_ids_changed_enable", "Tell.", type=bool, default=True),
)
async def update_sub_group(
    admin: Admin, group: str, broker: str | None, cluster: str | None, **settings: bool | int
) -> None:
    """Make a group, or make it as the options say."""
    config = msgspec.convert({"groupName": group} | _camel(settings), GroupConfig)
    for one in await admin.groups.put(config, broker=broker, cluster=cluster):
        click.echo(f"create subscription group to {one.address} success.")
    click.echo(group_words(config))


def _camel(settings: dict[str, bool | int]) -> dict[str, bool | int]:
    names = {field.name: field.encode_name for field in msgspec.structs.fields(GroupConfig)}
    return {names[name]: value for name, value in settings.items()}


@apache("deleteSubGroup", *PLACE, GROUP)
async def delete_sub_group(admin: Admin, group: str, broker: str | None, cluster: str | None) -> None:
    """Delete a group's settings with its retries and its dead letters. Does not ask."""
    for one in await admin.groups.delete(group, topics=True, broker=broker, cluster=cluster):
        place = "" if cluster is None else f" in cluster [{cluster}]"
        click.echo(f"delete subscription group [{group}] from broker [{one.address}]{place} success.")
    for prefix in () if cluster is None else (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        click.echo(f"delete topic [{prefix}{group}] from cluster [{cluster}] success.")
        click.echo(f"delete topic [{prefix}{group}] from NameServer success.")


@apache("consumerConnection", _CONSUMER_GROUP)
async def consumer_connection(admin: Admin, group: str) -> int:
    """Show who is connected as a consumer of a group, and what the group subscribes to."""
    view = await view_group(admin, group)
    members = view.members
    print_table(
        "%-36s %-22s %-10s %s",
        ["ClientId", "ClientAddr", "Language", "Version"],
        [(one.client_id, one.address, one.language or "", version_name(one.version)) for one in members.members],
    )
    click.echo("\nBelow is subscription:")
    subscriptions = [(one.topic, one.sub_string) for one in members.subscriptions]
    print_table("%-20s %s", ["Topic", "SubExpression"], subscriptions)
    click.echo(f"\nConsumeType: {members.consume_type}")
    click.echo(f"MessageModel: {members.message_model}")
    click.echo(f"ConsumeFromWhere: {members.consume_from_where}")
    if not members.is_online and members.is_complete:
        raise ClientError(f"group {group} is not online")
    return tell_missing(view.failures)


@apache(
    "producerConnection",
    Option("g", "producerGroup", "group", "The producer group.", example="shop"),
    TOPIC,
)
async def producer_connection(admin: Admin, group: str, topic: str) -> int:
    """Show who is connected as a producer of a group."""
    told = await admin.clients.producers(group, topic=topic)
    found = {one.client_id: one for connections in told.answers.values() for one in connections}
    for number, one in enumerate(found.values(), 1):
        language, version = one.language or "", version_name(one.version)
        click.echo(f"{number:04d}  {one.client_id:<32} {one.client_addr:<22} {language:<8} {version}")
    if not found and told.is_complete:
        raise ClientError(f"no producer of group {group} is online")
    return tell_missing(told.failures)


@apache(
    "consumerProgress",
    Option("g", "groupName", "group", "The consumer group; without it all."),
    Option("s", "showClientIP", "with_clients", "Also who has each queue.", type=bool, default=False),
)
async def consumer_progress(admin: Admin, group: str | None, with_clients: bool) -> int:
    """Show how far behind groups are. Where a group has no offset, `unknown` stands."""
    if group is None:
        return await _all_progress(admin)
    lag = await admin.groups.lag(group, owners=with_clients)
    if not lag.queues:
        await view_group(admin, group)
    _print_progress(lag, with_clients)
    return tell_missing(lag.failures)


def _print_progress(lag: GroupLag, with_clients: bool) -> None:
    clients = ["Client IP"] if with_clients else []
    layout = f"%-64s  %-32s  %-4s  %-20s  %-20s  {'%-20s ' if with_clients else ''}%-20s  %s"
    headings = ["Topic", "Broker Name", "QID", "Broker Offset", "Consumer Offset", *clients, "Diff", "LastTime"]
    rows = [
        (
            *(one.queue.topic, one.queue.broker_name, one.queue.queue_id, one.end, one.offset),
            *([(one.owner or "N/A").split("@")[0]] if with_clients else []),
            *(one.lag, "N/A" if one.last_consumed_ms is None else day_and_second(one.last_consumed_ms)),
        )
        for one in lag.queues
    ]
    print_table(layout, headings, rows)
    click.echo(f"\nConsume TPS: {lag.consume_tps:.2f}")
    click.echo(f"Diff Total: {'unknown' if lag.total is None else lag.total}")


async def _all_progress(admin: Admin) -> int:
    found = sorted(await _groups_in_use(admin), key=lambda one: (-len(one.members.members), -(one.lag.total or 0)))
    print_table(
        "%-64s  %-6s  %-24s %-5s  %-14s  %-7s  %s",
        ["Group", "Count", "Version", "Type", "Model", "TPS", "Diff Total"],
        [
            (
                *(one.members.group, len(one.members.members)),
                next((version_name(member.version) for member in one.members.members), "OFFLINE"),
                *(_short(one.members.consume_type), one.members.message_model or ""),
                *(f"{one.lag.consume_tps:.0f}", one.lag.total if one.lag.queues else None),
            )
            for one in found
        ],
    )
    return tell_missing({failure.server: failure for one in found for failure in one.lag.failures}.values())


async def _groups_in_use(admin: Admin) -> list[GroupSummary]:
    """Those with members, with offsets, or with retries: Apache's tool goes by the last, which a group's first member
    makes, and does not know groups that consume without one."""
    topics = set(await admin.topics.names())
    return [
        one
        for one in await admin.groups.summaries()
        if one.members.members or one.lag.queues or f"{RETRY_PREFIX}{one.members.group}" in topics
    ]


def _short(consume_type: str | None) -> str:
    return {"CONSUME_ACTIVELY": "PULL", "CONSUME_PASSIVELY": "PUSH"}.get(consume_type or "", "")


@apache(
    "cloneGroupOffset",
    Option("s", "srcGroup", "source", "Whose offsets.", example="billing"),
    Option("d", "destGroup", "target", "Who gets them.", example="billing-2"),
    TOPIC,
    Option("o", "offline", "offline", "Also topics that it no longer subscribes to.", type=bool, default=False),
)
async def clone_group_offset(admin: Admin, source: str, target: str, topic: str, offline: bool) -> None:
    """Let a group go on where another one is."""
    await admin.offsets.clone(source, target, topic, offline=offline)
    click.echo(f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]")


@apache(
    "resetOffsetByTime",
    Option("g", "group", "group", "The consumer group.", example="billing"),
    TOPIC,
    Option("s", "timestamp", "moment", "now, milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS.", example="now"),
    Option("f", "force", "force", "Also forward.", type=bool, default=True),
    Option("c", "cplus", "cplus", "For C++ clients: has no effect, they are told as all others.", flag=True),
)
async def reset_offset_by_time(admin: Admin, group: str, topic: str, moment: str, force: bool, cplus: bool) -> None:
    """Move a group to a time, or behind the newest message (now). Does not ask."""
    time_ms = _THE_END if moment in ("now", str(_THE_END)) else moment_of(moment)
    to: Literal["latest"] | int = "latest" if time_ms == _THE_END else time_ms
    planned = (await admin.offsets.preview(group, topic, to)).moves
    moved = {move.queue: move.target for move in (await admin.offsets.reset(group, topic, to, force=force)).moves}
    click.echo(
        f"rollback consumer offset by specified group[{group}], topic[{topic}], force[{java(force)}], "
        f"timestamp(string)[{moment}], timestamp(long)[{time_ms}]"
    )
    print_table(
        "%-40s  %-40s  %-40s",
        ["brokerName", "queueId", "offset"],
        [(move.queue.broker_name, move.queue.queue_id, moved.get(move.queue, move.current)) for move in planned],
    )
