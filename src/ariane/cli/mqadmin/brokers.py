"""mqadmin's commands for brokers and nameservers."""

import asyncio
import time
from collections.abc import Iterable

import click

from ariane.cli.common.admin import report_missing
from ariane.cli.mqadmin.commands import (
    BROKER,
    PLACE,
    UNKNOWN,
    Option,
    apache,
    missing,
    print_json,
    print_pairs,
    print_table,
)
from ariane.cli.mqadmin.format import day_and_second
from ariane.client.admin import Admin
from ariane.client.admin.cluster import Runtime
from ariane.client.admin.requests import Broker
from ariane.errors import RequestFailed
from ariane.model.ids import DEAD_LETTER_PREFIX, RETRY_PREFIX

_KEY = Option("k", "key", "key", "Its name.", example="fileReservedTime")
_VALUE = Option("v", "value", "value", "Its value.", example="48")
_NAMESPACE = Option("s", "namespace", "namespace", "The namespace.", example="ORDER_TOPIC_CONFIG")
_BROKER_NAME = Option("b", "brokerName", "broker", "The broker's name.", example="broker-a")
_CLEAN = (BROKER, Option("c", "cluster", "cluster", "Every broker of this cluster."))


@apache("updateBrokerConfig", *PLACE, _KEY, _VALUE)
async def update_broker_config(admin: Admin, key: str, value: str, broker: str | None, cluster: str | None) -> None:
    """Change a setting of brokers that run."""
    for one in await admin.brokers.set_config({key: value}, broker=broker, cluster=cluster):
        click.echo(f"update broker config success, {one.address}")


@apache("getBrokerConfig", *PLACE)
async def get_broker_config(admin: Admin, broker: str | None, cluster: str | None) -> int:
    """Show the settings of brokers."""
    told = await admin.brokers.config(broker=broker, cluster=cluster)
    for one, table in told.responses.items():
        click.echo(f"============{_place(one, told.responses) if cluster else one.address}============")
        print_pairs(sorted(table.items()))
        click.echo("")
    return report_missing(told.failures)


def _place(one: Broker, others: Iterable[Broker]) -> str:
    if one.is_master:
        return f"Master: {one.address}"
    master = next((other.address for other in others if other.is_master and other.name == one.name), UNKNOWN)
    return f"My Master: {master}=====Slave: {one.address}"


@apache("brokerStatus", *PLACE)
async def broker_status(admin: Admin, broker: str | None, cluster: str | None) -> int:
    """Show what brokers tell of themselves."""
    told = await admin.cluster.runtime(broker=broker, cluster=cluster)
    for one, runtime in told.some("reading the state of brokers").responses.items():
        place = f"{one.address:<24} " if cluster else ""
        for name, value in sorted(runtime.table.items()):
            click.echo(f"{place}{name:<32}: {value}")
    return report_missing(told.failures)


@apache(
    "brokerConsumeStats",
    Option("b", "brokerAddr", "broker", "The broker.", example="127.0.0.1:10911"),
    Option("t", "timeoutMillis", "timeout", "Has no effect: every question has its own limit.", type=int),
    Option("l", "level", "level", "Only queues with at least this lag.", type=int, default=0),
    Option("o", "order", "order", "Only ordered topics.", type=bool, default=False),
)
async def broker_consume_stats(admin: Admin, broker: str, timeout: int | None, level: int, order: bool) -> int:
    """Show how far behind every group is at one broker. Where a group has no offset, `unknown` stands."""
    name = await _broker_name(admin, broker)
    lags = [await admin.groups.lag(group) for group in await admin.groups.names()]
    ordered = await _ordered_topics(admin, broker) if order else None
    rows = [
        (
            *(one.queue.topic, lag.group, one.queue.broker_name, one.queue.queue_id, one.end, one.offset, one.lag),
            "N/A" if one.last_consumed_ms is None else day_and_second(one.last_consumed_ms),
        )
        for lag in lags
        for one in lag.queues
        if one.queue.broker_name == name
        and (one.lag is None or one.lag >= level)
        and (ordered is None or one.queue.topic in ordered)
    ]
    headings = ["Topic", "Group", "Broker Name", "QID", "Broker Offset", "Consumer Offset", "Diff", "LastTime"]
    print_table("%-64s  %-64s  %-32s  %-4s  %-20s  %-20s  %-20s  %s", headings, rows)
    known = sum(row[6] for row in rows if row[6] is not None)
    click.echo(f"\nDiff Total: {known if all(row[6] is not None for row in rows) else f'unknown, at least {known}'}")
    return report_missing({failure.server: failure for lag in lags for failure in lag.failures}.values())


async def _broker_name(admin: Admin, address: str) -> str:
    return next((one.name for one in await admin.cluster.brokers() if one.address == address), address)


async def _ordered_topics(admin: Admin, broker: str) -> set[str]:
    names = await admin.topics.names()
    configs = [(await admin.topics.configs(name, broker=broker)).responses.values() for name in names]
    return {config.topic_name for found in configs for config in found if config.order}


@apache("cleanExpiredCQ", *_CLEAN)
async def clean_expired_queues(admin: Admin, broker: str | None, cluster: str | None) -> None:
    """Remove queues whose messages have all gone from the log."""
    await admin.brokers.clean_expired_queues(broker=broker, cluster=cluster)
    click.echo("success")


@apache("cleanUnusedTopic", *_CLEAN)
async def clean_unused_topic(admin: Admin, broker: str | None, cluster: str | None) -> None:
    """Remove the queues of topics that are no more."""
    await admin.brokers.clean_unused_topics(broker=broker, cluster=cluster)
    click.echo("success")


@apache("wipeWritePerm", _BROKER_NAME)
async def wipe_write_perm(admin: Admin, broker: str) -> None:
    """Take a broker out of all sends, so that it can be stopped."""
    for nameserver, topics in (await admin.cluster.wipe_write_permission(broker)).items():
        click.echo(f"wipe write perm of broker[{broker}] in name server[{nameserver}] OK, {topics}")


# --- nameservers ----------------------------------------------------------------------------------------------------


@apache("updateKvConfig", _NAMESPACE, _KEY, _VALUE)
async def update_kv_config(admin: Admin, namespace: str, key: str, value: str) -> None:
    """Put a pair at every nameserver."""
    await admin.nameservers.put(namespace, key, value)
    click.echo("create or update kv config to namespace success.")


@apache("deleteKvConfig", _NAMESPACE, _KEY)
async def delete_kv_config(admin: Admin, namespace: str, key: str) -> None:
    """Delete a pair at every nameserver."""
    await admin.nameservers.delete(namespace, key)
    click.echo("delete kv config from namespace success.")


@apache("getNamesrvConfig")
async def get_namesrv_config(admin: Admin) -> int:
    """Show the settings of nameservers."""
    told = await admin.nameservers.config()
    for address, table in told.responses.items():
        click.echo(f"============{address}============")
        print_pairs(sorted(table.items()))
    return report_missing(told.failures)


@apache("updateNamesrvConfig", _KEY, _VALUE)
async def update_namesrv_config(admin: Admin, key: str, value: str) -> None:
    """Change a setting of Apache's nameservers. Ariane's refuse it: the request once let anybody write any file."""
    await admin.nameservers.set_config({key: value})
    click.echo(f"update name server config success!{','.join(admin.nameservers.addresses)}\n{key} : {value}")


missing("startMonitoring", "its place is taken by metrics for Prometheus; see docs/metrics.md")
missing(
    "clusterRT",
    "`make bench` in a clone measures, and `ariane admin checkMsgSendRT` sends to a topic",
    Option("a", "amount", "amount", "Messages of a round.", type=int),
    Option("s", "size", "size", "Bytes of a message.", type=int),
    Option("c", "cluster", "cluster", "The clusters."),
    Option("p", "printLog", "print_log", "As a log.", type=bool),
    Option("m", "machineRoom", "room", "The machine room."),
    Option("i", "interval", "interval", "Seconds between rounds.", type=int),
)


# --- mqadmin_cluster ---
#
# mqadmin's commands for the cluster as a whole: its brokers, and the traffic of its topics.

_HOUR_MS = 3_600_000


@apache(
    "clusterList",
    Option("m", "moreStats", "more", "Messages of today and yesterday instead.", flag=True),
    Option("i", "interval", "interval", "Again after so many seconds, until Ctrl-C.", type=click.IntRange(1)),
)
async def cluster_list(admin: Admin, more: bool, interval: int | None) -> int:
    """Show the brokers, and how each is doing."""
    while True:
        brokers, told = await admin.cluster.brokers(), await admin.cluster.runtime()
        rows = [(one, told.responses.get(one, Runtime(table={}))) for one in brokers]
        _print_counts(rows) if more else _print_rates(rows)
        status = report_missing(told.failures)
        if interval is None:
            return status
        await asyncio.sleep(interval)
        click.echo("")


def _print_rates(rows: list[tuple[Broker, Runtime]]) -> None:
    headings = ["Cluster Name", "Broker Name", "BID", "Addr", "Version", "InTPS(LOAD)", "OutTPS(LOAD)"]
    print_table(
        "%-16s  %-22s  %-4s  %-22s %-16s %19s %19s %10s %5s %6s",
        [*headings, "PCWait(ms)", "Hour", "SPACE"],
        [
            (
                *(one.cluster, one.name, one.broker_id, one.address, runtime.version),
                *(_load(runtime, runtime.put_tps, "send"), _load(runtime, runtime.get_tps, "pull")),
                *(runtime.table.get("pageCacheLockTimeMills"), _hours(runtime)),
                _rounded(runtime.commit_log_disk_ratio, 4),
            )
            for one, runtime in rows
        ],
    )


def _load(runtime: Runtime, tps: float | None, kind: str) -> str | None:
    """A rate, and behind it how many requests wait for their turn, and for how long the first of them has."""
    if tps is None:
        return None
    size = runtime.table.get(f"{kind}ThreadPoolQueueSize", UNKNOWN)
    wait_ms = runtime.table.get(f"{kind}ThreadPoolQueueHeadWaitTimeMills", UNKNOWN)
    return f"{tps:9.2f}({size},{wait_ms}ms)"


def _hours(runtime: Runtime) -> str | None:
    """How far back the messages reach; 0.00 when there are none."""
    earliest_ms = runtime.earliest_message_ms
    if earliest_ms is None:
        return "0.00" if runtime.table else None
    return f"{(time.time_ns() // 1_000_000 - earliest_ms) / _HOUR_MS:2.2f}"


def _print_counts(rows: list[tuple[Broker, Runtime]]) -> None:
    names = ("msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgPutTotalTodayNow")
    gets = ("msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning", "msgGetTotalTodayNow")
    print_table(
        "%-16s  %-32s %14s %14s %14s %14s",
        ["Cluster Name", "Broker Name", "InTotalYest", "OutTotalYest", "InTotalToday", "OutTotalToday"],
        [
            (
                *(one.cluster, one.name, _between(runtime, *names[:2]), _between(runtime, *gets[:2])),
                *(_between(runtime, *names[1:]), _between(runtime, *gets[1:])),
            )
            for one, runtime in rows
        ],
    )


def _between(runtime: Runtime, begin: str, end: str) -> int | None:
    first, last = runtime.table.get(begin, ""), runtime.table.get(end, "")
    return int(last) - int(first) if first.isdecimal() and last.isdecimal() else None


def _rounded(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


# --- traffic --------------------------------------------------------------------------------------------------------


@apache(
    "statsAll",
    Option("a", "activeTopic", "active", "Only topics with traffic.", flag=True),
    Option("t", "topic", "topic", "Only this topic."),
)
async def stats_all(admin: Admin, active: bool, topic: str | None) -> None:
    """Show the rates and the last day's numbers of each topic and group, but not of retries and dead letters."""
    rows: list[tuple[object, ...]] = []
    names = [name for name in await admin.topics.names() if not name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))]
    for name in [topic] if topic else names:
        puts = await _counter(admin, "TOPIC_PUT_NUMS", name)
        groups = await admin.topics.groups(name)
        gets = {group: await _counter(admin, "GROUP_GET_NUMS", f"{name}@{group}") for group in groups}
        if active and not any(day for _, day in (puts, *gets.values())):
            continue
        lags = {group: (await admin.groups.lag(group, name)).total for group in groups}
        rows += [(name, group, lags[group], puts[0], gets[group][0], puts[1], gets[group][1]) for group in groups]
        rows += [] if groups else [(name, "", 0, puts[0], "", puts[1], "NO_CONSUMER")]
    headings = ["Topic", "Consumer Group", "Accumulation", "InTPS", "OutTPS", "InMsg24Hour", "OutMsg24Hour"]
    print_table("%-64s  %-64s %12s %11s %11s %14s %14s", headings, rows)


async def _counter(admin: Admin, name: str, key: str) -> tuple[str | None, int | None]:
    """A second's and a day's. A broker that has counted nothing refuses to tell; None when one cannot be asked."""
    told = await admin.cluster.stats(name, key)
    if any(not isinstance(failure.error, RequestFailed) for failure in told.failures):
        return None, None
    responses = told.responses.values()
    return f"{sum(one.stats_minute.tps for one in responses):.2f}", sum(one.stats_day.sum for one in responses)


# --- mqadmin_accounts ---
#
# mqadmin's commands for access control.

_VERSIONS = "%-16s  %-22s  %-22s  %-20s  %-22s  %-22s"
_ACCESS_KEY = Option("a", "accessKey", "access_key", "The account.", example="operator")


@apache(
    "updateAclConfig",
    *PLACE,
    _ACCESS_KEY,
    Option("s", "secretKey", "secret_key", "Its secret."),
    Option("w", "whiteRemoteAddress", "white_address", "Where it needs no signature."),
    Option("i", "defaultTopicPerm", "default_topic_perm", "DENY, PUB, SUB or PUB|SUB."),
    Option("u", "defaultGroupPerm", "default_group_perm", "DENY, PUB, SUB or PUB|SUB."),
    Option("t", "topicPerms", "topic_perms", "orders=PUB|SUB,audit=SUB"),
    Option("g", "groupPerms", "group_perms", "billing=SUB,test=DENY"),
    Option("m", "admin", "is_admin", "Whether it may do everything.", type=bool, default=False),
)
async def update_acl_config(
    admin: Admin,
    access_key: str,
    secret_key: str | None,
    white_address: str | None,
    default_topic_perm: str | None,
    default_group_perm: str | None,
    topic_perms: str | None,
    group_perms: str | None,
    is_admin: bool,
    broker: str | None,
    cluster: str | None,
) -> None:
    """Make an account, or change what is named."""
    done = await admin.accounts.put(
        access_key,
        secret_key=secret_key,
        admin=is_admin,
        white_address=white_address,
        default_topic_perm=default_topic_perm,
        default_group_perm=default_group_perm,
        topic_perms=_perms(topic_perms),
        group_perms=_perms(group_perms),
        broker=broker,
        cluster=cluster,
    )
    for one in done:
        click.echo(f"create or update plain access config to {one.address} success.")


def _perms(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    pairs = [part.partition("=") for part in text.split(",") if part]
    if not all(name and perm for name, _, perm in pairs):
        raise click.UsageError(f"{text!r} is no NAME=PERM,NAME=PERM", click.get_current_context())
    return {name: perm for name, _, perm in pairs}


@apache("deleteAccessConfig", *PLACE, _ACCESS_KEY)
async def delete_access_config(admin: Admin, access_key: str, broker: str | None, cluster: str | None) -> None:
    """Delete an account. Does not ask."""
    for one in await admin.accounts.delete(access_key, broker=broker, cluster=cluster):
        click.echo(f"delete plain access config account from {one.address} success.")
    click.echo(f"account's accesskey is:{access_key}")


@apache("clusterAclConfigVersion", *PLACE)
async def cluster_acl_config_version(admin: Admin, broker: str | None, cluster: str | None) -> int:
    """Show which edition of its rules each broker has."""
    told = await admin.accounts.file_versions(broker=broker, cluster=cluster)
    headings = ["Cluster Name", "Broker Name", "Broker Addr", "AclFilePath", "AclConfigVersionNum", "AclLastUpdateTime"]
    rows = [
        (one.cluster, one.name, one.address, file, version.counter, day_and_second(version.timestamp))
        for one, versions in told.responses.items()
        for file, version in versions.items()
    ]
    print_table(_VERSIONS, headings if cluster is not None else (), rows)  # Apache's has no headings for one broker
    click.echo(f"get {'broker' if cluster is None else 'cluster'}'s plain access config version success.")
    return report_missing(told.failures)


@apache("getAccessConfigSubCommand", *PLACE)
async def get_access_config(admin: Admin, broker: str | None, cluster: str | None) -> int:
    """Show the accounts and white lists of brokers, as JSON, without secrets."""
    told = await admin.accounts.rules(broker=broker, cluster=cluster)
    for one, rules in told.responses.items():
        accounts = [
            {
                "accessKey": account.access_key,
                "whiteRemoteAddress": account.white_remote_address,
                "admin": account.admin,
                "defaultTopicPerm": account.default_topic_perm,
                "defaultGroupPerm": account.default_group_perm,
                "topicPerms": account.topic_perms,
                "groupPerms": account.group_perms,
            }
            for account in rules.plain_access_configs
        ]
        print_json({"brokerAddr": one.address, "globalWhiteAddrs": rules.global_white_addrs, "accounts": accounts})
    return report_missing(told.failures)


@apache(
    "updateGlobalWhiteAddr",
    *PLACE,
    Option("g", "globalWhiteRemoteAddresses", "addresses", "Joined by commas.", example="10.0.0.*"),
)
async def update_global_white_addr(admin: Admin, addresses: str, broker: str | None, cluster: str | None) -> None:
    """Replace the list of addresses from which everybody may do everything."""
    done = await admin.accounts.set_white_list(filter(None, addresses.split(",")), broker=broker, cluster=cluster)
    for one in done:
        click.echo(f"update global white remote addresses to {one.address} success.")
