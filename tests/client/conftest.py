"""The fixture `live_cluster`: with Ariane's broker always, also with Apache's if ARIANE_INTEROP=1."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.client.apache_servers import Apache, apache, needs_apache
from tests.client.cluster_fixture import QUICK_LEVELS, LiveCluster, ariane_cluster, live_cluster_at


@pytest.fixture(scope="session")
def apache_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    with apache(tmp_path_factory.mktemp("apache"), messageDelayLevel=QUICK_LEVELS) as servers:
        yield servers


@pytest.fixture(params=["ours", pytest.param("apache", marks=needs_apache)])
async def live_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LiveCluster]:
    if request.param == "ours":
        async with ariane_cluster(tmp_path) as live_cluster:
            yield live_cluster
        return
    servers: Apache = request.getfixturevalue("apache_servers")
    async with live_cluster_at(servers.nameserver, next(iter(servers.brokers.values()))) as live_cluster:
        yield live_cluster
