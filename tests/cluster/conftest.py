"""The ground for bad input: a nameserver, a broker, and a producer that looks again soon."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ariane.client.producer.producer import Producer
from tests.client.cluster_fixture import Ground, fresh, our_ground
from tests.cluster.error_fixtures import IMPATIENT


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with our_ground(tmp_path) as ground:
        yield ground


@pytest.fixture
async def producer(ground: Ground) -> AsyncIterator[Producer]:
    async with Producer(ground.nameserver, group=fresh("senders"), settings=IMPATIENT) as producer:
        yield producer
