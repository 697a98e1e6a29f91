"""mqadmin's commands for topics, in Apache's output format."""

from collections.abc import Mapping

import click
import msgspec

from ariane.cli.common.admin import report_missing
from ariane.cli.mqadmin.commands import BROKER, CLUSTER, TARGET, TOPIC, Option, apache, print_json, print_table
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
    *TARGET,
    TOPIC,
    Option("r", "readQueueNums", "read_queues", "Queues to consume from.", type=int, default=8),
    Option("w", "writeQueueNums", "write_queues", "Queues to send to.", type=int, default=8),
    Option("p", "perm", "perm", _PERM, type=click.IntRange(0, 7), default=6),
    Option("o", "order", "order", "For ordered messages.", type=bool, default=False),
    Option("u", "unit", "unit", "Unit topic.", type=bool, default=False),
    Option("s", "hasUnitSub", "unit_sub", "With a unit subscription.", type=bool, default=False),
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
    """Create a topic, or replace its settings."""
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
        _print_order(conf, "broker")
    for target in done:
        click.echo(f"create topic to {target.address} success.")
    if cluster is not None:
        _print_order(conf, "cluster")
    click.echo(topic_words(config))


def _print_order(conf: Mapping[str, int] | None, scope: str) -> None:
    """Without a line end, as in Apache's tool: the next output follows on the same line."""
    if conf is not None:
        click.echo(f"set {scope} orderConf. isOrder=true, orderConf=[{_order_text(conf)}]", nl=False)


@apache("deleteTopic", TOPIC, Option("c", "clusterName", "cluster", "Name of the cluster.", example="DefaultCluster"))
async def delete_topic(admin: Admin, topic: str, cluster: str) -> None:
    """Delete a topic with its messages, on the brokers of a cluster and on the nameservers, without confirmation."""
    try:
        await admin.topics.delete(topic, cluster=cluster)
    except NoRoute:  # brokers accept a topic that they do not have, and clean-up scripts rely on it
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
    """Change the read and write permission of a topic."""
    before = (await admin.topics.configs(topic, broker=broker, cluster=cluster)).responses
    if broker is not None and before and all(config.perm == perm for config in before.values()):
        click.echo("new perm equals to the old one!")
        return
    for target in await admin.topics.set_permission(topic, perm, broker=broker, cluster=cluster):
        click.echo(f"update topic perm from {before[target].perm} to {perm} in {target.address} success.")
        if broker is not None:
            click.echo(f"{topic_words(msgspec.structs.replace(before[target], perm=perm))}.")


@apache("topicRoute", TOPIC)
async def topic_route(admin: Admin, topic: str) -> None:
    """Show the route of a topic as JSON: which brokers have it."""
    print_json(_without_empty(msgspec.to_builtins(await admin.topics.route(topic), str_keys=True)))


def _without_empty(value: object) -> object:
    """Apache's JSON omits null values."""
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_empty(item) for name, item in value.items() if item is not None}
    return value


@apache("topicStatus", TOPIC)
async def topic_status(admin: Admin, topic: str) -> int:
    """Show the first and last offset of each queue of a topic."""
    stats = await admin.topics.stats(topic)
    print_table(
        "%-32s  %-4s  %-20s  %-20s    %s",
        ["Broker Name", "QID", "Min Offset", "Max Offset", "Last Updated"],
        [
            (
                queue.queue.broker_name,
                queue.queue.queue_id,
                queue.min_offset,
                queue.max_offset,
                "" if queue.last_stored_ms is None else day_and_millisecond(queue.last_stored_ms),
            )
            for queue in stats.queues
        ],
    )
    return report_missing(stats.failures)


@apache("topicClusterList", TOPIC)
async def topic_cluster_list(admin: Admin, topic: str) -> None:
    """Show the clusters that have a topic."""
    for cluster in await admin.topics.clusters(topic):
        click.echo(cluster)


@apache("topicList", Option("c", "clusterModel", "with_clusters", "Also show clusters and consumer groups.", flag=True))
async def topic_list(admin: Admin, with_clusters: bool) -> None:
    """List all topics, including system topics. With -c: without retry and dead letter topics."""
    names = await admin.topics.names()
    if not with_clusters:
        click.echo("\n".join(names))
        return
    rows = []
    for name in (name for name in names if not name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))):
        groups = await admin.topics.groups(name) or [""]
        rows += [(cluster, name, group) for cluster in await admin.topics.clusters(name) for group in groups]
    headings = ["Cluster Name", "Topic", "Consumer Group"]
    print_table("%-20s  %-64s  %-64s", headings, rows, head_layout="%-20s  %-48s  %-48s")


@apache(
    "updateOrderConf",
    TOPIC,
    Option("m", "method", "method", "Operation.", example="get", type=click.Choice(["get", "put", "delete"])),
    Option("v", "orderConf", "conf", "With put: broker-a:4;broker-b:4."),
)
async def update_order_conf(admin: Admin, topic: str, method: str, conf: str | None) -> None:
    """Show or change how many queues each broker has for an ordered topic."""
    if method == "get":
        current = await admin.topics.order_conf(topic)
        if current is None:
            raise ClientError(f"topic {topic} has no orderConf")
        click.echo(f"get orderConf success. topic=[{topic}], orderConf=[{_order_text(current)}] ")
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
        raise click.UsageError("-v must have the form broker-a:4;broker-b:4", click.get_current_context())
    return {broker: int(queues) for broker, _, queues in pairs}


@apache(
    "allocateMQ", TOPIC, Option("i", "ipList", "members", "Members, separated by commas.", example="10.0.0.1,10.0.0.2")
)
async def allocate_mq(admin: Admin, topic: str, members: str) -> None:
    """Show which queues each of the members would get, as JSON on one line."""
    queues = readable_queues(topic, await admin.topics.route(topic))
    names = [name for name in members.split(",") if name]
    shares = {name: msgspec.to_builtins(AVERAGELY.queues_of(name, queues, names)) for name in names}
    print_json({"result": shares}, indent=None)
