"""The ground for tests of consumers: our own broker always, Apache's when ARIANE_INTEROP=1."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.client.apache_servers import Apache, apache, needs_apache
from tests.client.cluster_fixture import QUICK_LEVELS, Ground, ground_at, our_ground


@pytest.fixture(scope="session")
def apache_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    with apache(tmp_path_factory.mktemp("apache"), messageDelayLevel=QUICK_LEVELS) as servers:
        yield servers


@pytest.fixture(params=["ours", pytest.param("apache", marks=needs_apache)])
async def ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    if request.param == "ours":
        async with our_ground(tmp_path) as ground:
            yield ground
        return
    servers: Apache = request.getfixturevalue("apache_servers")
    async with ground_at(servers.nameserver, next(iter(servers.brokers.values()))) as ground:
        yield ground
