"""The end of replication that a broker has by its role: a master's port, or a slave's connection and copied tables."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from ariane.clock import Clock
from ariane.model.address import Address
from ariane.replication.hello import Identity
from ariane.replication.master import Master
from ariane.replication.metadata import MasterDirectory, MetadataSync, Tables
from ariane.replication.settings import ReplicationSettings
from ariane.replication.slave import Slave
from ariane.rpc.caller import Caller
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import HandlerTable
from ariane.rpc.signing import Signer
from ariane.store.following import FollowingLog
from ariane.store.service import StoreService
from ariane.transport.pool import Pool
from ariane.transport.settings import TlsSettings, TransportSettings


class Waiting(Protocol):
    """Whose messages are settled only when a slave has them: the writer of a SYNC_MASTER."""

    def wait_for_slaves(self, master: Master) -> None: ...


@dataclass(frozen=True, slots=True)
class Replication:
    """Of a running broker: `master`, or the three others."""

    master: Master | None = None
    slave: Slave | None = None
    metadata: MetadataSync | None = None
    directory: MasterDirectory | None = None

    @property
    def on_master(self) -> Callable[[str | None, str | None], None] | None:
        """What gets the nameserver's word about the master of a slave."""
        return None if self.directory is None else self.directory.learn

    def ask_nameservers_by(self, ask: Callable[[], None]) -> None:
        """A slave that has lost its master asks for another one at once."""
        if self.directory is not None:
            self.directory.ask_by(ask)


@dataclass(frozen=True, slots=True)
class ReplicationRole:
    settings: ReplicationSettings
    identity: Identity
    clock: Clock
    transport: TransportSettings
    tls: TlsSettings

    @asynccontextmanager
    async def master(
        self, address: Address, service: StoreService, waiting: Waiting | None
    ) -> AsyncIterator[Replication]:
        async with Master.open(
            address, service, self.settings, self.identity, self.clock, transport=self.transport, tls=self.tls
        ) as master:
            if waiting is not None:
                waiting.wait_for_slaves(master)
            yield Replication(master=master)

    @asynccontextmanager
    async def slave(self, member: int, following: FollowingLog, tables: Tables) -> AsyncIterator[Replication]:
        async with Pool.open(self.transport, self.clock, Dispatcher(HandlerTable.of()).receive) as pool:
            caller = Caller(pool, signer=self._signer())
            directory = MasterDirectory(caller, self.settings, self.identity)
            async with (
                MetadataSync.open(directory, caller, tables, following, self.clock) as metadata,
                Slave.open(
                    following,
                    self.settings,
                    self.identity,
                    member,
                    directory.find,
                    self.clock,
                    dispatched=metadata.dispatched,
                    transport=self.transport,
                    tls=self.tls,
                ) as slave,
            ):
                yield Replication(slave=slave, metadata=metadata, directory=directory)

    def _signer(self) -> Signer | None:
        key, secret = self.settings.access_key, self.settings.secret_key
        return None if key is None or secret is None else Signer(key, secret, self.clock.now_ms)
