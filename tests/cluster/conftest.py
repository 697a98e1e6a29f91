"""A nameserver, a broker, and a producer that refreshes routes often."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ariane.client.producer.producer import Producer
from tests.client.cluster_fixture import LiveCluster, ariane_cluster, fresh
from tests.cluster.error_fixtures import FAST_POLLING


@pytest.fixture
async def live_cluster(tmp_path: Path) -> AsyncIterator[LiveCluster]:
    async with ariane_cluster(tmp_path) as live_cluster:
        yield live_cluster


@pytest.fixture
async def producer(live_cluster: LiveCluster) -> AsyncIterator[Producer]:
    async with Producer(live_cluster.nameserver, group=fresh("senders"), settings=FAST_POLLING) as producer:
        yield producer
