"""mqadmin's commands for consumer groups and connected clients."""

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import click
import msgspec

from ariane.cli.common.admin import report_missing
from ariane.cli.group.command import view_group
from ariane.cli.mqadmin.commands import GROUP, PLACE, TOPIC, Option, apache, moment_of, print_table
from ariane.cli.mqadmin.format import day_and_second, digits_only, group_words, java, version_name
from ariane.client.admin import Admin
from ariane.client.admin.groups import GroupSummary
from ariane.client.admin.lag import GroupLag
from ariane.client.admin.members import Member
from ariane.errors import ClientError
from ariane.model.group import GroupConfig, Subscription
from ariane.model.ids import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ariane.wire.requests.clients import ConsumerRunningInfo, ProcessQueueInfo

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
    return report_missing(view.failures)


@apache(
    "producerConnection",
    Option("g", "producerGroup", "group", "The producer group.", example="shop"),
    TOPIC,
)
async def producer_connection(admin: Admin, group: str, topic: str) -> int:
    """Show who is connected as a producer of a group."""
    told = await admin.clients.producers(group, topic=topic)
    found = {one.client_id: one for connections in told.responses.values() for one in connections}
    for number, one in enumerate(found.values(), 1):
        language, version = one.language or "", version_name(one.version)
        click.echo(f"{number:04d}  {one.client_id:<32} {one.client_addr:<22} {language:<8} {version}")
    if not found and told.is_complete:
        raise ClientError(f"no producer of group {group} is online")
    return report_missing(told.failures)


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
    return report_missing(lag.failures)


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
    return report_missing({failure.server: failure for one in found for failure in one.lag.failures}.values())


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


# --- mqadmin_members ---
#
# mqadmin's consumerStatus: what the members of a group tell of themselves, as Apache's tool lays it out.

_TIMES = ("last_lock_timestamp", "last_pull_timestamp", "last_consume_timestamp")
_NO_NAME = re.compile(r"[^\w.@#:-]")
_HEAD = "%-64s  %-32s  %-4s  %-20s"
_OFFSET = "%-32s  %-32s  %-4s  %-20s"  # narrower than its heading, with Apache, too
_QUEUE = "%-64s  %-32s  %-4s  %s"
_RATES_HEAD = "%-64s  %14s %14s %14s %14s %18s %25s"
_RATES = "%-32s  %14.2f %14.2f %14.2f %14.2f %18.2f %25d"


@apache(
    "consumerStatus",
    Option("g", "consumerGroup", "group", "The consumer group.", example="billing"),
    Option("i", "clientId", "client_id", "Only this member, on the screen."),
    Option("s", "jstack", "stacks", "Also its threads.", flag=True),
)
async def consumer_status(admin: Admin, group: str, client_id: str | None, stacks: bool) -> int:
    """Show what a member tells of itself; without -i, write that of each to a file, and say whether they agree."""
    if client_id is not None:
        click.echo(report(await admin.clients.running_info(group, client_id, stacks=stacks)), nl=False)
        return 0
    members = (await admin.groups.members(group)).members
    told = await admin.clients.running_infos(group, stacks=stacks)
    if not members and told.is_complete:
        raise ClientError(f"group {group} is not online")
    _write_reports(members, told.responses)
    _print_agreement(list(told.responses.values()))
    return report_missing(told.failures)


def _write_reports(members: tuple[Member, ...], infos: Mapping[str, ConsumerRunningInfo]) -> None:
    """Apache's tool puts the reports into a directory named after the time, where it is called."""
    directory = Path(str(time.time_ns() // 1_000_000))
    directory.mkdir()
    click.echo(f"{'#Index':<10} {'#ClientId':<40} {'#Version':<20} #ConsumerRunningInfoFile")
    told = [one for one in members if one.client_id in infos]
    for number, member in enumerate(told, 1):
        # the id is the client's own word: it must not name a place elsewhere
        file = directory / _NO_NAME.sub("_", member.client_id)
        file.write_text(report(infos[member.client_id]), encoding="utf-8")
        click.echo(f"{number:<10} {member.client_id:<40} {version_name(member.version):<20} {file}")


def _print_agreement(infos: list[ConsumerRunningInfo]) -> None:
    wanted = {tuple(sorted((one.topic, one.sub_string) for one in info.subscription_set)) for info in infos}
    if len(wanted) > 1:
        click.echo("\n\nWARN: Different subscription in the same group of consumer!!!")
        return
    click.echo("\n\nSame subscription in the same group of consumer")
    queues = [queue for info in infos for queue in info.mq_table]
    click.echo(f"\nRebalance {'OK' if len(queues) == len(set(queues)) else 'Failed'}")


# --- the report of one member ---------------------------------------------------------------------------------------


def report(info: ConsumerRunningInfo) -> str:
    stacks = f"\n\n#Consumer jstack#\n{info.jstack}" if info.jstack else ""
    return "\n\n".join([_properties(info), _subscriptions(info), _offsets(info), _queues(info), _rates(info)]) + stacks


def _properties(info: ConsumerRunningInfo) -> str:
    return _section("Properties", [f"{name:<40}: {value}" for name, value in info.properties.items()])


def _subscriptions(info: ConsumerRunningInfo) -> str:
    ordered = sorted(info.subscription_set, key=lambda one: one.topic)
    return _section("Subscription", [_subscription(number, one) for number, one in enumerate(ordered, 1)])


def _subscription(number: int, one: Subscription) -> str:
    return (
        f"{number:03d} Topic: {one.topic:<40} ClassFilter: {java(one.class_filter_mode):<8} "
        f"SubExpression: {one.sub_string}"
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
    head = _RATES_HEAD % (*(f"#{one}" for one in names), "#ConsumeFailedMsgsInHour")
    rows = [
        _RATES
        % (
            *(topic, one.pull_rt, one.pull_tps, one.consume_rt),
            *(one.consume_ok_tps, one.consume_failed_tps, one.consume_failed_msgs),
        )
        for topic, one in sorted(info.status_table.items())
    ]
    return _section("RT&TPS", [head, *rows])


def _section(name: str, lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in (f"#Consumer {name}#", *lines))
