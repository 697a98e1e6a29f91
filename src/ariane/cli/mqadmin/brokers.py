"""mqadmin's commands for brokers, nameservers, the cluster and access control, in Apache's output format."""

import asyncio
import time
from collections.abc import Iterable

import click

from ariane.cli.common.admin import report_missing
from ariane.cli.mqadmin.commands import (
    BROKER,
    TARGET,
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

_KEY = Option("k", "key", "key", "Name of the setting.", example="fileReservedTime")
_VALUE = Option("v", "value", "value", "Value of the setting.", example="48")
_NAMESPACE = Option("s", "namespace", "namespace", "Namespace.", example="ORDER_TOPIC_CONFIG")
_BROKER_NAME = Option("b", "brokerName", "broker", "The broker's name.", example="broker-a")
_CLEAN = (BROKER, Option("c", "cluster", "cluster", "All brokers of this cluster."))


@apache("updateBrokerConfig", *TARGET, _KEY, _VALUE)
async def update_broker_config(admin: Admin, key: str, value: str, broker: str | None, cluster: str | None) -> None:
    """Change a setting of running brokers."""
    for target in await admin.brokers.set_config({key: value}, broker=broker, cluster=cluster):
        click.echo(f"update broker config success, {target.address}")


@apache("getBrokerConfig", *TARGET)
async def get_broker_config(admin: Admin, broker: str | None, cluster: str | None) -> int:
    """Show the settings of brokers."""
    configs = await admin.brokers.config(broker=broker, cluster=cluster)
    for source, table in configs.responses.items():
        click.echo(f"============{_role(source, configs.responses) if cluster else source.address}============")
        print_pairs(sorted(table.items()))
        click.echo("")
    return report_missing(configs.failures)


def _role(broker: Broker, others: Iterable[Broker]) -> str:
    if broker.is_master:
        return f"Master: {broker.address}"
    master = next((other.address for other in others if other.is_master and other.name == broker.name), UNKNOWN)
    return f"My Master: {master}=====Slave: {broker.address}"


@apache("brokerStatus", *TARGET)
async def broker_status(admin: Admin, broker: str | None, cluster: str | None) -> int:
    """Show the runtime information of brokers."""
    runtimes = await admin.cluster.runtime(broker=broker, cluster=cluster)
    for source, runtime in runtimes.some("reading the state of brokers").responses.items():
        prefix = f"{source.address:<24} " if cluster else ""
        for name, value in sorted(runtime.table.items()):
            click.echo(f"{prefix}{name:<32}: {value}")
    return report_missing(runtimes.failures)


@apache(
    "brokerConsumeStats",
    Option("b", "brokerAddr", "broker", "Address of the broker.", example="127.0.0.1:10911"),
    Option("t", "timeoutMillis", "timeout", "Ignored: each request has its own timeout.", type=int),
    Option("l", "level", "level", "Only queues with at least this lag.", type=int, default=0),
    Option("o", "order", "order", "Only ordered topics.", type=bool, default=False),
)
async def broker_consume_stats(admin: Admin, broker: str, timeout: int | None, level: int, order: bool) -> int:
    """Show the lag of all groups on one broker; `unknown` where a group has no offset."""
    name = await _broker_name(admin, broker)
    lags = [await admin.groups.lag(group) for group in await admin.groups.names()]
    ordered = await _ordered_topics(admin, broker) if order else None
    rows = [
        (
            *(item.queue.topic, lag.group, item.queue.broker_name, item.queue.queue_id),
            *(item.end, item.offset, item.lag),
            "N/A" if item.last_consumed_ms is None else day_and_second(item.last_consumed_ms),
        )
        for lag in lags
        for item in lag.queues
        if item.queue.broker_name == name
        and (item.lag is None or item.lag >= level)
        and (ordered is None or item.queue.topic in ordered)
    ]
    headings = ["Topic", "Group", "Broker Name", "QID", "Broker Offset", "Consumer Offset", "Diff", "LastTime"]
    print_table("%-64s  %-64s  %-32s  %-4s  %-20s  %-20s  %-20s  %s", headings, rows)
    diffs = [row[6] for row in rows]
    total = sum(diff for diff in diffs if diff is not None)
    click.echo(f"\nDiff Total: {total if None not in diffs else f'unknown, at least {total}'}")
    return report_missing({failure.server: failure for lag in lags for failure in lag.failures}.values())


async def _broker_name(admin: Admin, address: str) -> str:
    return next((broker.name for broker in await admin.cluster.brokers() if broker.address == address), address)


async def _ordered_topics(admin: Admin, broker: str) -> set[str]:
    names = await admin.topics.names()
    configs = [(await admin.topics.configs(name, broker=broker)).responses.values() for name in names]
    return {config.topic_name for of_topic in configs for config in of_topic if config.order}


@apache("cleanExpiredCQ", *_CLEAN)
async def clean_expired_queues(admin: Admin, broker: str | None, cluster: str | None) -> None:
    """Delete consume queues whose messages have all expired."""
    await admin.brokers.clean_expired_queues(broker=broker, cluster=cluster)
    click.echo("success")


@apache("cleanUnusedTopic", *_CLEAN)
async def clean_unused_topic(admin: Admin, broker: str | None, cluster: str | None) -> None:
    """Delete the consume queues of deleted topics."""
    await admin.brokers.clean_unused_topics(broker=broker, cluster=cluster)
    click.echo("success")


@apache("wipeWritePerm", _BROKER_NAME)
async def wipe_write_perm(admin: Admin, broker: str) -> None:
    """Stop all sends to a broker, so that it can be shut down."""
    for nameserver, topics in (await admin.cluster.wipe_write_permission(broker)).items():
        click.echo(f"wipe write perm of broker[{broker}] in name server[{nameserver}] OK, {topics}")


# --- nameservers ---


@apache("updateKvConfig", _NAMESPACE, _KEY, _VALUE)
async def update_kv_config(admin: Admin, namespace: str, key: str, value: str) -> None:
    """Set a key of the KV config on all nameservers."""
    await admin.nameservers.put(namespace, key, value)
    click.echo("create or update kv config to namespace success.")


@apache("deleteKvConfig", _NAMESPACE, _KEY)
async def delete_kv_config(admin: Admin, namespace: str, key: str) -> None:
    """Delete a key of the KV config on all nameservers."""
    await admin.nameservers.delete(namespace, key)
    click.echo("delete kv config from namespace success.")


@apache("getNamesrvConfig")
async def get_namesrv_config(admin: Admin) -> int:
    """Show the settings of nameservers."""
    configs = await admin.nameservers.config()
    for address, table in configs.responses.items():
        click.echo(f"============{address}============")
        print_pairs(sorted(table.items()))
    return report_missing(configs.failures)


@apache("updateNamesrvConfig", _KEY, _VALUE)
async def update_namesrv_config(admin: Admin, key: str, value: str) -> None:
    """Change a setting of Apache's nameservers. Ariane's refuse: this request once let anybody write any file."""
    await admin.nameservers.set_config({key: value})
    click.echo(f"update name server config success!{','.join(admin.nameservers.addresses)}\n{key} : {value}")


missing("startMonitoring", "use the metrics for Prometheus; see docs/metrics.md")
missing(
    "clusterRT",
    "use `ariane admin checkMsgSendRT`, or `make bench` in a clone",
    Option("a", "amount", "amount", "Messages of a round.", type=int),
    Option("s", "size", "size", "Bytes of a message.", type=int),
    Option("c", "cluster", "cluster", "The clusters."),
    Option("p", "printLog", "print_log", "As a log.", type=bool),
    Option("m", "machineRoom", "room", "The machine room."),
    Option("i", "interval", "interval", "Seconds between rounds.", type=int),
)


# --- the cluster ---

_HOUR_MS = 3_600_000


@apache(
    "clusterList",
    Option("m", "moreStats", "more", "Show the messages of today and yesterday instead.", flag=True),
    Option("i", "interval", "interval", "Repeat every N seconds, until Ctrl-C.", type=click.IntRange(1)),
)
async def cluster_list(admin: Admin, more: bool, interval: int | None) -> int:
    """Show the brokers and their state."""
    while True:
        brokers, runtimes = await admin.cluster.brokers(), await admin.cluster.runtime()
        rows = [(broker, runtimes.responses.get(broker, Runtime(table={}))) for broker in brokers]
        _print_counts(rows) if more else _print_rates(rows)
        status = report_missing(runtimes.failures)
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
                *(broker.cluster, broker.name, broker.broker_id, broker.address, runtime.version),
                *(_load(runtime, runtime.put_tps, "send"), _load(runtime, runtime.get_tps, "pull")),
                *(runtime.table.get("pageCacheLockTimeMills"), _hours(runtime)),
                _rounded(runtime.commit_log_disk_ratio, 4),
            )
            for broker, runtime in rows
        ],
    )


def _load(runtime: Runtime, tps: float | None, kind: str) -> str | None:
    """A rate, the number of queued requests, and how long the first of them has been waiting."""
    if tps is None:
        return None
    size = runtime.table.get(f"{kind}ThreadPoolQueueSize", UNKNOWN)
    wait_ms = runtime.table.get(f"{kind}ThreadPoolQueueHeadWaitTimeMills", UNKNOWN)
    return f"{tps:9.2f}({size},{wait_ms}ms)"


def _hours(runtime: Runtime) -> str | None:
    """Age of the oldest message; 0.00 if there are none."""
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
                *(broker.cluster, broker.name, _between(runtime, *names[:2]), _between(runtime, *gets[:2])),
                *(_between(runtime, *names[1:]), _between(runtime, *gets[1:])),
            )
            for broker, runtime in rows
        ],
    )


def _between(runtime: Runtime, begin: str, end: str) -> int | None:
    first, last = runtime.table.get(begin, ""), runtime.table.get(end, "")
    return int(last) - int(first) if first.isdecimal() and last.isdecimal() else None


def _rounded(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


# --- traffic ---


@apache(
    "statsAll",
    Option("a", "activeTopic", "active", "Only topics with traffic.", flag=True),
    Option("t", "topic", "topic", "Only this topic."),
)
async def stats_all(admin: Admin, active: bool, topic: str | None) -> None:
    """Show the rates and the last day's messages of each topic and group, without retry and dead letter topics."""
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
    """Per second, and of the last day. None if a broker does not respond; one that has no such counter refuses."""
    counters = await admin.cluster.stats(name, key)
    if any(not isinstance(failure.error, RequestFailed) for failure in counters.failures):
        return None, None
    stats = counters.responses.values()
    return f"{sum(stat.stats_minute.tps for stat in stats):.2f}", sum(stat.stats_day.sum for stat in stats)


# --- access control ---

_VERSIONS = "%-16s  %-22s  %-22s  %-20s  %-22s  %-22s"
_ACCESS_KEY = Option("a", "accessKey", "access_key", "Access key of the account.", example="operator")


@apache(
    "updateAclConfig",
    *TARGET,
    _ACCESS_KEY,
    Option("s", "secretKey", "secret_key", "Secret key of the account."),
    Option("w", "whiteRemoteAddress", "white_address", "Addresses that need no signature."),
    Option("i", "defaultTopicPerm", "default_topic_perm", "DENY, PUB, SUB or PUB|SUB."),
    Option("u", "defaultGroupPerm", "default_group_perm", "DENY, PUB, SUB or PUB|SUB."),
    Option("t", "topicPerms", "topic_perms", "orders=PUB|SUB,audit=SUB"),
    Option("g", "groupPerms", "group_perms", "billing=SUB,test=DENY"),
    Option("m", "admin", "is_admin", "Allow everything.", type=bool, default=False),
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
    """Create an account, or change the given settings of one."""
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
    for target in done:
        click.echo(f"create or update plain access config to {target.address} success.")


def _perms(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    pairs = [part.partition("=") for part in text.split(",") if part]
    if not all(name and perm for name, _, perm in pairs):
        raise click.UsageError(f"{text!r} is not of the form NAME=PERM,NAME=PERM", click.get_current_context())
    return {name: perm for name, _, perm in pairs}


@apache("deleteAccessConfig", *TARGET, _ACCESS_KEY)
async def delete_access_config(admin: Admin, access_key: str, broker: str | None, cluster: str | None) -> None:
    """Delete an account, without confirmation."""
    for target in await admin.accounts.delete(access_key, broker=broker, cluster=cluster):
        click.echo(f"delete plain access config account from {target.address} success.")
    click.echo(f"account's accesskey is:{access_key}")


@apache("clusterAclConfigVersion", *TARGET)
async def cluster_acl_config_version(admin: Admin, broker: str | None, cluster: str | None) -> int:
    """Show the version of the access rules on each broker."""
    files = await admin.accounts.file_versions(broker=broker, cluster=cluster)
    headings = ["Cluster Name", "Broker Name", "Broker Addr", "AclFilePath", "AclConfigVersionNum", "AclLastUpdateTime"]
    rows = [
        (source.cluster, source.name, source.address, file, version.counter, day_and_second(version.timestamp))
        for source, versions in files.responses.items()
        for file, version in versions.items()
    ]
    print_table(
        _VERSIONS, headings if cluster is not None else (), rows
    )  # Apache's tool prints no headings for one broker
    click.echo(f"get {'broker' if cluster is None else 'cluster'}'s plain access config version success.")
    return report_missing(files.failures)


@apache("getAccessConfigSubCommand", *TARGET)
async def get_access_config(admin: Admin, broker: str | None, cluster: str | None) -> int:
    """Show the accounts and white lists of brokers as JSON, without secrets."""
    response = await admin.accounts.rules(broker=broker, cluster=cluster)
    for source, rules in response.responses.items():
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
        print_json({"brokerAddr": source.address, "globalWhiteAddrs": rules.global_white_addrs, "accounts": accounts})
    return report_missing(response.failures)


@apache(
    "updateGlobalWhiteAddr",
    *TARGET,
    Option("g", "globalWhiteRemoteAddresses", "addresses", "Addresses, separated by commas.", example="10.0.0.*"),
)
async def update_global_white_addr(admin: Admin, addresses: str, broker: str | None, cluster: str | None) -> None:
    """Replace the list of addresses from which all requests are allowed."""
    done = await admin.accounts.set_white_list(filter(None, addresses.split(",")), broker=broker, cluster=cluster)
    for target in done:
        click.echo(f"update global white remote addresses to {target.address} success.")
