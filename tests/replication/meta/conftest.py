"""The metadata stores that the contract is held against."""

from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import pytest_asyncio

from ariane.clock import Clock
from ariane.replication.meta import MetaStore
from ariane.replication.meta.etcd import EtcdStore
from ariane.replication.meta.memory import MemoryClient, MemoryStore
from tests.replication.meta.etcd_servers import EtcdNode, running_etcd


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdNode]:
    with running_etcd() as (node,):
        yield node


@pytest_asyncio.fixture(params=["memory", "etcd"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Callable[[], MetaStore]]:
    """Makes clients of the same store."""
    if request.param == "memory":
        store = MemoryStore()
        yield lambda: MemoryClient(store, Clock())
        return
    node: EtcdNode = request.getfixturevalue("etcd")
    async with EtcdStore.open([node.client]) as one, EtcdStore.open([node.client]) as two:
        clients = iter([one, two])
        yield lambda: next(clients)


@pytest.fixture
def meta(connect: Callable[[], MetaStore]) -> MetaStore:
    return connect()
