"""Masters and slaves over real sockets and files, without the rest of a broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ariane.clock import Clock
from ariane.errors import TransportError
from ariane.replication.hello import Identity
from ariane.replication.master import Master
from ariane.replication.settings import ReplicationSettings
from ariane.replication.slave import MasterTarget, Slave
from ariane.store.following import FollowingLog
from ariane.store.message_store import MessageStore
from ariane.store.service import StoreService
from ariane.store.settings import FlushDiskType, StoreSettings
from ariane.transport.settings import TlsSettings
from tests.store.stores import HOST
from tests.transport.peers import LOOPBACK

FILE_BYTES = 65_536
IDENTITY = Identity("DefaultCluster", "broker-a", FILE_BYTES)


def store_settings(root: Path, **changes: Any) -> StoreSettings:
    sizes = {"segment_bytes": FILE_BYTES, "queue_segment_bytes": 2000, "index_slots": 500, "index_entries": 2000}
    return StoreSettings(root=root, flush_disk_type=FlushDiskType.ASYNC, **{**sizes, **changes})


@asynccontextmanager
async def running_store(root: Path, **changes: Any) -> AsyncIterator[StoreService]:
    async with StoreService.open(store_settings(root, **changes), Clock(), HOST) as service:
        yield service


@asynccontextmanager
async def a_master(
    service: StoreService, identity: Identity = IDENTITY, *, clock: Clock | None = None, tls: Any = None, **changes: Any
) -> AsyncIterator[Master]:
    settings = ReplicationSettings(**changes)
    async with Master.open(LOOPBACK, service, settings, identity, clock or Clock(), tls=tls) as master:
        yield master


class Guide:
    """Tells a slave where its master is, which may change."""

    def __init__(self, address: str | None, *, native: bool) -> None:
        self.address = address
        self.native = native

    async def __call__(self) -> MasterTarget:
        if self.address is None:
            raise TransportError("no master at present")
        return MasterTarget(self.address, self.native)


@asynccontextmanager
async def a_slave(
    service: StoreService,
    find: Guide,
    identity: Identity = IDENTITY,
    member: int = 1,
    *,
    certificate: TlsSettings | None = None,
    **changes: Any,
) -> AsyncIterator[Slave]:
    settings = ReplicationSettings(**changes)
    following = FollowingLog(service.store)
    async with Slave.open(following, settings, identity, member, find, Clock(), tls=certificate) as slave:
        yield slave


def log_bytes(store: MessageStore) -> bytes:
    """The log from its first file to its end."""
    log = store.components.commit_log
    return b"".join(bytes(segment.file.view()) for segment in log.segments)[: log.max_offset - log.min_offset]


async def loop_turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
