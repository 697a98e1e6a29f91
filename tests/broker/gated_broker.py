"""A whole broker over a real socket whose messages are visible when the test confirms them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ariane.broker.components import Components
from ariane.broker.server import dispatcher_of
from ariane.clock import Clock
from ariane.model.topic import TopicConfig
from ariane.replication.role import Replication
from ariane.rpc.caller import Caller
from ariane.store.append.draft import Appended, Draft
from ariane.store.consume_queue.gate import Gate
from ariane.store.message_store import MessageStore
from ariane.transport.server import Server
from ariane.transport.settings import TlsSettings, TransportSettings
from ariane.wire.fields import Request, Response
from ariane.wire.record.read import decode_all
from tests.broker.brokers import broker_settings
from tests.broker.in_process_broker import STORE_HOST, TOPIC, a_pull
from tests.nameserver.servers import caller
from tests.store.stores import put
from tests.transport.peers import LOOPBACK

A = TypeVar("A", bound=Response)


@dataclass
class GatedBroker:
    parts: Components
    address: str
    client: Caller
    epoch: int = field(default=1)

    @property
    def store(self) -> MessageStore:
        return self.parts.store.store

    @property
    def gate(self) -> Gate:
        assert self.store.gate is not None
        return self.store.gate

    async def call(self, request: Request[A], timeout_s: float = 30) -> A:
        return await self.client.call(self.address, request, timeout_s)

    def put(self, *drafts: Draft) -> list[Appended]:
        return put(self.store, *drafts)

    def confirm(self, offset: int | None = None) -> None:
        """All that is stored, or what ends at this offset of the log or before."""
        self.gate.confirm(self.store.components.commit_log.max_offset if offset is None else offset, self.epoch)

    def next_epoch(self) -> None:
        self.epoch += 1
        self.gate.begin_epoch(self.epoch)

    async def bodies(self, topic: str = TOPIC, queue_id: int = 0, **changes: Any) -> list[bytes]:
        """What a consumer gets that begins at 0."""
        response = await self.call(a_pull(topic=topic, queue_id=queue_id, **changes))
        return [message.body for message in decode_all(response.body)]


@asynccontextmanager
async def gated_broker(tmp_path: Path, clock: Clock | None = None, **settings: Any) -> AsyncIterator[GatedBroker]:
    """Topic `orders` with four queues. Its first epoch has begun."""
    clock, failures = clock or Clock(), list[Exception]()
    chosen = broker_settings(tmp_path, **settings)
    async with Components.open(chosen, clock, STORE_HOST, gated=True) as parts, caller() as client:
        dispatcher = dispatcher_of(parts, Replication())
        parts.topics.put(TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4))
        await parts.topics.saved()
        receive, fast_path = dispatcher.receive, dispatcher.fast_path
        async with Server.open(LOOPBACK, receive, TransportSettings(), TlsSettings(), Clock(), fast_path) as server:
            broker = GatedBroker(parts, str(server.address), client)
            broker.gate.begin_epoch(1)
            try:
                yield broker
            except Exception as error:  # a failed assertion as it is, not in the groups of the jobs around it
                failures.append(error)
            parts.pull_waiters.respond_all()
            broker.gate.end_epoch()
    for failure in failures:
        raise failure
