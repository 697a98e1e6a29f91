"""A broker in this process, or a cluster: a nameserver and one or more brokers that registered with it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ariane.broker.components import Components
from ariane.broker.server import Broker, running
from ariane.broker.settings import BrokerSettings
from ariane.clock import Clock
from ariane.store.settings import StoreSettings
from tests.nameserver.servers import nameserver

SMALL_STORE = {
    "segment_bytes": 8 * 1024 * 1024,
    "queue_segment_bytes": 20_000,
    "index_slots": 1_000,
    "index_entries": 4_000,
    "reserve_bytes": 64 * 1024,
}
"""Files that are made in no time; nothing else about the store differs from its defaults."""


@dataclass(frozen=True)
class RunningBroker:
    address: str
    settings: BrokerSettings
    parts: Components
    broker: Broker


@dataclass(frozen=True)
class RunningCluster:
    nameserver: str
    brokers: list[RunningBroker]

    @property
    def broker(self) -> RunningBroker:
        return self.brokers[0]


def broker_settings(tmp_path: Path, nameservers: Sequence[str] = (), **settings: Any) -> BrokerSettings:
    """`store` may be a StoreSettings or a dict of changes to the small store under `tmp_path`."""
    store = settings.pop("store", {})
    if isinstance(store, dict):
        store = replace(StoreSettings(), **{"root": tmp_path / "store", **SMALL_STORE, **store})
    named = {"name": "broker-a", "host": "127.0.0.1", "port": 0, "namesrv_addr": ";".join(nameservers) or None}
    return BrokerSettings(store=store, **{**named, **settings})


@asynccontextmanager
async def running_broker(
    tmp_path: Path, nameservers: Sequence[str] = (), clock: Clock | None = None, **settings: Any
) -> AsyncIterator[RunningBroker]:
    """A real broker on free loopback ports, the VIP port included; its store is under `tmp_path`."""
    async with running(broker_settings(tmp_path, nameservers, **settings), clock or Clock()) as broker:
        yield RunningBroker(str(broker.address), broker.settings, broker.parts, broker)


@asynccontextmanager
async def running_cluster(
    tmp_path: Path, brokers: int = 1, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[RunningCluster]:
    """broker-a, broker-b, ... registered with one nameserver."""
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(nameserver())
        started = []
        for letter in "abcdefgh"[:brokers]:
            name = f"broker-{letter}"
            one = running_broker(tmp_path / name, [address], clock, **{"name": name, **settings})
            started.append(await stack.enter_async_context(one))
        yield RunningCluster(address, started)
