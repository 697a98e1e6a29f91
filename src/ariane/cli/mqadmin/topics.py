"""mqadmin's commands for topics."""

from collections.abc import Mapping

import click
import msgspec

from ariane.cli.common.admin import report_missing
from ariane.cli.mqadmin.commands import BROKER, CLUSTER, PLACE, TOPIC, Option, apache, print_json, print_table
from ariane.cli.mqadmin.format import day_and_millisecond, topic_words
from ariane.client.admin import Admin
from ariane.client.consumer.allocation import AVERAGELY
from ariane.client.core.queue_bounds import readable_queues
from ariane.errors import ClientError, NoRoute
from ariane.model.ids import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ariane.model.topic import TopicConfig, TopicSysFlag

_PERM = "2 write, 4 read, 6 both."


@apache(
    "updateTopic",
    *PLACE,
    TOPIC,
    Option("r", "readQueueNums", "read_queues", "Queues to consume from.", type=int, default=8),
    Option("w", "writeQueueNums", "write_queues", "Queues to send to.", type=int, default=8),
    Option("p", "perm", "perm", _PERM, type=click.IntRange(0, 7), default=6),
    Option("o", "order", "order", "Whether it is for ordered messages.", type=bool, default=False),
    Option("u", "unit", "unit", "Whether it is a unit topic.", type=bool, default=False),
    Option("s", "hasUnitSub", "unit_sub", "Whether it has a unit subscription.", type=bool, default=False),
)
async def update_topic(
    admin: Admin,
    topic: str,
    read_queues: int,
    write_queues: int,
    perm: int,
    order: bool,
    unit: bool,
    unit_sub: bool,
    broker: str | None,
    cluster: str | None,
) -> None:
    """Create a topic, or make it as the options say."""
    flags = (TopicSysFlag.UNIT if unit else 0) | (TopicSysFlag.UNIT_SUBSCRIPTION if unit_sub else 0)
    config = TopicConfig(
        topic_name=topic,
        read_queue_nums=read_queues,
        write_queue_nums=write_queues,
        perm=perm,
        order=order,
        topic_sys_flag=int(flags),
    )
    done = await admin.topics.put(config, broker=broker, cluster=cluster)
    conf = await admin.topics.order_conf(topic) if order else None
    if broker is not None:
        _tell_order(conf, "broker")
    for one in done:
        click.echo(f"create topic to {one.address} success.")
    if cluster is not None:
        _tell_order(conf, "cluster")
    click.echo(topic_words(config))


def _tell_order(conf: Mapping[str, int] | None, place: str) -> None:
    """Without an end of the line, like Apache's tool: what comes next stands behind it."""
    if conf is not None:
        click.echo(f"set {place} orderConf. isOrder=true, orderConf=[{_order_text(conf)}]", nl=False)


@apache("deleteTopic", TOPIC, Option("c", "clusterName", "cluster", "The cluster.", example="DefaultCluster"))
async def delete_topic(admin: Admin, topic: str, cluster: str) -> None:
    """Delete a topic with its messages, at the brokers of a cluster and at the nameservers. Does not ask."""
    try:
        await admin.topics.delete(topic, cluster=cluster)
    except NoRoute:  # brokers say yes to a topic that they do not have, and scripts that clean up rely on it
        await admin.cluster.map()
    click.echo(f"delete topic [{topic}] from cluster [{cluster}] success.")
    click.echo(f"delete topic [{topic}] from NameServer success.")


@apache(
    "updateTopicPerm",
    BROKER,
    CLUSTER,
    TOPIC,
    Option("p", "perm", "perm", _PERM, example="6", type=click.IntRange(0, 7)),
)
async def update_topic_perm(admin: Admin, topic: str, perm: int, broker: str | None, cluster: str | None) -> None:
    """Change whether a topic may be read and written."""
    before = (await admin.topics.configs(topic, broker=broker, cluster=cluster)).responses
    if broker is not None and before and all(config.perm == perm for config in before.values()):
        click.echo("new perm equals to the old one!")
        return
    for one in await admin.topics.set_permission(topic, perm, broker=broker, cluster=cluster):
        click.echo(f"update topic perm from {before[one].perm} to {perm} in {one.address} success.")
        if broker is not None:
            click.echo(f"{topic_words(msgspec.structs.replace(before[one], perm=perm))}.")


@apache("topicRoute", TOPIC)
async def topic_route(admin: Admin, topic: str) -> None:
    """Show which brokers have a topic, as JSON."""
    print_json(_without_empty(msgspec.to_builtins(await admin.topics.route(topic), str_keys=True)))


def _without_empty(value: object) -> object:
    """Apache's JSON leaves out what is null."""
    if isinstance(value, list):
        return [_without_empty(one) for one in value]
    if isinstance(value, dict):
        return {name: _without_empty(one) for name, one in value.items() if one is not None}
    return value


@apache("topicStatus", TOPIC)
async def topic_status(admin: Admin, topic: str) -> int:
    """Show where each queue of a topic begins and ends."""
    stats = await admin.topics.stats(topic)
    print_table(
        "%-32s  %-4s  %-20s  %-20s    %s",
        ["Broker Name", "QID", "Min Offset", "Max Offset", "Last Updated"],
        [
            (
                one.queue.broker_name,
                one.queue.queue_id,
                one.min_offset,
                one.max_offset,
                "" if one.last_stored_ms is None else day_and_millisecond(one.last_stored_ms),
            )
            for one in stats.queues
        ],
    )
    return report_missing(stats.failures)


@apache("topicClusterList", TOPIC)
async def topic_cluster_list(admin: Admin, topic: str) -> None:
    """Show the clusters that have a topic."""
    for cluster in await admin.topics.clusters(topic):
        click.echo(cluster)


@apache("topicList", Option("c", "clusterModel", "with_clusters", "With clusters and consumer groups.", flag=True))
async def topic_list(admin: Admin, with_clusters: bool) -> None:
    """List every topic, those of the system too. With clusters: without retries and dead letters."""
    names = await admin.topics.names()
    if not with_clusters:
        click.echo("\n".join(names))
        return
    rows = []
    for name in (one for one in names if not one.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))):
        groups = await admin.topics.groups(name) or [""]
        rows += [(cluster, name, group) for cluster in await admin.topics.clusters(name) for group in groups]
    headings = ["Cluster Name", "Topic", "Consumer Group"]
    print_table("%-20s  %-64s  %-64s", headings, rows, head_layout="%-20s  %-48s  %-48s")


@apache(
    "updateOrderConf",
    TOPIC,
    Option("m", "method", "method", "What to do.", example="get", type=click.Choice(["get", "put", "delete"])),
    Option("v", "orderConf", "conf", "With put: broker-a:4;broker-b:4."),
)
async def update_order_conf(admin: Admin, topic: str, method: str, conf: str | None) -> None:
    """Read or change how many queues each broker keeps for an ordered topic."""
    if method == "get":
        found = await admin.topics.order_conf(topic)
        if found is None:
            raise ClientError(f"nothing is said of the order of {topic}")
        click.echo(f"get orderConf success. topic=[{topic}], orderConf=[{_order_text(found)}] ")
    elif method == "put":
        await admin.topics.set_order_conf(topic, _order_conf(conf))
        click.echo(f"update orderConf success. topic=[{topic}], orderConf=[{conf}]")
    else:
        await admin.topics.delete_order_conf(topic)
        click.echo(f"delete orderConf success. topic=[{topic}]")


def _order_text(queues: Mapping[str, int]) -> str:
    return ";".join(f"{broker}:{count}" for broker, count in queues.items())


def _order_conf(text: str | None) -> dict[str, int]:
    pairs = [part.rpartition(":") for part in (text or "").split(";") if part]
    if not pairs or not all(broker and queues.isdecimal() for broker, _, queues in pairs):
        raise click.UsageError("-v must be like broker-a:4;broker-b:4", click.get_current_context())
    return {broker: int(queues) for broker, _, queues in pairs}


@apache(
    "allocateMQ", TOPIC, Option("i", "ipList", "members", "Members, joined by commas.", example="10.0.0.1,10.0.0.2")
)
async def allocate_mq(admin: Admin, topic: str, members: str) -> None:
    """Show which queues each of these members would get, as JSON on one line."""
    queues = readable_queues(topic, await admin.topics.route(topic))
    names = [name for name in members.split(",") if name]
    shares = {name: msgspec.to_builtins(AVERAGELY.queues_of(name, queues, names)) for name in names}
    print_json({"result": shares}, indent=None)
