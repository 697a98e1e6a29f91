"""Shared code of the mqadmin commands: options by letter, help, and tables in Apache's format."""

import json
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import click

from ariane.cli.common.admin import run_admin
from ariane.cli.common.connection import find_connection
from ariane.cli.common.parameters import parse_time
from ariane.cli.mqadmin import with_tools_account
from ariane.cli.tree import admin as admin_group
from ariane.client.admin import Admin
from ariane.errors import ClientError

Work: TypeAlias = Callable[..., Awaitable[int | None]]


@dataclass(frozen=True, slots=True)
class Option:
    """One option: `-t`, `--topic`. A `flag` takes no value."""

    letter: str
    long: str
    name: str
    help: str
    example: str | None = None
    """Value for the example in the help; required options have one."""
    type: Any = str
    default: Any = None
    flag: bool = False

    def decorate(self, command: Callable[..., Any]) -> Callable[..., Any]:
        more: dict[str, Any] = {"is_flag": True} if self.flag else {"type": self.type}
        if self.default is not None:  # click treats default=None as a value
            more["default"] = self.default
        option = click.option(
            f"-{self.letter}",
            f"--{self.long}",
            self.name,
            required=self.example is not None,
            help=self.help,
            show_default=self.default is not None,
            **more,
        )
        return option(command)


NAMESRV = Option(
    "n", "namesrvAddr", "namesrv", "Nameservers; default: $NAMESRV_ADDR, a running `ariane up`, this machine."
)
TOPIC = Option("t", "topic", "topic", "Topic.", example="orders")
GROUP = Option("g", "groupName", "group", "Consumer group.", example="billing")
BROKER = Option("b", "brokerAddr", "broker", "Address of the broker, HOST:PORT.")
CLUSTER = Option("c", "clusterName", "cluster", "All brokers of this cluster.")
TARGET = (BROKER, CLUSTER)
"""A command with both options requires exactly one of them."""


def apache(name: str, *options: Option) -> Callable[[Work], Work]:
    """Adds a command under mqadmin's name. The docstring is its help; the function prints, and may return a status."""

    def add(work: Work) -> Work:
        def run(namesrv: str | None, **values: Any) -> int | None:
            if set(TARGET) <= set(options) and (values["broker"] is None) == (values["cluster"] is None):
                raise click.UsageError("give either -b or -c", click.get_current_context())
            connection = find_connection(namesrv, os.environ.get("ARIANE_PROFILE"), with_tools_account(os.environ))

            async def with_admin(admin: Admin) -> int | None:
                return await work(admin, **values)

            return run_admin(connection, with_admin)

        _add(name, options, run, work.__doc__ or "")
        return work

    return add


def missing(name: str, instead: str, *options: Option) -> None:
    """A command of mqadmin that Ariane does not support: it fails with this message, whatever its options."""

    def run(namesrv: str | None, **values: Any) -> int | None:
        raise ClientError(f"mqadmin's {name} is not supported: {instead}")

    _add(name, options, run, f"Not supported: {instead}.")
    MISSING[name] = instead


MISSING: dict[str, str] = {}


def _add(name: str, options: Sequence[Option], run: Callable[..., Any], doc: str) -> None:
    for option in reversed((*options, NAMESRV)):
        run = option.decorate(run)
    target = " -c DefaultCluster" if set(TARGET) <= set(options) else ""
    required = "".join(f" -{option.letter} {option.example}" for option in options if option.example is not None)
    example = f"\b\nExamples:\n  ariane admin {name} -n 127.0.0.1:9876{target}{required}"
    admin_group.command(name, help=f"{doc}\n\n{example}")(run)


# --- times ---


def time_of(text: str) -> int:
    """Milliseconds since 1970, or Apache's own format: a `#` for the blank, a colon before the milliseconds."""
    day, _, clock = text.partition("#")
    if clock.count(":") == 3:
        clock = ".".join(clock.rsplit(":", 1))
    try:
        return parse_time(f"{day}T{clock}" if clock else text, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.UsageError(str(error), click.get_current_context()) from None


def optional_time(text: str | None) -> int | None:
    return None if text is None else time_of(text)


# --- output ---

UNKNOWN = "unknown"
"""Printed for an unknown value, where Apache's tool prints some number."""


def print_table(
    layout: str, headings: Sequence[str], rows: Iterable[Sequence[object]], *, head_layout: str | None = None
) -> None:
    """A table in Apache's format: headings begin with `#`, and widths are fixed, because scripts split by column.

    `layout` is a template such as `%-32s  %-4s`. A value that is longer than its column is not truncated.
    """
    if headings:
        click.echo((head_layout or layout) % tuple(f"#{text}" for text in headings))
    for row in rows:
        click.echo(layout % tuple(UNKNOWN if value is None else value for value in row))


def print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    for name, value in pairs:
        click.echo(f"{name:<50}=  {value}")


def print_json(value: object, *, indent: str | None = "\t") -> None:
    """Sorted by name, no blank after a colon: scripts search for lines such as `"perm":6,`."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=indent, separators=(",", ":"), sort_keys=True))
