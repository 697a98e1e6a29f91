"""mqadmin's commands for the cluster as a whole: its brokers, and the traffic of its topics."""

import asyncio
import time

import click

from ariane.cli.asking import tell_missing
from ariane.cli.mqadmin_shape import UNKNOWN, Option, apache, print_table
from ariane.client.admin import Admin
from ariane.client.admin.cluster import Runtime
from ariane.client.admin.servers import Broker
from ariane.errors import RequestFailed
from ariane.model.ids import DEAD_LETTER_PREFIX, RETRY_PREFIX

_HOUR_MS = 3_600_000


@apache(
    "clusterList",
    Option("m", "moreStats", "more", "Messages of today and yesterday instead.", flag=True),
    Option("i", "interval", "interval", "Again after so many seconds, until Ctrl-C.", type=click.IntRange(1)),
)
async def cluster_list(admin: Admin, more: bool, interval: int | None) -> int:
    """Show the brokers, and how each is doing."""
    while True:
        brokers, told = await admin.cluster.brokers(), await admin.cluster.runtime()
        rows = [(one, told.answers.get(one, Runtime(table={}))) for one in brokers]
        _print_counts(rows) if more else _print_rates(rows)
        status = tell_missing(told.failures)
        if interval is None:
            return status
        await asyncio.sleep(interval)
        click.echo("")


def _print_rates(rows: list[tuple[Broker, Runtime]]) -> None:
    headings = ["Cluster Name", "Broker Name", "BID", "Addr", "Version", "InTPS(LOAD)", "OutTPS(LOAD)"]
    print_table(
        "%-16s  %-22s  %-4s  %-22s %-16s %19s %19s %10s %5s %6s",
        [*headings, "PCWait(ms)", "Hour", "SPACE"],
        [
            (
                *(one.cluster, one.name, one.broker_id, one.address, runtime.version),
                *(_load(runtime, runtime.put_tps, "send"), _load(runtime, runtime.get_tps, "pull")),
                *(runtime.table.get("pageCacheLockTimeMills"), _hours(runtime)),
                _rounded(runtime.commit_log_disk_ratio, 4),
            )
            for one, runtime in rows
        ],
    )


def _load(runtime: Runtime, tps: float | None, kind: str) -> str | None:
    """A rate, and behind it how many requests wait for their turn, and for how long the first of them has."""
    if tps is None:
        return None
    size = runtime.table.get(f"{kind}ThreadPoolQueueSize", UNKNOWN)
    wait_ms = runtime.table.get(f"{kind}ThreadPoolQueueHeadWaitTimeMills", UNKNOWN)
    return f"{tps:9.2f}({size},{wait_ms}ms)"


def _hours(runtime: Runtime) -> str | None:
    """How far back the messages reach; 0.00 when there are none."""
    earliest_ms = runtime.earliest_message_ms
    if earliest_ms is None:
        return "0.00" if runtime.table else None
    return f"{(time.time_ns() // 1_000_000 - earliest_ms) / _HOUR_MS:2.2f}"


def _print_counts(rows: list[tuple[Broker, Runtime]]) -> None:
    names = ("msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgPutTotalTodayNow")
    gets = ("msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning", "msgGetTotalTodayNow")
    print_table(
        "%-16s  %-32s %14s %14s %14s %14s",
        ["Cluster Name", "Broker Name", "InTotalYest", "OutTotalYest", "InTotalToday", "OutTotalToday"],
        [
            (
                *(one.cluster, one.name, _between(runtime, *names[:2]), _between(runtime, *gets[:2])),
                *(_between(runtime, *names[1:]), _between(runtime, *gets[1:])),
            )
            for one, runtime in rows
        ],
    )


def _between(runtime: Runtime, begin: str, end: str) -> int | None:
    first, last = runtime.table.get(begin, ""), runtime.table.get(end, "")
    return int(last) - int(first) if first.isdecimal() and last.isdecimal() else None


def _rounded(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


# --- traffic --------------------------------------------------------------------------------------------------------


@apache(
    "statsAll",
    Option("a", "activeTopic", "active", "Only topics with traffic.", flag=True),
    Option("t", "topic", "topic", "Only this topic."),
)
async def stats_all(admin: Admin, active: bool, topic: str | None) -> None:
    """Show the rates and the last day's numbers of each topic and group, but not of retries and dead letters."""
    rows: list[tuple[object, ...]] = []
    names = [name for name in await admin.topics.names() if not name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))]
    for name in [topic] if topic else names:
        puts = await _counter(admin, "TOPIC_PUT_NUMS", name)
        groups = await admin.topics.groups(name)
        gets = {group: await _counter(admin, "GROUP_GET_NUMS", f"{name}@{group}") for group in groups}
        if active and not any(day for _, day in (puts, *gets.values())):
            continue
        lags = {group: (await admin.groups.lag(group, name)).total for group in groups}
        rows += [(name, group, lags[group], puts[0], gets[group][0], puts[1], gets[group][1]) for group in groups]
        rows += [] if groups else [(name, "", 0, puts[0], "", puts[1], "NO_CONSUMER")]
    headings = ["Topic", "Consumer Group", "Accumulation", "InTPS", "OutTPS", "InMsg24Hour", "OutMsg24Hour"]
    print_table("%-64s  %-64s %12s %11s %11s %14s %14s", headings, rows)


async def _counter(admin: Admin, name: str, key: str) -> tuple[str | None, int | None]:
    """A second's and a day's. A broker that has counted nothing refuses to tell; None when one cannot be asked."""
    told = await admin.cluster.stats(name, key)
    if any(not isinstance(failure.error, RequestFailed) for failure in told.failures):
        return None, None
    answers = told.answers.values()
    return f"{sum(one.stats_minute.tps for one in answers):.2f}", sum(one.stats_day.sum for one in answers)
