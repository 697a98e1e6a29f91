"""What every command of mqadmin has in common: its options by letter, its help, and columns as Apache prints them."""

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
    """Required options have one: it stands in the example of the help."""
    type: Any = str
    default: Any = None
    flag: bool = False

    def decorate(self, command: Callable[..., Any]) -> Callable[..., Any]:
        more: dict[str, Any] = {"is_flag": True} if self.flag else {"type": self.type}
        if self.default is not None:  # to click, a default of None would be a value
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


NAMESRV = Option("n", "namesrvAddr", "namesrv", "Nameservers; else $NAMESRV_ADDR, a running `ariane up`, this machine.")
TOPIC = Option("t", "topic", "topic", "The topic.", example="orders")
GROUP = Option("g", "groupName", "group", "The consumer group.", example="billing")
BROKER = Option("b", "brokerAddr", "broker", "This broker, HOST:PORT.")
CLUSTER = Option("c", "clusterName", "cluster", "Every broker of this cluster.")
PLACE = (BROKER, CLUSTER)
"""Commands that have both want exactly one."""


def apache(name: str, *options: Option) -> Callable[[Work], Work]:
    """Adds a command under mqadmin's name. The docstring is its help; the function prints, and may return a status."""

    def add(work: Work) -> Work:
        def run(namesrv: str | None, **values: Any) -> int | None:
            if set(PLACE) <= set(options) and (values["broker"] is None) == (values["cluster"] is None):
                raise click.UsageError("one of -b and -c must say where", click.get_current_context())
            connection = find_connection(namesrv, os.environ.get("ARIANE_PROFILE"), with_tools_account(os.environ))

            async def asked(admin: Admin) -> int | None:
                return await work(admin, **values)

            return run_admin(connection, asked)

        _add(name, options, run, work.__doc__ or "")
        return work

    return add


def missing(name: str, instead: str, *options: Option) -> None:
    """A command of mqadmin that is not there: it says so when it is called, whatever its options."""

    def run(namesrv: str | None, **values: Any) -> int | None:
        raise ClientError(f"mqadmin's {name} is not in Ariane: {instead}")

    _add(name, options, run, f"Not in Ariane: {instead}.")
    MISSING[name] = instead


MISSING: dict[str, str] = {}


def _add(name: str, options: Sequence[Option], run: Callable[..., Any], doc: str) -> None:
    for option in reversed((*options, NAMESRV)):
        run = option.decorate(run)
    place = " -c DefaultCluster" if set(PLACE) <= set(options) else ""
    needed = "".join(f" -{one.letter} {one.example}" for one in options if one.example is not None)
    example = f"\b\nExamples:\n  ariane admin {name} -n 127.0.0.1:9876{place}{needed}"
    admin_group.command(name, help=f"{doc}\n\n{example}")(run)


# --- times ----------------------------------------------------------------------------------------------------------


def moment_of(text: str) -> int:
    """Milliseconds since 1970, or Apache's own form: a `#` for the blank, a colon before the milliseconds."""
    day, _, clock = text.partition("#")
    if clock.count(":") == 3:
        clock = ".".join(clock.rsplit(":", 1))
    try:
        return parse_time(f"{day}T{clock}" if clock else text, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.UsageError(str(error), click.get_current_context()) from None


def optional_moment(text: str | None) -> int | None:
    return None if text is None else moment_of(text)


# --- printing -------------------------------------------------------------------------------------------------------

UNKNOWN = "unknown"
"""Where Apache's tool prints a number that nobody knows."""


def print_table(
    layout: str, headings: Sequence[str], rows: Iterable[Sequence[object]], *, head_layout: str | None = None
) -> None:
    """Apache's tables: headings begin with `#`, and each table has its own widths, as scripts cut by column.

    `layout` is a template such as `%-32s  %-4s`. A value that is longer than its column is not cut.
    """
    if headings:
        click.echo((head_layout or layout) % tuple(f"#{text}" for text in headings))
    for row in rows:
        click.echo(layout % tuple(UNKNOWN if value is None else value for value in row))


def print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    for name, value in pairs:
        click.echo(f"{name:<50}=  {value}")


def print_json(value: object, *, indent: str | None = "\t") -> None:
    """Names in order, no blank behind a colon: lines such as `"perm":6,` are what scripts look for."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=indent, separators=(",", ":"), sort_keys=True))
