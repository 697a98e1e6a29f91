"""`ariane topic`: list, create, change, delete and inspect topics."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import click
import msgspec

from ariane.cli.common.admin import broker_options, broker_rows, confirm, report_missing, run_admin, yes_option
from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import OutputFormat, Row, output_option, render
from ariane.cli.tree import topic
from ariane.client.admin import Admin
from ariane.client.admin.requests import Broker, Failure
from ariane.client.admin.topics import TopicStats
from ariane.errors import ClientError
from ariane.model.ids import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ariane.model.route import TopicRoute
from ariane.model.topic import Permission, TopicConfig
from ariane.store.offline.annotate import time_text

TopicKind = Literal["topic", "retry", "dead letter", "system"]

STATS_COLUMNS = ("brokerName", "queueId", "minOffset", "maxOffset", "messages", "lastStored")

_PERMISSIONS = {"rw": 6, "r": 4, "w": 2, "none": 0}


class TopicView(msgspec.Struct, frozen=True, kw_only=True):
    """What the brokers report about a topic."""

    name: str
    configs: Mapping[Broker, TopicConfig]
    stats: TopicStats
    groups: list[str]
    system: list[str]
    failures: tuple[Failure, ...]

    @property
    def messages(self) -> int | None:
        return self.stats.count

    def messages_at(self, broker: Broker) -> int | None:
        """None when that broker did not respond."""
        queues = [stats for stats in self.stats.queues if stats.queue.broker_name == broker.name]
        return sum(stats.count for stats in queues) if queues or self.stats.is_complete else None


async def view_topic(admin: Admin, name: str) -> TopicView:
    """NoRoute when there is no such topic."""
    route = await admin.topics.route(name)
    stats, configs = await admin.topics.stats(name), await admin.topics.configs(name)
    routed = {data.broker_name for data in route.broker_datas}
    missing = {failure.server: failure for failure in (*stats.failures, *configs.failures)}
    return TopicView(
        name=name,
        configs={broker: config for broker, config in configs.responses.items() if broker.name in routed},
        stats=stats,
        groups=await admin.topics.groups(name),
        system=await admin.topics.system_names(),
        failures=tuple(missing.values()),
    )


def kind_of(name: str, system: set[str]) -> TopicKind:
    if name.startswith(RETRY_PREFIX):
        return "retry"
    if name.startswith(DEAD_LETTER_PREFIX):
        return "dead letter"
    return "system" if name in system else "topic"


def permission(text: str) -> int:
    return _PERMISSIONS[text]


def permission_text(perm: int) -> str:
    """As in --perm."""
    letters = ("r" if perm & Permission.READ else "") + ("w" if perm & Permission.WRITE else "")
    return letters or "none"


def list_rows(kinds: Mapping[str, TopicKind]) -> Iterable[Row]:
    return [{"topic": name, "kind": kind} for name, kind in kinds.items()]


def long_rows(views: Iterable[TopicView], kinds: Mapping[str, TopicKind]) -> Iterable[Row]:
    for view in views:
        configs = list(view.configs.values())
        yield {
            "topic": view.name,
            "kind": kinds[view.name],
            "brokers": [broker.name for broker in view.configs],
            "readQueueNums": sum(config.read_queue_nums for config in configs),
            "writeQueueNums": sum(config.write_queue_nums for config in configs),
            "perm": sorted({permission_text(config.perm) for config in configs}),
            "messages": view.messages,
            "groups": len(view.groups),
        }


def show_rows(view: TopicView) -> Iterable[Row]:
    for broker, config in view.configs.items():
        yield {
            "topic": view.name,
            "cluster": broker.cluster,
            "brokerName": broker.name,
            "address": broker.address,
            "readQueueNums": config.read_queue_nums,
            "writeQueueNums": config.write_queue_nums,
            "perm": permission_text(config.perm),
            "order": config.order,
            "messages": view.messages_at(broker),
            "groups": view.groups,
        }


def route_rows(route: TopicRoute) -> Iterable[Row]:
    queues_by_broker = {queues.broker_name: queues for queues in route.queue_datas}
    for data in sorted(route.broker_datas, key=lambda data: data.broker_name):
        queues = queues_by_broker.get(data.broker_name)
        yield {
            "cluster": data.cluster,
            "brokerName": data.broker_name,
            "addresses": {str(broker_id): address for broker_id, address in sorted(data.broker_addrs.items())},
            "readQueueNums": None if queues is None else queues.read_queue_nums,
            "writeQueueNums": None if queues is None else queues.write_queue_nums,
            "perm": None if queues is None else permission_text(queues.perm),
            "orderTopicConf": route.order_topic_conf,
        }


def stats_rows(stats: TopicStats) -> Iterable[Row]:
    for queue in stats.queues:
        yield {
            "brokerName": queue.queue.broker_name,
            "queueId": queue.queue.queue_id,
            "minOffset": queue.min_offset,
            "maxOffset": queue.max_offset,
            "messages": queue.count,
            "lastStored": None if queue.last_stored_ms is None else time_text(queue.last_stored_ms),
            "lastStoredTimestamp": queue.last_stored_ms,
        }


# --- commands ---

_QUEUES = 8  # as mqadmin's updateTopic
_QUEUE_COUNT = click.IntRange(1, 65_535)
_PERMISSION_CHOICE = click.Choice(["rw", "r", "w", "none"])


@topic.command("list")
@click.option("-a", "--all", "everything", is_flag=True, help="Also list retry, dead letter and system topics.")
@click.option("-l", "--long", "is_long", is_flag=True, help="Also show queues, permission and number of messages.")
@click.option("--cluster", metavar="NAME", help="Only topics of this cluster.")
@connected
@output_option()
def list_topics(
    everything: bool, is_long: bool, cluster: str | None, connection: Connection, output: OutputFormat
) -> int:
    """List the topics.

    \b
    Examples:
      ariane topic list
      ariane topic list --all --long -o csv
    """

    async def work(admin: Admin) -> tuple[dict[str, TopicKind], list[TopicView]]:
        system = set(await admin.topics.system_names())
        kinds = {name: kind_of(name, system) for name in await admin.topics.names(cluster=cluster)}
        shown = {name: kind for name, kind in kinds.items() if everything or kind == "topic"}
        return kinds, [await view_topic(admin, name) for name in shown] if is_long else []

    kinds, views = run_admin(connection, work)
    shown = {name: kind for name, kind in kinds.items() if everything or kind == "topic"}
    render(long_rows(views, kinds) if is_long else list_rows(shown), output)
    if len(shown) < len(kinds):
        hidden = len(kinds) - len(shown)
        click.echo(f"{hidden} retry, dead letter and system topics are not shown: --all shows them", err=True)
    return report_missing(failure for view in views for failure in view.failures)


@topic.command("show", short_help="Show settings, messages and groups of a topic.")
@click.argument("name", metavar="TOPIC")
@connected
@output_option()
def show_topic(name: str, connection: Connection, output: OutputFormat) -> int:
    """Show a topic's settings on each broker, its number of messages, and the groups that consume it.

    \b
    Examples:
      ariane topic show orders
      ariane topic show orders -o json
    """
    view = run_admin(connection, lambda admin: view_topic(admin, name))
    render(show_rows(view), output)
    return report_missing(view.failures)


@topic.command("create")
@click.argument("name", metavar="TOPIC")
@click.option("--read-queues", type=_QUEUE_COUNT, default=_QUEUES, show_default=True, help="Queues to consume from.")
@click.option("--write-queues", type=_QUEUE_COUNT, default=_QUEUES, show_default=True, help="Queues to send to.")
@click.option("--order", is_flag=True, help="Keep the list of queues while a broker is down, for ordered messages.")
@click.option("--perm", type=_PERMISSION_CHOICE, default="rw", show_default=True, help="Read and write permission.")
@click.option("--if-missing", is_flag=True, help="Succeed and change nothing if the topic exists.")
@broker_options
@connected
@output_option()
def create_topic(
    name: str, perm: str, if_missing: bool, connection: Connection, output: OutputFormat, **options: Any
) -> int | None:
    """Create a topic on all brokers, or on those selected. Fails if the topic exists.

    Returns when the nameserver knows the topic, so that the next send finds it.

    \b
    Examples:
      ariane topic create orders
      ariane topic create orders --read-queues 4 --write-queues 4 --order
      ariane topic create audit --broker broker-a --if-missing
    """

    async def work(admin: Admin) -> list[dict[str, object]] | None:
        where = {"cluster": options["cluster"], "broker": options["broker"]}
        if if_missing and (await admin.topics.configs(name, **where)).responses:
            return None
        return broker_rows(await admin.topics.create(name, perm=permission(perm), **options))

    created = run_admin(connection, work)
    if created is None:
        click.echo(f"topic {name} exists already", err=True)
        return 0
    render([{"topic": name, **row} for row in created], output)
    return None


@topic.command("update", short_help="Change settings of a topic.")
@click.argument("name", metavar="TOPIC")
@click.option("--read-queues", type=_QUEUE_COUNT, help="Queues to consume from.")
@click.option("--write-queues", type=_QUEUE_COUNT, help="Queues to send to.")
@click.option(
    "--order/--no-order", default=None, help="Keep the list of queues while a broker is down, for ordered messages."
)
@click.option("--perm", type=_PERMISSION_CHOICE, help="Read and write permission.")
@broker_options
@connected
@output_option()
def update_topic(name: str, perm: str | None, connection: Connection, output: OutputFormat, **options: Any) -> None:
    """Change the given settings of a topic, on all its brokers or on those selected. Others stay as they are.

    To reduce the number of queues, first lower --write-queues, let the consumers finish, then lower --read-queues.

    \b
    Examples:
      ariane topic update orders --write-queues 4
      ariane topic update orders --perm r --broker broker-a
    """
    changes = options | {"perm": None if perm is None else permission(perm)}
    if all(changes[key] is None for key in ("read_queues", "write_queues", "order", "perm")):
        raise click.UsageError("nothing to change: give at least one setting", click.get_current_context())
    done = run_admin(connection, lambda admin: admin.topics.update(name, **changes))
    render([{"topic": name, **row} for row in broker_rows(done)], output)


@topic.command("delete")
@click.argument("name", metavar="TOPIC")
@click.option("--cluster", metavar="NAME", help="Only on the brokers of this cluster.")
@yes_option
@connected
@output_option()
def delete_topic(name: str, cluster: str | None, yes: bool, connection: Connection, output: OutputFormat) -> None:
    """Delete a topic, its messages, and the offsets of its groups.

    \b
    Examples:
      ariane topic delete orders
      ariane topic delete orders --yes
    """
    view = run_admin(connection, lambda admin: view_topic(admin, name))
    if kind_of(name, set(view.system)) == "system":
        raise ClientError(f"{name} is a system topic and cannot be deleted")
    count = "an unknown number of" if view.messages is None else f"{view.messages:,}"
    groups = f", consumed by {', '.join(view.groups)}" if view.groups else ""
    confirm(f"Delete {name} with {count} messages{groups}?", yes=yes)
    done = run_admin(connection, lambda admin: admin.topics.delete(name, cluster=cluster))
    render([{"topic": name, **row} for row in broker_rows(done)], output)


@topic.command("route")
@click.argument("name", metavar="TOPIC")
@connected
@output_option()
def route_of_topic(name: str, connection: Connection, output: OutputFormat) -> None:
    """Show which brokers have a topic, as the nameserver sees it.

    \b
    Examples:
      ariane topic route orders
      ariane topic route orders -o json
    """
    render(route_rows(run_admin(connection, lambda admin: admin.topics.route(name))), output)


@topic.command("stats")
@click.argument("name", metavar="TOPIC")
@connected
@output_option()
def stats_of_topic(name: str, connection: Connection, output: OutputFormat) -> int:
    """Show the first and last offset of each queue of a topic.

    \b
    Examples:
      ariane topic stats orders
      ariane topic stats orders -o jsonl
    """
    stats = run_admin(connection, lambda admin: admin.topics.stats(name))
    render(stats_rows(stats), output, STATS_COLUMNS)
    return report_missing(stats.failures)
