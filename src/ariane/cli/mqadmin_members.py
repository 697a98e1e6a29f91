"""mqadmin's consumerStatus: what the members of a group tell of themselves, as Apache's tool lays it out."""

import re
import time
from collections.abc import Mapping
from pathlib import Path

import click
import msgspec

from ariane.cli.asking import tell_missing
from ariane.cli.mqadmin_shape import Option, apache
from ariane.cli.mqadmin_words import digits_only, java, version_name
from ariane.client.admin import Admin
from ariane.client.admin.members import Member
from ariane.errors import ClientError
from ariane.model.group import Subscription
from ariane.wire.requests.connections import ConsumerRunningInfo, ProcessQueueInfo

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
    _write_reports(members, told.answers)
    _print_agreement(list(told.answers.values()))
    return tell_missing(told.failures)


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
