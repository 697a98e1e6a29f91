"""What `ariane top` shows: two readings of a cluster, and what happened between them.

Rates are counted from the ends of queues and the offsets of groups, so they hold for any broker, whatever it counts
itself. What a broker did not tell is None, and never 0.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from ariane.cli.broker_rows import cluster_rows
from ariane.cli.group_rows import is_built_in_and_idle
from ariane.cli.render import Row
from ariane.cli.topic_rows import kind_of
from ariane.client.admin import Admin
from ariane.client.admin.cluster import Runtime
from ariane.client.admin.groups import GroupSummary
from ariane.client.admin.lag import GroupLag
from ariane.client.admin.servers import Broker, PerBroker
from ariane.client.admin.topic_stats import TopicStats
from ariane.client.admin.topics import TopicAdmin
from ariane.errors import NoRoute


@dataclass(frozen=True, slots=True)
class Reading:
    """The cluster at one moment."""

    at_s: float
    brokers: list[Broker]
    runtime: PerBroker[Runtime]
    topics: Mapping[str, TopicStats]
    topics_known: int
    """How many there are; `topics` holds those that were read."""
    groups: Mapping[str, GroupSummary] = field(default_factory=dict)
    groups_read: int = 0
    """Those that nobody uses are read, but not in `groups`."""
    groups_known: int = 0

    @property
    def missing(self) -> list[str]:
        """Servers whose part is not in here."""
        failures = [*self.runtime.failures, *(one for stats in self.topics.values() for one in stats.failures)]
        failures += [one for group in self.groups.values() for one in group.lag.failures]
        return sorted({failure.server for failure in failures})

    @property
    def cuts(self) -> list[str]:
        """What was left out, because it would have been more than `--most`."""
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
        topics={one.topic: one for one in stats if one is not None},
        topics_known=len(names),
        groups={one.members.group: one for one in summaries if not is_built_in_and_idle(one)},
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
    return [
        {name: row.get(name) for name in ("brokerName", "address", "state", "putTps", "getTps", "diskUsed", "booted")}
        for row in cluster_rows(now.brokers, now.runtime)
    ]


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
    return sum(one.max_offset for one in stats.queues) if stats.is_complete else None


def group_figures(now: Reading, before: Reading | None) -> list[Row]:
    """The furthest behind first."""
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
    """Up to where, now and before, in the queues where both are known: a first offset may lie anywhere."""
    then = {one.queue: one.offset for one in before.queues if one.offset is not None}
    both = [(one.offset, then[one.queue]) for one in now.queues if one.offset is not None and one.queue in then]
    if not both or not now.is_complete or not before.is_complete:
        return None, None
    return sum(here for here, _ in both), sum(there for _, there in both)


def _rate(now: int | None, before: int | None, seconds: float) -> int | None:
    """None when it is not known yet, or went back: a group that was reset, a topic made anew."""
    if now is None or before is None or seconds <= 0 or now < before:
        return None
    return round((now - before) / seconds)


def _size(value: object) -> int:
    """Unknown sorts last."""
    return value if isinstance(value, int) else -1
