"""Runs the checks of `ariane doctor` in order: machine, settings file, store, cluster."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

from ariane.cli.common.connection import Connection
from ariane.cli.doctor import machine as machine
from ariane.cli.doctor.cluster import (
    check_brokers,
    check_dead_letters,
    check_disks,
    check_lags,
    check_masters,
    check_nameservers,
    check_subscriptions,
    collect_findings,
)
from ariane.cli.doctor.findings import Finding, findings
from ariane.cli.doctor.machine import StoreChecks
from ariane.cli.doctor.replication import check_replication
from ariane.client.admin import Admin
from ariane.client.settings import ClientSettings
from ariane.model.route import ClusterMap


def all_findings(store: Path | None, file: Path | None, connection: Connection, watch_s: float) -> Iterator[Finding]:
    yield from _machine()
    yield from _files(store, file)
    found, cluster_map = check_nameservers(connection.settings, connection.origin)
    yield from found
    if cluster_map is not None:
        yield from asyncio.run(_cluster(connection.settings, cluster_map, watch_s))


def _machine() -> Iterator[Finding]:
    yield from findings("python", machine.check_python)
    yield from findings("extras", machine.check_extras)
    yield from findings("java", machine.check_java)
    yield from findings("open files", machine.check_open_files)
    yield from findings("memory", machine.check_memory)
    yield from findings("clock", machine.check_clock)


def _files(store: Path | None, file: Path | None) -> Iterator[Finding]:
    """Checks the store of the settings file, unless --store names another."""
    settings = None
    if file is not None:
        from ariane.cli.doctor.machine import check_ports, load_config

        found, loaded = load_config(file)
        yield from found
        if loaded is not None:
            settings = loaded.settings
            runs = StoreChecks(settings.store.root, settings.store).runs
            yield from findings("ports", lambda: check_ports(loaded.settings, runs=runs))
    if store is not None:
        yield from _store(StoreChecks(store))
    elif settings is not None:
        yield from _store(StoreChecks(settings.store.root, settings.store))


def _store(checks: StoreChecks) -> Iterator[Finding]:
    yield from findings("disk space", checks.space)
    yield from findings("file system", checks.file_system)
    yield from findings("last run", checks.last_run)
    yield from findings("store times", checks.times)
    yield from findings("store files", checks.files)


async def _cluster(settings: ClientSettings, cluster_map: ClusterMap, watch_s: float) -> list[Finding]:
    found: list[Finding] = []
    async with Admin(settings=settings) as admin:
        found += await collect_findings(check_brokers(admin, cluster_map, settings.nameservers), "brokers")
        found += await collect_findings(check_masters(admin, cluster_map), "masters")
        if not cluster_map.broker_addr_table:
            return found
        found += await collect_findings(check_replication(admin), "replication")
        found += await collect_findings(check_disks(admin), "broker disks")
        found += await collect_findings(check_lags(admin, watch_s), "lag")
        found += await collect_findings(check_subscriptions(admin), "subscriptions")
        found += await collect_findings(check_dead_letters(admin), "dead letters")
    return found
