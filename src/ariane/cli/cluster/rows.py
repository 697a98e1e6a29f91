"""Rows of brokers for `ariane cluster` and `ariane broker`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ariane.cli.common.admin import run_admin
from ariane.cli.common.connection import Connection
from ariane.cli.common.output import Row
from ariane.store.offline.annotate import time_text

if TYPE_CHECKING:
    from ariane.client.admin import Admin
    from ariane.client.admin.cluster import Runtime
    from ariane.client.admin.requests import Broker, PerBroker


def brokers_and_runtime(connection: Connection, cluster: str | None) -> tuple[list[Broker], PerBroker[Runtime]]:
    async def work(admin: Admin) -> tuple[list[Broker], PerBroker[Runtime]]:
        return await admin.cluster.brokers(cluster=cluster), await admin.cluster.runtime(cluster=cluster)

    return run_admin(connection, work)


def cluster_rows(brokers: Iterable[Broker], runtime: PerBroker[Runtime]) -> Iterable[Row]:
    ends = {
        (broker.cluster, broker.name): each.log_end for broker, each in runtime.responses.items() if broker.is_master
    }
    for broker in brokers:
        response = runtime.responses.get(broker)
        end = None if response is None else response.log_end
        behind = None if broker.is_master else _distance(ends.get((broker.cluster, broker.name)), end)
        state = "silent" if response is None else "ok"
        yield {**broker_row(broker), "state": state, "behindBytes": behind, **_runtime_row(response)}


def _distance(master_end: int | None, end: int | None) -> int | None:
    """The ends are not read at the same moment, so a slave may seem to be ahead."""
    return None if master_end is None or end is None else max(master_end - end, 0)


def broker_row(broker: Broker) -> dict[str, object]:
    return {
        "cluster": broker.cluster,
        "brokerName": broker.name,
        "brokerId": broker.broker_id,
        "role": "master" if broker.is_master else "slave",
        "address": broker.address,
    }


def _runtime_row(response: Runtime | None) -> dict[str, object]:
    from ariane.client.admin.cluster import Runtime

    runtime = response or Runtime(table={})
    disk = runtime.commit_log_disk_ratio
    return {
        "version": runtime.version,
        "putTps": runtime.put_tps,
        "getTps": runtime.get_tps,
        "diskUsed": None if disk is None or disk < 0 else f"{disk:.0%}",
        "commitLogDiskRatio": disk,
        "booted": _time(runtime.booted_ms),
        "earliestMessage": _time(runtime.earliest_message_ms),
    }


def _time(ms: int | None) -> str | None:
    return None if ms is None else time_text(ms)


def pair_rows(tables: Mapping[Broker, Mapping[str, str]], names: Iterable[str] = ()) -> Iterable[Row]:
    """A row for each pair of each broker; only those with the given names, if there are any."""
    selection = set(names)
    for broker, table in tables.items():
        for name, value in sorted(table.items()):
            if not selection or name in selection:
                yield {"brokerName": broker.name, "name": name, "value": value}
