"""Runs `ariane top`: reads the cluster again and again, and shows each reading with the rates since the last one.

Rates are computed from the end offsets of queues and the offsets of groups, so they do not depend on the broker's own
counters. What a broker did not report is None, never 0.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ariane.cli.cluster.rows import cluster_rows
from ariane.cli.common.output import OutputFormat, Row, print_json, render
from ariane.cli.group.command import is_built_in_and_idle
from ariane.cli.topic import kind_of
from ariane.client.admin import Admin
from ariane.client.admin.cluster import Runtime
from ariane.client.admin.groups import GroupSummary
from ariane.client.admin.lag import GroupLag
from ariane.client.admin.requests import Broker, PerBroker
from ariane.client.admin.topics import TopicAdmin, TopicStats
from ariane.errors import NoRoute


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of the cluster at one time."""

    at_s: float
    brokers: list[Broker]
    runtime: PerBroker[Runtime]
    topics: Mapping[str, TopicStats]
    topics_known: int
    """Number of existing topics; `topics` has those that were read."""
    groups: Mapping[str, GroupSummary] = field(default_factory=dict)
    groups_read: int = 0
    """Includes unused system groups, which are not in `groups`."""
    groups_known: int = 0

    @property
    def missing(self) -> list[str]:
        """Servers that did not respond."""
        failures = [*self.runtime.failures, *(failure for stats in self.topics.values() for failure in stats.failures)]
        failures += [failure for group in self.groups.values() for failure in group.lag.failures]
        return sorted({failure.server for failure in failures})

    @property
    def truncations(self) -> list[str]:
        """What was not read because of `--most`."""
        parts = {"topics": (len(self.topics), self.topics_known), "groups": (self.groups_read, self.groups_known)}
        return [f"read {read:,} of {known:,} {what} (--most)" for what, (read, known) in parts.items() if read < known]


async def read_cluster(admin: Admin, at_s: float, most: int) -> Reading:
    """At most `most` topics and as many groups: each costs a request to each of its brokers."""
    brokers, runtime = await admin.cluster.brokers(), await admin.cluster.runtime()
    system = set(await admin.topics.system_names())
    names = [name for name in await admin.topics.names() if kind_of(name, system) != "system"]
    groups = await admin.groups.names()
    summaries = await admin.groups.summaries(groups[:most])
    stats = await asyncio.gather(*(_stats(admin.topics, name) for name in names[:most]))
    return Reading(
        at_s=at_s,
        brokers=brokers,
        runtime=runtime,
        topics={topic.topic: topic for topic in stats if topic is not None},
        topics_known=len(names),
        groups={summary.members.group: summary for summary in summaries if not is_built_in_and_idle(summary)},
        groups_read=len(summaries),
        groups_known=len(groups),
    )


async def _stats(topics: TopicAdmin, name: str) -> TopicStats | None:
    """None for a topic that was deleted since it was listed."""
    try:
        return await topics.stats(name)
    except NoRoute:
        return None


def broker_figures(now: Reading) -> list[Row]:
    """How far a slave is behind is shown only where there is one."""
    rows = list(cluster_rows(now.brokers, now.runtime))
    behind = ("behindBytes",) if any(not broker.is_master for broker in now.brokers) else ()
    names = ("brokerName", "role", "address", "state", *behind, "putTps", "getTps", "diskUsed", "booted")
    return [{name: row.get(name) for name in names} for row in rows]


def topic_figures(now: Reading, before: Reading | None) -> list[Row]:
    """The busiest first."""
    rows = [_topic_row(stats, before, now.at_s) for stats in now.topics.values()]
    return sorted(rows, key=lambda row: (-_size(row["inPerS"]), -_size(row["messages"]), str(row["topic"])))


def _topic_row(now: TopicStats, before: Reading | None, at_s: float) -> Row:
    earlier = None if before is None else before.topics.get(now.topic)
    counts = (_end(now), None if earlier is None else _end(earlier))
    return {
        "topic": now.topic,
        "queues": len(now.queues) if now.is_complete else None,
        "messages": now.count,
        "inPerS": _rate(*counts, at_s - before.at_s if before else 0.0),
    }


def _end(stats: TopicStats) -> int | None:
    return sum(queue.max_offset for queue in stats.queues) if stats.is_complete else None


def group_figures(now: Reading, before: Reading | None) -> list[Row]:
    """The largest lag first."""
    rows = [_group_row(name, summary, before, now.at_s) for name, summary in now.groups.items()]
    return sorted(rows, key=lambda row: (-_size(row["lag"]), str(row["group"])))


def _group_row(name: str, now: GroupSummary, before: Reading | None, at_s: float) -> Row:
    earlier = None if before is None else before.groups.get(name)
    counts = (None, None) if earlier is None else _consumed(now.lag, earlier.lag)
    return {
        "group": name,
        "members": len(now.members.members) if now.members.is_complete else None,
        "topics": list(now.lag.by_topic),
        "lag": now.lag.total if now.lag.queues else None,
        "outPerS": _rate(*counts, at_s - before.at_s if before else 0.0),
    }


def _consumed(now: GroupLag, before: GroupLag) -> tuple[int | None, int | None]:
    """Sums of the offsets, now and before, over the queues that have both: a first offset may be any number."""
    earlier = {queue.queue: queue.offset for queue in before.queues if queue.offset is not None}
    pairs = [
        (queue.offset, earlier[queue.queue])
        for queue in now.queues
        if queue.offset is not None and queue.queue in earlier
    ]
    if not pairs or not now.is_complete or not before.is_complete:
        return None, None
    return sum(later for later, _ in pairs), sum(offset for _, offset in pairs)


def _rate(now: int | None, before: int | None, seconds: float) -> int | None:
    """None when it is not known yet, or when the count decreased: the group was reset, or the topic recreated."""
    if now is None or before is None or seconds <= 0 or now < before:
        return None
    return round((now - before) / seconds)


def _size(value: object) -> int:
    """Unknown sorts last."""
    return value if isinstance(value, int) else -1


# --- the screen: three tables, truncated to the height of the terminal ---

_FRAME_LINES = 9
"""Title, footer, and for each table its heading and the empty line below."""


def screen(now: Reading, before: Reading | None, *, where: str, clock: str, height: int) -> RenderableType:
    brokers, topics, groups = broker_figures(now), topic_figures(now, before), group_figures(now, before)
    room = max(height - _FRAME_LINES - len(brokers), 4)
    for_groups = min(len(groups), room // 2)
    for_topics = room - for_groups
    return Group(
        Text(f"ariane top  {where}  {clock}", style="bold"),
        _table(brokers, len(brokers), "brokers"),
        _table(topics, for_topics, "topics"),
        _table(groups, for_groups, "groups"),
        Text(_footer(now), style="dim"),
    )


def _footer(now: Reading) -> str:
    parts = ["q: quit", *now.truncations]
    if now.missing:
        parts.append(f"incomplete: no data from {', '.join(now.missing)}")
    return "  |  ".join(parts)


def _table(rows: Sequence[Row], most: int, what: str) -> RenderableType:
    if not rows:
        return Text(f"no {what}\n", style="dim")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="reverse")
    for name in rows[0]:
        is_number = all(isinstance(row[name], int | float | None) for row in rows)
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    for row in rows[:most]:
        table.add_row(*(_cell(value) for value in row.values()))
    hidden = len(rows) - most
    caption = f"... and {hidden:,} more {what}\n" if hidden > 0 else ""
    return Group(table, Text(caption, style="dim"))


def _cell(value: object) -> Text:
    """As Text, so that a topic name is never interpreted as markup."""
    if value is None:
        return Text("?", style="dim")
    if isinstance(value, list):
        return Text(" ".join(map(str, value)))
    return Text(f"{value:,}" if isinstance(value, int | float) else str(value))


# --- the update loop ---


async def two_readings(admin: Admin, interval: float, most: int) -> tuple[Reading, Reading]:
    readings = _readings(admin, interval, most)
    before = await anext(readings)
    return await anext(readings), before


async def _readings(admin: Admin, interval: float, most: int) -> AsyncIterator[Reading]:
    loop = asyncio.get_running_loop()
    while True:
        yield await read_cluster(admin, loop.time(), most)
        await asyncio.sleep(interval)


def print_reading(now: Reading, before: Reading, output: OutputFormat) -> None:
    parts = {"brokers": broker_figures(now), "topics": topic_figures(now, before), "groups": group_figures(now, before)}
    if output is OutputFormat.JSON:
        print_json(parts)
    elif output is OutputFormat.TABLE:
        for rows in parts.values():
            render(rows, output)
            click.echo("")
    else:
        lines = [{"kind": name[:-1], **row} for name, rows in parts.items() for row in rows]
        columns = dict.fromkeys(name for line in lines for name in line)  # all lines of a CSV have the same columns
        render([columns | line for line in lines] if output is OutputFormat.CSV else lines, output)


async def watch(admin: Admin, where: str, interval: float, most: int) -> None:
    console = Console()
    with _quit_key() as quit_pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        before: Reading | None = None
        async for now in _until(quit_pressed, _readings(admin, interval, most)):
            picture = screen(now, before, where=where, clock=f"{datetime.now():%H:%M:%S}", height=console.height)
            live.update(picture, refresh=True)
            before = now


async def _until(stopped: asyncio.Event, readings: AsyncIterator[Reading]) -> AsyncIterator[Reading]:
    """The readings until `stopped` is set; also stops while it waits for the next reading."""
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
    """An event that the key `q` sets. Inside the block, the terminal delivers keys one by one, without echo."""
    pressed = asyncio.Event()
    if not sys.stdin.isatty():
        yield pressed
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    loop = asyncio.get_running_loop()

    def read_key() -> None:
        keys = os.read(sys.stdin.fileno(), 64)
        if not keys or b"q" in keys.lower():
            pressed.set()

    tty.setcbreak(sys.stdin, termios.TCSADRAIN)  # keeps keys that were typed ahead
    loop.add_reader(sys.stdin, read_key)
    try:
        yield pressed
    finally:
        loop.remove_reader(sys.stdin)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
