"""`ariane top`: the cluster live, on one screen."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import click

from ariane.cli.connection import Connection, connected
from ariane.cli.render import Form, output_option

if TYPE_CHECKING:
    from ariane.cli.top_figures import Reading
    from ariane.client.admin import Admin


@click.command()
@click.option(
    "--interval", type=click.FloatRange(0.2), default=2.0, show_default=True, help="Seconds between readings."
)
@click.option("--most", type=click.IntRange(1), default=200, show_default=True, help="Topics and groups to read.")
@click.option("--once", is_flag=True, help="Print one reading and end; so it does when the output is not a terminal.")
@connected
@output_option()
def top(interval: float, most: int, once: bool, connection: Connection, form: Form) -> int:
    """Watch brokers, topics and groups: what comes in, what goes out, who is behind.

    Rates are counted between two readings. `?` stands where nothing is known (in JSON: null). `q` or Ctrl-C ends it.

    \b
    Examples:
      ariane top
      ariane top --interval 5 -n 10.0.0.1:9876
      ariane top --once -o json
    """
    from ariane.cli.asking import INCOMPLETE, ask

    if once or form is not Form.TABLE or not sys.stdout.isatty():
        now, before = ask(connection, lambda admin: _two_readings(admin, interval, most))
        _print(now, before, form)
        for server in now.missing:
            click.echo(f"incomplete: the part of {server} is missing", err=True)
        return INCOMPLETE if now.missing else 0
    with contextlib.suppress(KeyboardInterrupt):
        ask(connection, lambda admin: _watch(admin, connection.namesrv, interval, most))
    return 0


async def _two_readings(admin: "Admin", interval: float, most: int) -> "tuple[Reading, Reading]":
    readings = _readings(admin, interval, most)
    before = await anext(readings)
    return await anext(readings), before


async def _readings(admin: "Admin", interval: float, most: int) -> "AsyncIterator[Reading]":
    from ariane.cli.top_figures import read_cluster

    loop = asyncio.get_running_loop()
    while True:
        yield await read_cluster(admin, loop.time(), most)
        await asyncio.sleep(interval)


def _print(now: "Reading", before: "Reading", form: Form) -> None:
    from ariane.cli.render import print_json, render
    from ariane.cli.top_figures import broker_figures, group_figures, topic_figures

    parts = {"brokers": broker_figures(now), "topics": topic_figures(now, before), "groups": group_figures(now, before)}
    if form is Form.JSON:
        print_json(parts)
        return
    for name, rows in parts.items():
        if form is Form.TABLE:
            render(rows, form)
            click.echo("")
        else:
            render([{"kind": name[:-1], **row} for row in rows], form)


async def _watch(admin: "Admin", where: str, interval: float, most: int) -> None:
    from rich.console import Console
    from rich.live import Live

    from ariane.cli.top_screen import screen

    console = Console()
    with _quit_key() as quit_asked, Live(console=console, screen=True, auto_refresh=False) as live:
        before: Reading | None = None
        async for now in _until(quit_asked, _readings(admin, interval, most)):
            picture = screen(now, before, where=where, clock=f"{datetime.now():%H:%M:%S}", height=console.height)
            live.update(picture, refresh=True)
            before = now


async def _until(stopped: asyncio.Event, readings: "AsyncIterator[Reading]") -> "AsyncIterator[Reading]":
    """The readings up to the key that ends them, which is heard while waiting for the next one."""
    stop = asyncio.create_task(stopped.wait())
    try:
        while True:
            following = asyncio.ensure_future(anext(readings))
            await asyncio.wait([following, stop], return_when=asyncio.FIRST_COMPLETED)
            if stop.done():
                following.cancel()
                return
            yield following.result()
    finally:
        stop.cancel()


@contextmanager
def _quit_key() -> Iterator[asyncio.Event]:
    """Set by `q`. Keys come one by one, unechoed, for the length of the block."""
    asked = asyncio.Event()
    if not sys.stdin.isatty():
        yield asked
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    loop = asyncio.get_running_loop()

    def read_key() -> None:
        keys = os.read(sys.stdin.fileno(), 64)
        if not keys or b"q" in keys.lower():
            asked.set()

    tty.setcbreak(sys.stdin, termios.TCSADRAIN)  # keys typed ahead stay
    loop.add_reader(sys.stdin, read_key)
    try:
        yield asked
    finally:
        loop.remove_reader(sys.stdin)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
