"""mqadmin's commands for consumer groups and connected clients."""

import click
import msgspec

from ariane.cli.asking import tell_missing
from ariane.cli.group_rows import view_group
from ariane.cli.mqadmin_shape import GROUP, PLACE, TOPIC, Option, apache, moment_of, print_columns, print_json
from ariane.client.admin import Admin
from ariane.client.admin.lag import GroupLag
from ariane.client.admin.resets import To
from ariane.errors import ClientError
from ariane.model.group import GroupConfig
from ariane.store.annotate import time_text

_CONSUMER_GROUP = Option("g", "consumerGroup", "group", "The consumer group.", example="billing")


@apache(
    "updateSubGroup",
    *PLACE,
    GROUP,
    Option("s", "consumeEnable", "consume_enable", "Whether it may consume.", type=bool, default=True),
    Option("m", "consumeFromMinEnable", "consume_from_min_enable", "Whether from the oldest.", type=bool, default=True),
    Option("d", "consumeBroadcastEnable", "consume_broadcast_enable", "May it broadcast.", type=bool, default=True),
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


def _camel(settings: dict[str, bool | int]) -> dict[str, bool | int]:
    names = {field.name: field.encode_name for field in msgspec.structs.fields(GroupConfig)}
    return {names[name]: value for name, value in settings.items()}


@apache("deleteSubGroup", *PLACE, GROUP)
async def delete_sub_group(admin: Admin, group: str, broker: str | None, cluster: str | None) -> None:
    """Delete a group's settings with its retries and its dead letters. Does not ask."""
    for one in await admin.groups.delete(group, topics=True, broker=broker, cluster=cluster):
        click.echo(f"delete subscription group [{group}] from broker [{one.address}] success.")


@apache("consumerConnection", _CONSUMER_GROUP)
async def consumer_connection(admin: Admin, group: str) -> int:
    """Show who is connected as a consumer of a group, and what the group subscribes to."""
    view = await view_group(admin, group)
    members = view.members
    print_columns(
        [("ClientId", 36), ("ClientAddr", 22), ("Language", 10), ("Version", 20)],
        [(one.client_id, one.address, one.language or "", one.version) for one in members.members],
    )
    click.echo("\nBelow is subscription:")
    print_columns(
        [("Topic", 20), ("SubExpression", 20)], [(one.topic, one.sub_string) for one in members.subscriptions]
    )
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
    print_columns(
        [("ClientId", 36), ("ClientAddr", 22), ("Language", 10), ("Version", 20)],
        [(one.client_id, one.client_addr, one.language or "", one.version) for one in found.values()],
    )
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
    clients = [("Client IP", 20)] if with_clients else []
    headings = [("Topic", 32), ("Broker Name", 32), ("QID", 4), ("Broker Offset", 20), ("Consumer Offset", 20)]
    rows = [
        (
            *(one.queue.topic, one.queue.broker_name, one.queue.queue_id, one.end, one.offset),
            *([(one.owner or "N/A").split("@")[0]] if with_clients else []),
            *(one.lag, "N/A" if one.last_consumed_ms is None else time_text(one.last_consumed_ms)),
        )
        for one in lag.queues
    ]
    print_columns([*headings, *clients, ("Diff", 20), ("LastTime", 20)], rows)
    click.echo(f"\nConsume TPS: {lag.consume_tps:.2f}")
    click.echo(f"Diff Total: {'unknown' if lag.total is None else lag.total}")


async def _all_progress(admin: Admin) -> int:
    found = await admin.groups.summaries()
    print_columns(
        [("Group", 32), ("Count", 6), ("Version", 24), ("Type", 5), ("Model", 14), ("TPS", 7), ("Diff Total", 12)],
        [
            (
                *(
                    one.members.group,
                    len(one.members.members),
                    next((m.version for m in one.members.members), "OFFLINE"),
                ),
                *(_short(one.members.consume_type), one.members.message_model or ""),
                *(f"{one.lag.consume_tps:.0f}", one.lag.total if one.lag.queues else None),
            )
            for one in found
        ],
    )
    return tell_missing({failure.server: failure for one in found for failure in one.lag.failures}.values())


def _short(consume_type: str | None) -> str:
    return {"CONSUME_ACTIVELY": "PULL", "CONSUME_PASSIVELY": "PUSH"}.get(consume_type or "", "")


@apache(
    "consumerStatus",
    _CONSUMER_GROUP,
    Option("i", "clientId", "client_id", "Only this member."),
    Option("s", "jstack", "stacks", "Also its threads.", flag=True),
)
async def consumer_status(admin: Admin, group: str, client_id: str | None, stacks: bool) -> int:
    """Show what the members of a group tell of themselves, as JSON by client id."""
    if client_id is not None:
        info = await admin.clients.running_info(group, client_id, stacks=stacks)
        print_json({client_id: _plain(info)})
        return 0
    told = await admin.clients.running_infos(group, stacks=stacks)
    print_json({client: _plain(info) for client, info in told.answers.items()})
    if not told.answers and told.is_complete:
        raise ClientError(f"group {group} is not online")
    return tell_missing(told.failures)


def _plain(info: msgspec.Struct) -> object:
    """Queues are keys of one of the tables, which JSON cannot have: they are told as text."""
    plain = {name: getattr(info, name) for name in info.__struct_fields__}
    return msgspec.to_builtins({name: _text_keys(value) for name, value in plain.items()}, str_keys=True)


def _text_keys(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return {
        key if isinstance(key, str) else f"{key.topic}@{key.broker_name}:{key.queue_id}": one
        for key, one in value.items()
    }


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
    plan = await admin.offsets.reset(group, topic, _moment(moment), force=force)
    click.echo(
        f"rollback consumer offset by specified group[{group}], topic[{topic}], force[{force}], timestamp[{moment}]"
    )
    print_columns(
        [("brokerName", 40), ("queueId", 40), ("offset", 40)],
        [(move.queue.broker_name, move.queue.queue_id, move.target) for move in plan.moves],
    )


def _moment(text: str) -> To:
    return "latest" if text in ("now", "-1") else moment_of(text)
