"""What `ariane top` does: reads the cluster again and again, and shows each reading."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import datetime

import click
from rich.console import Console
from rich.live import Live

from ariane.cli.render import Form, print_json, render
from ariane.cli.top_figures import Reading, broker_figures, group_figures, read_cluster, topic_figures
from ariane.cli.top_screen import screen
from ariane.client.admin import Admin


async def two_readings(admin: Admin, interval: float, most: int) -> tuple[Reading, Reading]:
    readings = _readings(admin, interval, most)
    before = await anext(readings)
    return await anext(readings), before


async def _readings(admin: Admin, interval: float, most: int) -> AsyncIterator[Reading]:
    loop = asyncio.get_running_loop()
    while True:
        yield await read_cluster(admin, loop.time(), most)
        await asyncio.sleep(interval)


def print_reading(now: Reading, before: Reading, form: Form) -> None:
    parts = {"brokers": broker_figures(now), "topics": topic_figures(now, before), "groups": group_figures(now, before)}
    if form is Form.JSON:
        print_json(parts)
    elif form is Form.TABLE:
        for rows in parts.values():
            render(rows, form)
            click.echo("")
    else:
        lines = [{"kind": name[:-1], **row} for name, rows in parts.items() for row in rows]
        columns = dict.fromkeys(name for line in lines for name in line)  # a CSV has the same ones in every line
        render([columns | line for line in lines] if form is Form.CSV else lines, form)


async def watch(admin: Admin, where: str, interval: float, most: int) -> None:
    console = Console()
    with _quit_key() as quit_asked, Live(console=console, screen=True, auto_refresh=False) as live:
        before: Reading | None = None
        async for now in _until(quit_asked, _readings(admin, interval, most)):
            picture = screen(now, before, where=where, clock=f"{datetime.now():%H:%M:%S}", height=console.height)
            live.update(picture, refresh=True)
            before = now


async def _until(stopped: asyncio.Event, readings: AsyncIterator[Reading]) -> AsyncIterator[Reading]:
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
