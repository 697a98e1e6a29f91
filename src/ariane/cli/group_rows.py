"""A consumer group as `ariane group` tells it."""

from collections.abc import Iterable, Mapping

import click
import msgspec

from ariane.cli.render import Form, Row, render
from ariane.client.admin import Admin
from ariane.client.admin.groups import GroupSummary
from ariane.client.admin.lag import GroupLag
from ariane.client.admin.members import GroupMembers
from ariane.client.admin.servers import Broker, Failure
from ariane.errors import ClientError
from ariane.model.group import GroupConfig
from ariane.store.annotate import time_text

LAG_COLUMNS = ("topic", "brokerName", "queueId", "brokerOffset", "consumerOffset", "lag", "lastConsumed")

_SYSTEM_PREFIX = "CID_RMQ_SYS_"
_BUILT_IN = (
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "__MONITOR_CONSUMER",
)  # fmt: skip
"""Groups that every broker has from the start, Apache's and ours."""
_TOOLS = ("ariane-sql", "ariane-spark", "ariane-spark-ledger", "ariane-redrive")
"""Groups under whose names our own tools read: brokers make them when they are used first."""


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    configs: Mapping[Broker, GroupConfig]
    members: GroupMembers
    failures: tuple[Failure, ...]


async def view_group(admin: Admin, name: str) -> GroupView:
    """ClientError when no broker has heard of it."""
    configs, members = await admin.groups.configs(name), await admin.groups.members(name)
    missing = {failure.server: failure for failure in (*configs.failures, *members.failures)}
    if not configs.answers and not members.is_online and not missing:
        raise _unknown(name)
    return GroupView(name=name, configs=configs.answers, members=members, failures=tuple(missing.values()))


async def check_known(admin: Admin, name: str) -> None:
    """A misspelt name must not look like a group that is not behind."""
    await view_group(admin, name)


def _unknown(name: str) -> ClientError:
    return ClientError(f"no broker knows group {name}: it has neither settings nor members; check its name")


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
        "topics": list(lag.by_topic) or [one.topic for one in members.subscriptions],
        "lag": lag.total if lag.queues else None,
        "consumeTps": round(lag.consume_tps, 3),
    }


def shown_group(view: GroupView) -> Row:
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
    how = f", {members.message_model}, {members.consume_type}" if members.is_online else ""
    click.echo(f"group {view.name}: {len(members.members)} members online{how}")
    for rows in (_setting_rows(view), _subscription_rows(members), _member_rows(members)):
        listed = list(rows)
        if listed:
            click.echo("")
            render(listed, Form.TABLE)


def _subscription_rows(members: GroupMembers) -> Iterable[Row]:
    for one in members.subscriptions:
        yield {"topic": one.topic, "expression": one.sub_string, "expressionType": one.expression_type}


def _member_rows(members: GroupMembers) -> Iterable[Row]:
    for one in members.members:
        yield {
            "clientId": one.client_id,
            "address": one.address,
            "language": one.language,
            "version": one.version,
            "brokers": list(one.brokers),
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
    for one in lag.queues:
        row: dict[str, object] = {
            "topic": one.queue.topic,
            "brokerName": one.queue.broker_name,
            "queueId": one.queue.queue_id,
            "brokerOffset": one.end,
            "consumerOffset": one.offset,
            "lag": one.lag,
            "lastConsumed": None if one.last_consumed_ms is None else time_text(one.last_consumed_ms),
            "lastConsumedTimestamp": one.last_consumed_ms,
        }
        yield row | {"owner": one.owner} if owners else row


def lag_summary(lag: GroupLag) -> str:
    if not lag.queues:
        return f"group {lag.group} has no offset in any topic yet"
    if lag.total is not None:
        return f"total lag: {lag.total:,}"
    unknown = sum(one.lag is None for one in lag.queues)
    where = [f"{unknown} of {len(lag.queues)} queues, where the group has no offset"] if unknown else []
    where += ["the brokers that did not answer"] if lag.failures else []
    return f"total lag: unknown; at least {lag.known_total:,}, without {' and '.join(where)}"
