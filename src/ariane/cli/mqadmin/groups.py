"""mqadmin's commands for consumer groups and connected clients, in Apache's output format."""

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import click
import msgspec

from ariane.cli.common.admin import report_missing
from ariane.cli.group.command import view_group
from ariane.cli.mqadmin.commands import GROUP, TARGET, TOPIC, Option, apache, print_table, time_of
from ariane.cli.mqadmin.format import day_and_second, digits_only, group_words, java, version_name
from ariane.client.admin import Admin
from ariane.client.admin.groups import GroupSummary
from ariane.client.admin.lag import GroupLag
from ariane.client.admin.members import Member
from ariane.errors import ClientError
from ariane.model.group import GroupConfig, Subscription
from ariane.model.ids import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ariane.wire.requests.clients import ConsumerRunningInfo, ProcessQueueInfo

_LATEST = -1  # instead of a time: after the newest message
_CONSUMER_GROUP = Option("g", "consumerGroup", "group", "Consumer group.", example="billing")


@apache(
    "updateSubGroup",
    *TARGET,
    GROUP,
    Option("s", "consumeEnable", "consume_enable", "Allow the group to consume.", type=bool, default=True),
    Option(
        "m",
        "consumeFromMinEnable",
        "consume_from_min_enable",
        "Consume from the minimum offset.",
        type=bool,
        default=False,
    ),
    Option("d", "consumeBroadcastEnable", "consume_broadcast_enable", "Allow broadcast.", type=bool, default=False),
    Option("q", "retryQueueNums", "retry_queue_nums", "Queues of its retry topic.", type=int, default=1),
    Option("r", "retryMaxTimes", "retry_max_times", "Retries before a dead letter.", type=int, default=16),
    Option("i", "brokerId", "broker_id", "Id of the broker to read from.", type=int, default=0),
    Option(
        "w",
        "whichBrokerWhenConsumeSlowly",
        "which_broker_when_consume_slowly",
        "Broker id if it is slow.",
        type=int,
        default=1,
    ),
    Option(
        "a",
        "notifyConsumerIdsChanged",
        "notify_consumer_ids_changed_enable",
        "Notify members.",
        type=bool,
        default=True,
    ),
)
async def update_sub_group(
    admin: Admin, group: str, broker: str | None, cluster: str | None, **settings: bool | int
) -> None:
    """Create a group, or replace its settings."""
    config = msgspec.convert({"groupName": group} | _camel(settings), GroupConfig)
    for target in await admin.groups.put(config, broker=broker, cluster=cluster):
        click.echo(f"create subscription group to {target.address} success.")
    click.echo(group_words(config))


def _camel(settings: dict[str, bool | int]) -> dict[str, bool | int]:
    names = {field.name: field.encode_name for field in msgspec.structs.fields(GroupConfig)}
    return {names[name]: value for name, value in settings.items()}


@apache("deleteSubGroup", *TARGET, GROUP)
async def delete_sub_group(admin: Admin, group: str, broker: str | None, cluster: str | None) -> None:
    """Delete a group's settings, retry topic and dead letter topic, without confirmation."""
    for target in await admin.groups.delete(group, topics=True, broker=broker, cluster=cluster):
        where = "" if cluster is None else f" in cluster [{cluster}]"
        click.echo(f"delete subscription group [{group}] from broker [{target.address}]{where} success.")
    for prefix in () if cluster is None else (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        click.echo(f"delete topic [{prefix}{group}] from cluster [{cluster}] success.")
        click.echo(f"delete topic [{prefix}{group}] from NameServer success.")


@apache("consumerConnection", _CONSUMER_GROUP)
async def consumer_connection(admin: Admin, group: str) -> int:
    """Show the online consumers and the subscriptions of a group."""
    view = await view_group(admin, group)
    members = view.members
    print_table(
        "%-36s %-22s %-10s %s",
        ["ClientId", "ClientAddr", "Language", "Version"],
        [
            (member.client_id, member.address, member.language or "", version_name(member.version))
            for member in members.members
        ],
    )
    click.echo("\nBelow is subscription:")
    subscriptions = [(subscription.topic, subscription.sub_string) for subscription in members.subscriptions]
    print_table("%-20s %s", ["Topic", "SubExpression"], subscriptions)
    click.echo(f"\nConsumeType: {members.consume_type}")
    click.echo(f"MessageModel: {members.message_model}")
    click.echo(f"ConsumeFromWhere: {members.consume_from_where}")
    if not members.is_online and members.is_complete:
        raise ClientError(f"group {group} is not online")
    return report_missing(view.failures)


@apache(
    "producerConnection",
    Option("g", "producerGroup", "group", "Producer group.", example="shop"),
    TOPIC,
)
async def producer_connection(admin: Admin, group: str, topic: str) -> int:
    """Show the online producers of a group."""
    producers = await admin.clients.producers(group, topic=topic)
    clients = {client.client_id: client for connections in producers.responses.values() for client in connections}
    for number, client in enumerate(clients.values(), 1):
        language, version = client.language or "", version_name(client.version)
        click.echo(f"{number:04d}  {client.client_id:<32} {client.client_addr:<22} {language:<8} {version}")
    if not clients and producers.is_complete:
        raise ClientError(f"no producer of group {group} is online")
    return report_missing(producers.failures)


@apache(
    "consumerProgress",
    Option("g", "groupName", "group", "Consumer group; default: all."),
    Option("s", "showClientIP", "with_clients", "Also the owner of each queue.", type=bool, default=False),
)
async def consumer_progress(admin: Admin, group: str | None, with_clients: bool) -> int:
    """Show the lag of groups; `unknown` where a group has no offset."""
    if group is None:
        return await _all_progress(admin)
    lag = await admin.groups.lag(group, owners=with_clients)
    if not lag.queues:
        await view_group(admin, group)
    _print_progress(lag, with_clients)
    return report_missing(lag.failures)


def _print_progress(lag: GroupLag, with_clients: bool) -> None:
    clients = ["Client IP"] if with_clients else []
    layout = f"%-64s  %-32s  %-4s  %-20s  %-20s  {'%-20s ' if with_clients else ''}%-20s  %s"
    headings = ["Topic", "Broker Name", "QID", "Broker Offset", "Consumer Offset", *clients, "Diff", "LastTime"]
    rows = [
        (
            *(queue.queue.topic, queue.queue.broker_name, queue.queue.queue_id, queue.end, queue.offset),
            *([(queue.owner or "N/A").split("@")[0]] if with_clients else []),
            *(queue.lag, "N/A" if queue.last_consumed_ms is None else day_and_second(queue.last_consumed_ms)),
        )
        for queue in lag.queues
    ]
    print_table(layout, headings, rows)
    click.echo(f"\nConsume TPS: {lag.consume_tps:.2f}")
    click.echo(f"Diff Total: {'unknown' if lag.total is None else lag.total}")


async def _all_progress(admin: Admin) -> int:
    groups = sorted(
        await _groups_in_use(admin), key=lambda group: (-len(group.members.members), -(group.lag.total or 0))
    )
    print_table(
        "%-64s  %-6s  %-24s %-5s  %-14s  %-7s  %s",
        ["Group", "Count", "Version", "Type", "Model", "TPS", "Diff Total"],
        [
            (
                *(group.members.group, len(group.members.members)),
                next((version_name(member.version) for member in group.members.members), "OFFLINE"),
                *(_short(group.members.consume_type), group.members.message_model or ""),
                *(f"{group.lag.consume_tps:.0f}", group.lag.total if group.lag.queues else None),
            )
            for group in groups
        ],
    )
    return report_missing({failure.server: failure for group in groups for failure in group.lag.failures}.values())


async def _groups_in_use(admin: Admin) -> list[GroupSummary]:
    """Groups with members, offsets or a retry topic.

    Apache's tool lists only groups with a retry topic. A group's first member creates it, so the tool misses groups
    that consume without one.
    """
    topics = set(await admin.topics.names())
    return [
        group
        for group in await admin.groups.summaries()
        if group.members.members or group.lag.queues or f"{RETRY_PREFIX}{group.members.group}" in topics
    ]


def _short(consume_type: str | None) -> str:
    return {"CONSUME_ACTIVELY": "PULL", "CONSUME_PASSIVELY": "PUSH"}.get(consume_type or "", "")


@apache(
    "cloneGroupOffset",
    Option("s", "srcGroup", "source", "Group to copy from.", example="billing"),
    Option("d", "destGroup", "target", "Group to copy to.", example="billing-2"),
    TOPIC,
    Option("o", "offline", "offline", "Also topics that the source no longer subscribes to.", type=bool, default=False),
)
async def clone_group_offset(admin: Admin, source: str, target: str, topic: str, offline: bool) -> None:
    """Copy the offsets of a group to another group."""
    await admin.offsets.clone(source, target, topic, offline=offline)
    click.echo(f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]")


@apache(
    "resetOffsetByTime",
    Option("g", "group", "group", "Consumer group.", example="billing"),
    TOPIC,
    Option("s", "timestamp", "timestamp", "now, milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS.", example="now"),
    Option("f", "force", "force", "Also move forward.", type=bool, default=True),
    Option("c", "cplus", "cplus", "For C++ clients; ignored, they are notified like all others.", flag=True),
)
async def reset_offset_by_time(admin: Admin, group: str, topic: str, timestamp: str, force: bool, cplus: bool) -> None:
    """Move a group's offsets to a time, or after the newest message (now), without confirmation."""
    time_ms = _LATEST if timestamp in ("now", str(_LATEST)) else time_of(timestamp)
    to: Literal["latest"] | int = "latest" if time_ms == _LATEST else time_ms
    planned = (await admin.offsets.preview(group, topic, to)).moves
    moved = {move.queue: move.target for move in (await admin.offsets.reset(group, topic, to, force=force)).moves}
    click.echo(
        f"rollback consumer offset by specified group[{group}], topic[{topic}], force[{java(force)}], "
        f"timestamp(string)[{timestamp}], timestamp(long)[{time_ms}]"
    )
    print_table(
        "%-40s  %-40s  %-40s",
        ["brokerName", "queueId", "offset"],
        [(move.queue.broker_name, move.queue.queue_id, moved.get(move.queue, move.current)) for move in planned],
    )


# --- consumerStatus: the running info of a group's members ---

_TIMES = ("last_lock_timestamp", "last_pull_timestamp", "last_consume_timestamp")
_NOT_IN_FILE_NAME = re.compile(r"[^\w.@#:-]")
_HEAD = "%-64s  %-32s  %-4s  %-20s"
_OFFSET = "%-32s  %-32s  %-4s  %-20s"  # narrower than its heading, as in Apache's tool
_QUEUE = "%-64s  %-32s  %-4s  %s"
_RATES_HEAD = "%-64s  %14s %14s %14s %14s %18s %25s"
_RATES = "%-32s  %14.2f %14.2f %14.2f %14.2f %18.2f %25d"


@apache(
    "consumerStatus",
    Option("g", "consumerGroup", "group", "Consumer group.", example="billing"),
    Option("i", "clientId", "client_id", "Only this member, printed to stdout."),
    Option("s", "jstack", "stacks", "Also stack traces of its threads.", flag=True),
)
async def consumer_status(admin: Admin, group: str, client_id: str | None, stacks: bool) -> int:
    """Show the running info of a member; without -i, write that of each to a file, and compare subscriptions."""
    if client_id is not None:
        click.echo(report(await admin.clients.running_info(group, client_id, stacks=stacks)), nl=False)
        return 0
    members = (await admin.groups.members(group)).members
    infos = await admin.clients.running_infos(group, stacks=stacks)
    if not members and infos.is_complete:
        raise ClientError(f"group {group} is not online")
    _write_reports(members, infos.responses)
    _print_agreement(list(infos.responses.values()))
    return report_missing(infos.failures)


def _write_reports(members: tuple[Member, ...], infos: Mapping[str, ConsumerRunningInfo]) -> None:
    """Apache's tool writes the reports to a directory named after the time, in the current directory."""
    directory = Path(str(time.time_ns() // 1_000_000))
    directory.mkdir()
    click.echo(f"{'#Index':<10} {'#ClientId':<40} {'#Version':<20} #ConsumerRunningInfoFile")
    responding = [member for member in members if member.client_id in infos]
    for number, member in enumerate(responding, 1):
        # the id comes from the client: it must not point outside the directory
        file = directory / _NOT_IN_FILE_NAME.sub("_", member.client_id)
        file.write_text(report(infos[member.client_id]), encoding="utf-8")
        click.echo(f"{number:<10} {member.client_id:<40} {version_name(member.version):<20} {file}")


def _print_agreement(infos: list[ConsumerRunningInfo]) -> None:
    subscriptions = {tuple(sorted((sub.topic, sub.sub_string) for sub in info.subscription_set)) for info in infos}
    if len(subscriptions) > 1:
        click.echo("\n\nWARN: Different subscription in the same group of consumer!!!")
        return
    click.echo("\n\nSame subscription in the same group of consumer")
    queues = [queue for info in infos for queue in info.mq_table]
    click.echo(f"\nRebalance {'OK' if len(queues) == len(set(queues)) else 'Failed'}")


# --- the report of one member ---


def report(info: ConsumerRunningInfo) -> str:
    stacks = f"\n\n#Consumer jstack#\n{info.jstack}" if info.jstack else ""
    return "\n\n".join([_properties(info), _subscriptions(info), _offsets(info), _queues(info), _rates(info)]) + stacks


def _properties(info: ConsumerRunningInfo) -> str:
    return _section("Properties", [f"{name:<40}: {value}" for name, value in info.properties.items()])


def _subscriptions(info: ConsumerRunningInfo) -> str:
    ordered = sorted(info.subscription_set, key=lambda subscription: subscription.topic)
    return _section("Subscription", [_subscription(number, sub) for number, sub in enumerate(ordered, 1)])


def _subscription(number: int, subscription: Subscription) -> str:
    return (
        f"{number:03d} Topic: {subscription.topic:<40} ClassFilter: {java(subscription.class_filter_mode):<8} "
        f"SubExpression: {subscription.sub_string}"
    )


def _offsets(info: ConsumerRunningInfo) -> str:
    rows = [
        _OFFSET % (queue.topic, queue.broker_name, queue.queue_id, held.commit_offset)
        for queue, held in sorted(info.mq_table.items())
    ]
    return _section("Offset", [_HEAD % _headings("Consumer Offset"), *rows])


def _queues(info: ConsumerRunningInfo) -> str:
    rows = [
        _QUEUE % (queue.topic, queue.broker_name, queue.queue_id, _held(held))
        for queue, held in sorted(info.mq_table.items())
    ]
    return _section("MQ Detail", [_HEAD % _headings("ProcessQueueInfo"), *rows])


def _headings(last: str) -> tuple[str, str, str, str]:
    return "#Topic", "#Broker Name", "#QID", f"#{last}"


def _held(held: ProcessQueueInfo) -> str:
    values = {
        field.encode_name: digits_only(value) if field.name in _TIMES else java(value)
        for field in msgspec.structs.fields(held)
        for value in (getattr(held, field.name),)
    }
    return "ProcessQueueInfo [" + ", ".join(f"{name}={value}" for name, value in values.items()) + "]"


def _rates(info: ConsumerRunningInfo) -> str:
    names = ("Topic", "Pull RT", "Pull TPS", "Consume RT", "ConsumeOK TPS", "ConsumeFailed TPS")
    head = _RATES_HEAD % (*(f"#{name}" for name in names), "#ConsumeFailedMsgsInHour")
    rows = [
        _RATES
        % (
            *(topic, status.pull_rt, status.pull_tps, status.consume_rt),
            *(status.consume_ok_tps, status.consume_failed_tps, status.consume_failed_msgs),
        )
        for topic, status in sorted(info.status_table.items())
    ]
    return _section("RT&TPS", [head, *rows])


def _section(name: str, lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in (f"#Consumer {name}#", *lines))
