"""Brokers as `ariane cluster` and `ariane broker` tell them."""

from collections.abc import Iterable, Mapping

from ariane.cli.common.admin import run_admin
from ariane.cli.common.connection import Connection
from ariane.cli.common.output import Row
from ariane.client.admin import Admin
from ariane.client.admin.cluster import Runtime
from ariane.client.admin.requests import Broker, PerBroker
from ariane.store.offline.annotate import time_text


def brokers_and_runtime(connection: Connection, cluster: str | None) -> tuple[list[Broker], PerBroker[Runtime]]:
    async def work(admin: Admin) -> tuple[list[Broker], PerBroker[Runtime]]:
        return await admin.cluster.brokers(cluster=cluster), await admin.cluster.runtime(cluster=cluster)

    return run_admin(connection, work)


def cluster_rows(brokers: Iterable[Broker], runtime: PerBroker[Runtime]) -> Iterable[Row]:
    for broker in brokers:
        told = runtime.responses.get(broker)
        yield {**broker_row(broker), "state": "silent" if told is None else "ok", **_runtime_row(told)}


def broker_row(broker: Broker) -> dict[str, object]:
    return {
        "cluster": broker.cluster,
        "brokerName": broker.name,
        "brokerId": broker.broker_id,
        "role": "master" if broker.is_master else "slave",
        "address": broker.address,
    }


def _runtime_row(told: Runtime | None) -> dict[str, object]:
    runtime = told or Runtime(table={})
    disk = runtime.commit_log_disk_ratio
    return {
        "version": runtime.version,
        "putTps": runtime.put_tps,
        "getTps": runtime.get_tps,
        "diskUsed": None if disk is None or disk < 0 else f"{disk:.0%}",
        "commitLogDiskRatio": disk,
        "booted": _moment(runtime.booted_ms),
        "earliestMessage": _moment(runtime.earliest_message_ms),
    }


def _moment(ms: int | None) -> str | None:
    return None if ms is None else time_text(ms)


def pair_rows(tables: Mapping[Broker, Mapping[str, str]], names: Iterable[str] = ()) -> Iterable[Row]:
    """A row for each setting, or each figure, of each broker; only those named if some are."""
    wanted = set(names)
    for broker, table in tables.items():
        for name, value in sorted(table.items()):
            if not wanted or name in wanted:
                yield {"brokerName": broker.name, "name": name, "value": value}
