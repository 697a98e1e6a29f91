"""Command groups. The modules of a group are imported only when one of its commands runs, so that --help stays fast."""

from importlib import import_module
from inspect import cleandoc
from typing import Any

import click
from click.core import ParameterSource

from ariane.cli.cluster.command import cluster as cluster_brokers
from ariane.cli.servers.command import broker as broker_server


class LazyGroup(click.Group):
    """Its commands register themselves with `@group.command()` when `modules` are imported."""

    def __init__(self, name: str, *modules: str, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self._modules = modules

    def list_commands(self, context: click.Context) -> list[str]:
        self._load()
        return list(self.commands)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        self._load()
        return super().get_command(context, name)

    def _load(self) -> None:
        for module in self._modules:
            import_module(module)


topic = LazyGroup(
    "topic",
    "ariane.cli.topic",
    short_help="Topics: list, create, change, delete, inspect.",
    help="""List, create, change, delete and inspect topics.

    \b
    Examples:
      ariane topic list
      ariane topic create orders --read-queues 8 --write-queues 8
      ariane topic stats orders -o json
    """,
)

group = LazyGroup(
    "group",
    "ariane.cli.group.command",
    "ariane.cli.group.offsets",
    short_help="Consumer groups: members, lag, offsets.",
    help="""Inspect consumer groups: members, lag and offsets. Create, change, delete and move them.

    \b
    Examples:
      ariane group list
      ariane group lag billing -o json
      ariane group seek billing orders --to -1h
    """,
)

msg = LazyGroup(
    "msg",
    "ariane.cli.msg.command",
    "ariane.cli.msg.explain",
    short_help="Messages: find, trace, explain, resend.",
    help="""Find messages by id, key, queue or time, and see who consumed them.

    \b
    Examples:
      ariane msg find orders --key order-1001
      ariane msg explain order-1001 --topic orders
      ariane msg trace 7F0000010E6C4F6B5E2D1A3B00000000
    """,
)

dlq = LazyGroup(
    "dlq",
    "ariane.cli.dlq",
    short_help="Dead letters: list, show, send again.",
    help="""Inspect and resend dead letters: messages that a group failed to consume in all its retries.

    \b
    Examples:
      ariane dlq list
      ariane dlq show billing
      ariane dlq redrive billing --yes
    """,
)

pipeline = LazyGroup(
    "pipeline",
    "ariane.cli.pipeline.command",
    short_help="Data pipelines on Spark: run, check, copy.",
    help="""Run data pipelines on Spark: from topics, logs and files, by SQL and Python, to topics, files and tables.

    \b
    Examples:
      ariane pipeline list
      ariane pipeline run stats
      ariane pipeline show orders > my.yaml
    """,
)

acl = LazyGroup(
    "acl",
    "ariane.cli.acl",
    short_help="Access control: the file of accounts.",
    help="""Make the file of accounts for servers with access control.

    \b
    Examples:
      ariane acl init
      ariane acl init /etc/ariane/plain_acl.yml
    """,
)

admin = LazyGroup(
    "admin",
    "ariane.cli.mqadmin.topics",
    "ariane.cli.mqadmin.groups",
    "ariane.cli.mqadmin.brokers",
    "ariane.cli.mqadmin.messages",
    "ariane.cli.mqadmin.replication",
    subcommand_metavar="NAME [OPTIONS]",
    short_help="The commands of Apache's mqadmin, under their own names.",
    help="""The commands of Apache RocketMQ's mqadmin 4.7.1, and `haStatus` of 5.x, under their own names and letters.

    The program `mqadmin`, installed together with `ariane`, runs the same commands, so scripts need no change.

    \b
    Examples:
      ariane admin updateTopic -n 127.0.0.1:9876 -c DefaultCluster -t orders -r 8 -w 8
      ariane admin consumerProgress -n 127.0.0.1:9876 -g billing
      mqadmin clusterList -n 127.0.0.1:9876
    """,
)


def _itself_or_command(itself: click.Command) -> dict[str, Any]:
    """For a group that without a subcommand is a command. The options of that are errors before a subcommand."""

    def run(**options: Any) -> Any:
        context = click.get_current_context()
        if context.invoked_subcommand is None:
            return context.invoke(itself, **options)
        for parameter in context.command.params:
            if parameter.name and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
                name, option = context.invoked_subcommand, parameter.opts[0]
                raise click.UsageError(f"{option} is an option of '{name}': write it after '{name}'", context)
        return None

    return {
        "callback": run,
        "params": itself.params,
        "invoke_without_command": True,
        "subcommand_metavar": "[COMMAND ...]",
    }


cluster = LazyGroup(
    "cluster",
    "ariane.cli.cluster.replicas",
    **_itself_or_command(cluster_brokers),
    short_help="Show the brokers and their state; masters and slaves.",
    help="\n".join(
        (
            cleandoc(cluster_brokers.help or ""),
            "  ariane cluster replicas",
        )
    ),
)

broker = LazyGroup(
    "broker",
    "ariane.cli.cluster.brokers",
    **_itself_or_command(broker_server),
    short_help="Run a broker, or inspect running ones.",
    help="\n".join(
        (
            cleandoc(broker_server.help or ""),
            "  ariane broker list -n 127.0.0.1:9876",
            "",
            "With a COMMAND it starts no broker, but queries the running ones.",
        )
    ),
)
