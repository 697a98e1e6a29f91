"""mqadmin's commands for brokers, nameservers and the cluster."""

import asyncio

import click

from ariane.cli.asking import tell_missing
from ariane.cli.mqadmin_shape import BROKER, PLACE, Option, apache, missing, print_columns, print_pairs
from ariane.client.admin import Admin
from ariane.client.admin.cluster import Runtime
from ariane.client.admin.servers import Broker

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
    for one, table in told.answers.items():
        click.echo(f"============{one.address}============")
        print_pairs(sorted(table.items()))
    return tell_missing(told.failures)


@apache("brokerStatus", *PLACE)
async def broker_status(admin: Admin, broker: str | None, cluster: str | None) -> int:
    """Show what brokers tell of themselves."""
    told = await admin.cluster.runtime(broker=broker, cluster=cluster)
    for one, runtime in told.some("reading the state of brokers").answers.items():
        if len(told.answers) > 1:
            click.echo(f"============{one.address}============")
        for name, value in sorted(runtime.table.items()):
            click.echo(f"{name:<32}: {value}")
    return tell_missing(told.failures)


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
        (one.queue.topic, lag.group, one.queue.broker_name, one.queue.queue_id, one.end, one.offset, one.lag)
        for lag in lags
        for one in lag.queues
        if one.queue.broker_name == name
        and (one.lag is None or one.lag >= level)
        and (ordered is None or one.queue.topic in ordered)
    ]
    headings = [("Topic", 64), ("Group", 64), ("Broker Name", 32), ("QID", 4), ("Broker Offset", 20)]
    print_columns([*headings, ("Consumer Offset", 20), ("Diff", 20)], rows)
    known = sum(row[6] for row in rows if row[6] is not None)
    click.echo(f"\nDiff Total: {known if all(row[6] is not None for row in rows) else f'unknown, at least {known}'}")
    return tell_missing({failure.server: failure for lag in lags for failure in lag.failures}.values())


async def _broker_name(admin: Admin, address: str) -> str:
    return next((one.name for one in await admin.cluster.brokers() if one.address == address), address)


async def _ordered_topics(admin: Admin, broker: str) -> set[str]:
    names = await admin.topics.names()
    configs = [(await admin.topics.configs(name, broker=broker)).answers.values() for name in names]
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


# --- the cluster ----------------------------------------------------------------------------------------------------


@apache(
    "clusterList",
    Option("m", "moreStats", "more", "Messages of today and yesterday instead.", flag=True),
    Option("i", "interval", "interval", "Again after so many seconds, until Ctrl-C.", type=click.IntRange(1)),
)
async def cluster_list(admin: Admin, more: bool, interval: int | None) -> int:
    """Show the brokers, and how each is doing."""
    while True:
        brokers, told = await admin.cluster.brokers(), await admin.cluster.runtime()
        rows = [(one, told.answers.get(one, Runtime(table={}))) for one in brokers]
        _print_counts(rows) if more else _print_rates(rows)
        status = tell_missing(told.failures)
        if interval is None:
            return status
        await asyncio.sleep(interval)
        click.echo("")


def _print_rates(rows: list[tuple[Broker, Runtime]]) -> None:
    headings = [("Cluster Name", 16), ("Broker Name", 22), ("BID", 4), ("Addr", 22), ("Version", 16)]
    print_columns(
        [*headings, ("InTPS", 12), ("OutTPS", 12), ("SPACE", 10)],
        [
            (
                *(one.cluster, one.name, one.broker_id, one.address, runtime.version),
                *(_rounded(runtime.put_tps), _rounded(runtime.get_tps), _rounded(runtime.commit_log_disk_ratio, 4)),
            )
            for one, runtime in rows
        ],
    )


def _print_counts(rows: list[tuple[Broker, Runtime]]) -> None:
    names = ("msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgPutTotalTodayNow")
    gets = ("msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning", "msgGetTotalTodayNow")
    headings = [("Cluster Name", 16), ("Broker Name", 32), ("InTotalYest", 14), ("OutTotalYest", 14)]
    print_columns(
        [*headings, ("InTotalToday", 14), ("OutTotalToday", 14)],
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


def _rounded(value: float | None, digits: int = 2) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


@apache(
    "statsAll",
    Option("a", "activeTopic", "active", "Only topics with traffic.", flag=True),
    Option("t", "topic", "topic", "Only this topic."),
)
async def stats_all(admin: Admin, active: bool, topic: str | None) -> None:
    """Show the rates and the last day's numbers of each topic and group."""
    rows: list[tuple[object, ...]] = []
    for name in [topic] if topic else await admin.topics.names():
        puts = await _counter(admin, "TOPIC_PUT_NUMS", name)
        groups = await admin.topics.groups(name)
        gets = {group: await _counter(admin, "GROUP_GET_NUMS", f"{name}@{group}") for group in groups}
        if active and not any(day for _, day in (puts, *gets.values())):
            continue
        lags = {group: (await admin.groups.lag(group, name)).total for group in groups}
        rows += [(name, group, lags[group], puts[0], gets[group][0], puts[1], gets[group][1]) for group in groups]
        rows += [] if groups else [(name, "", "", puts[0], "", puts[1], "NO_CONSUMER")]
    headings = [("Topic", 64), ("Consumer Group", 64), ("Accumulation", 12), ("InTPS", 11), ("OutTPS", 11)]
    print_columns([*headings, ("InMsg24Hour", 14), ("OutMsg24Hour", 14)], rows)


async def _counter(admin: Admin, name: str, key: str) -> tuple[str | None, int | None]:
    """A second's and a day's; None when no broker tells."""
    told = (await admin.cluster.stats(name, key)).answers.values()
    if not told:
        return None, None
    return f"{sum(one.stats_minute.tps for one in told):.2f}", sum(one.stats_day.sum for one in told)


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
    for address, table in told.answers.items():
        click.echo(f"============{address}============")
        print_pairs(sorted(table.items()))
    return tell_missing(told.failures)


@apache("updateNamesrvConfig", _KEY, _VALUE)
async def update_namesrv_config(admin: Admin, key: str, value: str) -> None:
    """Change a setting of Apache's nameservers. Ariane's refuse it: the request once let anybody write any file."""
    await admin.nameservers.set_config({key: value})
    click.echo(f"update name server config success!{','.join(admin.nameservers.addresses)}\n{key} : {value}")


missing("startMonitoring", "its place is taken by metrics for Prometheus; see docs/metrics.md")
missing(
    "clusterRT",
    "`ariane bench` measures, and `ariane admin checkMsgSendRT` sends to a topic",
    Option("a", "amount", "amount", "Messages of a round.", type=int),
    Option("s", "size", "size", "Bytes of a message.", type=int),
    Option("c", "cluster", "cluster", "The clusters."),
    Option("p", "printLog", "print_log", "As a log.", type=bool),
    Option("m", "machineRoom", "room", "The machine room."),
    Option("i", "interval", "interval", "Seconds between rounds.", type=int),
)
