"""Catalogs: the tables that a query may use, of a cluster or of store directories."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from difflib import get_close_matches
from pathlib import Path

import pyarrow as pa

from ariane.arrow.log.files import open_queues, topics_with_queues
from ariane.arrow.schema import TIMESTAMP
from ariane.client.admin import Admin
from ariane.client.admin.requests import Failure
from ariane.client.settings import ClientSettings
from ariane.errors import ClientError, NoRoute, StoreMismatch
from ariane.spark.cluster import Cluster
from ariane.sql.sources import BrokerTable, StoreTable
from ariane.sql.tables import ScanFilter
from ariane.store.layout import Layout
from ariane.wire.requests.topics import ListTopics

# --- metadata tables of a cluster: topics, queues and groups, which can be joined with messages ---

QUEUES = pa.schema(
    [
        ("topic", pa.string()),
        ("brokerName", pa.string()),
        ("queueId", pa.int32()),
        ("minOffset", pa.int64()),
        ("maxOffset", pa.int64()),
        ("messages", pa.int64()),
        ("lastStored", TIMESTAMP),
    ]
)
TOPICS = pa.schema(
    [("topic", pa.string()), ("queues", pa.int32()), ("messages", pa.int64()), ("lastStored", TIMESTAMP)]
)
GROUPS = pa.schema(
    [
        ("group", pa.string()),
        ("members", pa.int32()),
        ("topic", pa.string()),
        ("brokerName", pa.string()),
        ("queueId", pa.int32()),
        ("brokerOffset", pa.int64()),
        ("consumerOffset", pa.int64()),
        ("lag", pa.int64()),
        ("lastConsumed", TIMESTAMP),
    ]
)

Rows = list[dict[str, object]]


def cluster_table(settings: ClientSettings, name: str) -> pa.Table:
    """`topics`, `queues` or `groups`. ClientError if a broker does not respond: a partial table would be misleading."""
    schema, rows_of = CLUSTER_TABLES[name]

    async def work() -> Rows:
        async with Admin(settings=settings) as admin:
            return await rows_of(admin)

    return pa.Table.from_pylist(asyncio.run(work()), schema=schema)


async def _queues(admin: Admin) -> Rows:
    rows: Rows = []
    for topic in await admin.topics.names():
        stats = await admin.topics.stats(topic)
        _check_complete(stats.failures, "queues")
        rows += [
            {
                "topic": topic,
                "brokerName": queue_stats.queue.broker_name,
                "queueId": queue_stats.queue.queue_id,
                "minOffset": queue_stats.min_offset,
                "maxOffset": queue_stats.max_offset,
                "messages": queue_stats.count,
                "lastStored": _microseconds(queue_stats.last_stored_ms),
            }
            for queue_stats in stats.queues
        ]
    return rows


async def _topics(admin: Admin) -> Rows:
    rows: Rows = []
    for topic in await admin.topics.names():
        stats = await admin.topics.stats(topic)
        _check_complete(stats.failures, "topics")
        last = max(
            (queue_stats.last_stored_ms for queue_stats in stats.queues if queue_stats.last_stored_ms is not None),
            default=None,
        )
        count = {"queues": len(stats.queues), "messages": stats.count}
        rows.append({"topic": topic, **count, "lastStored": _microseconds(last)})
    return rows


async def _groups(admin: Admin) -> Rows:
    rows: Rows = []
    for summary in await admin.groups.summaries():
        _check_complete((*summary.lag.failures, *summary.members.failures), "groups")
        group = {"group": summary.members.group, "members": len(summary.members.members)}
        rows += [
            {
                **group,
                "topic": queue_lag.queue.topic,
                "brokerName": queue_lag.queue.broker_name,
                "queueId": queue_lag.queue.queue_id,
                "brokerOffset": queue_lag.end,
                "consumerOffset": queue_lag.offset,
                "lag": queue_lag.lag,
                "lastConsumed": _microseconds(queue_lag.last_consumed_ms),
            }
            for queue_lag in summary.lag.queues
        ] or [group]
    return rows


CLUSTER_TABLES: Mapping[str, tuple[pa.Schema, Callable[[Admin], Awaitable[Rows]]]] = {
    "topics": (TOPICS, _topics),
    "queues": (QUEUES, _queues),
    "groups": (GROUPS, _groups),
}


def _microseconds(ms: int | None) -> int | None:
    return None if ms is None else ms * 1000


def _check_complete(failures: tuple[Failure, ...], name: str) -> None:
    for failure in failures:
        raise ClientError(f"the table {name} would not be complete: {failure}") from failure.error


# --- catalogs ---


class ClusterCatalog:
    def __init__(self, settings: ClientSettings, scan_filter: ScanFilter) -> None:
        self._settings = settings
        self._filter = scan_filter
        self.location = settings.nameservers

    def topics(self) -> list[str]:
        cluster = Cluster(self._settings)
        with closing(cluster.calls):
            try:
                return sorted(cluster.call_nameserver(ListTopics()).body.topic_list)
            except NoRoute as error:  # its text names an option of Spark
                raise NoRoute(str(error).replace("the option nameServer", "the address given with -n")) from error

    def messages(self, topic: str) -> BrokerTable:
        return BrokerTable(self._settings, topic, self._filter)

    def metadata(self, name: str) -> pa.Table | None:
        return cluster_table(self._settings, name) if name in CLUSTER_TABLES else None

    def metadata_names(self) -> tuple[str, ...]:
        return tuple(CLUSTER_TABLES)


class StoreCatalog:
    def __init__(self, roots: Sequence[Path], scan_filter: ScanFilter) -> None:
        self._roots = roots
        self._filter = scan_filter
        self.location = ", ".join(map(str, roots))
        for root in roots:
            if not (root / "commitlog").is_dir():
                raise StoreMismatch(f"{root} is not a store: give the directory that contains `commitlog`")

    def topics(self) -> list[str]:
        return sorted({topic for root in self._roots for topic in topics_with_queues(Layout.under(root))})

    def messages(self, topic: str) -> StoreTable:
        return StoreTable(self._roots, topic, self._filter)

    def metadata(self, name: str) -> pa.Table | None:
        """Queues as in the files. There are no groups: their offsets are in files of the broker, not of the store."""
        return pa.Table.from_pylist(self._queues(), schema=_STORE_QUEUES) if name == "queues" else None

    def metadata_names(self) -> tuple[str, ...]:
        return ("queues",)

    def _queues(self) -> list[dict[str, object]]:
        return [
            {
                "store": str(root),
                "topic": queue.topic,
                "queueId": queue.queue_id,
                "minOffset": queue.first,
                "maxOffset": queue.end,
                "messages": len(queue),
            }
            for root in self._roots
            for queue in open_queues(Layout.under(root), topics_with_queues(Layout.under(root)))
        ]


_STORE_QUEUES = pa.schema(
    [
        ("store", pa.string()),
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("minOffset", pa.int64()),
        ("maxOffset", pa.int64()),
        ("messages", pa.int64()),
    ]
)


# --- missing tables, reported with the nearest name ---


class MissingTable(ClientError):
    """An engine does not find a table. The engine knows only its own tables, and not the topics."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no table {name}")
        self.name = name

    def with_hint(self, topics: Sequence[str], metadata: Sequence[str], location: str) -> ClientError:
        names = [*topics, *metadata]
        near = get_close_matches(self.name, names, n=1, cutoff=0.5) or _ignoring_case(self.name, names)
        if near:
            hint = f"did you mean {quoted(near[0])}?"
        elif topics:
            hint = f"topics there: {', '.join(topics[:_SHOWN])}{', ...' if len(topics) > _SHOWN else ''}"
        else:
            hint = "there are no topics"
        return ClientError(f"there is no topic {self.name} at {location}: {hint}")


_SHOWN = 10


def quoted(name: str) -> str:
    """As an SQL identifier: in quotes unless it is a plain name."""
    is_plain = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    return name if is_plain else '"' + name.replace('"', '""') + '"'


def _ignoring_case(name: str, names: Sequence[str]) -> list[str]:
    lower = {known.lower(): known for known in names}
    return [lower[near] for near in get_close_matches(name.lower(), lower, n=1, cutoff=0.5)]
