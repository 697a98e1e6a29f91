"""What brokers know about topics, queues and groups, as tables that can be joined with messages."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pyarrow as pa

from ariane.arrow.schema import TIMESTAMP
from ariane.client.admin import Admin
from ariane.client.admin.servers import Failure
from ariane.client.settings import ClientSettings
from ariane.errors import ClientError

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
    """`topics`, `queues` or `groups`. ClientError when a broker does not answer: a part would look like the whole."""
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
                "brokerName": one.queue.broker_name,
                "queueId": one.queue.queue_id,
                "minOffset": one.min_offset,
                "maxOffset": one.max_offset,
                "messages": one.count,
                "lastStored": _moment_us(one.last_stored_ms),
            }
            for one in stats.queues
        ]
    return rows


async def _topics(admin: Admin) -> Rows:
    rows: Rows = []
    for topic in await admin.topics.names():
        stats = await admin.topics.stats(topic)
        _check_complete(stats.failures, "topics")
        last = max((one.last_stored_ms for one in stats.queues if one.last_stored_ms is not None), default=None)
        count = {"queues": len(stats.queues), "messages": stats.count}
        rows.append({"topic": topic, **count, "lastStored": _moment_us(last)})
    return rows


async def _groups(admin: Admin) -> Rows:
    rows: Rows = []
    for summary in await admin.groups.summaries():
        _check_complete((*summary.lag.failures, *summary.members.failures), "groups")
        group = {"group": summary.members.group, "members": len(summary.members.members)}
        rows += [
            {
                **group,
                "topic": one.queue.topic,
                "brokerName": one.queue.broker_name,
                "queueId": one.queue.queue_id,
                "brokerOffset": one.end,
                "consumerOffset": one.offset,
                "lag": one.lag,
                "lastConsumed": _moment_us(one.last_consumed_ms),
            }
            for one in summary.lag.queues
        ] or [group]
    return rows


CLUSTER_TABLES: Mapping[str, tuple[pa.Schema, Callable[[Admin], Awaitable[Rows]]]] = {
    "topics": (TOPICS, _topics),
    "queues": (QUEUES, _queues),
    "groups": (GROUPS, _groups),
}


def _moment_us(ms: int | None) -> int | None:
    return None if ms is None else ms * 1000


def _check_complete(failures: tuple[Failure, ...], name: str) -> None:
    for failure in failures:
        raise ClientError(f"the table {name} would not be complete: {failure}") from failure.error
