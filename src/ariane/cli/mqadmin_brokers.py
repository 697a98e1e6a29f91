"""mqadmin's commands for brokers and nameservers."""

from collections.abc import Iterable

import click

from ariane.cli.asking import tell_missing
from ariane.cli.mqadmin_shape import BROKER, PLACE, UNKNOWN, Option, apache, missing, print_pairs, print_table
from ariane.cli.mqadmin_words import day_and_second
from ariane.client.admin import Admin
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
        click.echo(f"============{_place(one, told.answers) if cluster else one.address}============")
        print_pairs(sorted(table.items()))
        click.echo("")
    return tell_missing(told.failures)


def _place(one: Broker, others: Iterable[Broker]) -> str:
    if one.is_master:
        return f"Master: {one.address}"
    master = next((other.address for other in others if other.is_master and other.name == one.name), UNKNOWN)
    return f"My Master: {master}=====Slave: {one.address}"


@apache("brokerStatus", *PLACE)
async def broker_status(admin: Admin, broker: str | None, cluster: str | None) -> int:
    """Show what brokers tell of themselves."""
    told = await admin.cluster.runtime(broker=broker, cluster=cluster)
    for one, runtime in told.some("reading the state of brokers").answers.items():
        place = f"{one.address:<24} " if cluster else ""
        for name, value in sorted(runtime.table.items()):
            click.echo(f"{place}{name:<32}: {value}")
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
