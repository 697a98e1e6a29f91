"""The send and pull side of a broker over real sockets: a store, its tables and these handlers, and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, TypeVar

from ariane.broker.acl.guard import AccessControl
from ariane.broker.admin.messages import MessageHandlers
from ariane.broker.admin.topics import QueueHandlers
from ariane.broker.groups.configs import Groups
from ariane.broker.groups.members import Clients
from ariane.broker.groups.offsets import ConsumerOffsets
from ariane.broker.heartbeats import ClientHandlers
from ariane.broker.pull.checks import PullChecks
from ariane.broker.pull.handler import PullHandlers
from ariane.broker.pull.long_polling import PullWaiters
from ariane.broker.send.checks import SendChecks
from ariane.broker.send.flow_control import FlowControl
from ariane.broker.send.handler import SendHandlers
from ariane.broker.send.responses import SendResponses
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.broker.writer import MessageWriter
from ariane.clock import Clock
from ariane.model.group import ConsumeFromWhere, ConsumeType, MessageModel, Subscription
from ariane.model.message import HostPort, StoredMessage
from ariane.model.topic import TopicConfig
from ariane.rpc.caller import Caller
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import HandlerTable
from ariane.store.message_store import MessageStore
from ariane.store.service import StoreService
from ariane.store.settings import FlushDiskType, StoreSettings
from ariane.transport.memory_budget import MemoryBudget
from ariane.transport.pool import Pool
from ariane.transport.server import Server
from ariane.transport.settings import TlsSettings, TransportSettings
from ariane.wire.fields import Request, Response
from ariane.wire.host import encode_host
from ariane.wire.properties import encode_properties
from ariane.wire.record.read import decode_all
from ariane.wire.requests.clients import ConsumerData, Heartbeat, HeartbeatData
from ariane.wire.requests.pull import PullMessage, PullResponse
from ariane.wire.requests.send import SendMessageV2
from tests.transport.peers import LOOPBACK

STORE_HOST = encode_host(HostPort(IPv4Address("127.0.0.1"), 10911))
TOPIC = "orders"
GROUP = "billing"

A = TypeVar("A", bound=Response)


@dataclass
class InProcessBroker:
    address: str
    server: Server
    settings: BrokerSettings
    service: StoreService
    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets
    clients: Clients
    writer: MessageWriter
    pull_waiters: PullWaiters
    caller: Caller
    dispatcher: Dispatcher

    @property
    def store(self) -> MessageStore:
        return self.service.store

    async def call(self, request: Request[A], timeout_s: float = 10) -> A:
        return await self.caller.call(self.address, request, timeout_s)

    async def pulled(self, **changes: Any) -> tuple[PullResponse, list[StoredMessage]]:
        response = await self.call(a_pull(**changes))
        return response, decode_all(response.body)

    async def subscribe(self, *subscriptions: Subscription, group: str = GROUP, **changes: Any) -> None:
        """A heartbeat over the connection that `call` uses."""
        data = {
            "consume_type": ConsumeType.CONSUME_PASSIVELY,
            "message_model": MessageModel.CLUSTERING,
            "consume_from_where": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            **changes,
        }
        consumer = ConsumerData(group_name=group, subscription_data_set=list(subscriptions), **data)
        await self.call(Heartbeat(body=HeartbeatData(client_id="client-1", consumer_data_set=[consumer])))


@asynccontextmanager
async def in_process_broker(
    tmp_path: Path,
    clock: Clock | None = None,
    *,
    flush: FlushDiskType = FlushDiskType.ASYNC,
    topics: Sequence[TopicConfig] = (TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4),),
    waiting_max: int = 10_000,
    pulls_max: int = 100_000,
    pulls_per_connection_max: int = 20_000,
    memory: MemoryBudget | None = None,
    store: dict[str, Any] | None = None,
    fast_path: bool = True,
    access: AccessControl | None = None,
    gated: bool = False,
    **changes: Any,
) -> AsyncIterator[InProcessBroker]:
    clock = clock or Clock()
    sizes = {"segment_bytes": 8 * 1024 * 1024, "queue_segment_bytes": 20_000, "index_slots": 500, "index_entries": 2000}
    stored = StoreSettings(root=tmp_path / "store", flush_disk_type=flush, **{**sizes, **(store or {})})
    settings = BrokerSettings(store=stored, name="broker-a", port=0, **changes)
    async with (
        StoreService.open(stored, clock, STORE_HOST, gated=gated) as service,
        PullWaiters.open(clock, pulls_max, pulls_per_connection_max, memory) as pull_waiters,
    ):
        service.store.components.dispatcher.on_arrivals(pull_waiters.on_arrivals, wanted=pull_waiters.__len__)
        tables = Topics(settings, None, clock), Groups(settings, None, clock), ConsumerOffsets(None), Clients()
        table, groups, offsets, clients = tables
        for config in topics:
            table.put(config)
        writer = MessageWriter(service, settings, clock)
        flow, checks = FlowControl(service.store, writer, settings, waiting_max), SendChecks(settings, table, clock)
        pull_checks = PullChecks(settings, table, groups, clients)
        handlers = HandlerTable.of(
            SendHandlers(
                settings, table, groups, service.store, writer, flow, checks, SendResponses(settings, STORE_HOST)
            ),
            PullHandlers(settings, pull_checks, offsets, service, writer, pull_waiters, clock, STORE_HOST),
            QueueHandlers(service.store),
            MessageHandlers(settings, service, clients),
            ClientHandlers(settings, clients, groups, table, clock),
        )
        dispatcher = (
            Dispatcher(handlers)
            if access is None
            else Dispatcher(handlers, access.guard, access.admits_frame, access.signatures.frame_left)
        )
        transport = replace(TransportSettings(), drain_timeout_s=1.0)
        async with (
            Server.open(
                LOOPBACK,
                dispatcher.receive,
                transport,
                TlsSettings(),
                Clock(),
                dispatcher.fast_path if fast_path else None,
            ) as server,
            Pool.open(TransportSettings(), Clock(), Dispatcher(HandlerTable.of()).receive) as pool,
        ):
            address = str(server.address)
            yield InProcessBroker(
                address,
                server,
                settings,
                service,
                table,
                groups,
                offsets,
                clients,
                writer,
                pull_waiters,
                Caller(pool),
                dispatcher,
            )
            pull_waiters.respond_all()


def a_send(body: bytes = b"hello", properties: dict[str, str] | str | None = None, **changes: Any) -> SendMessageV2:
    text = encode_properties(properties).decode() if isinstance(properties, dict) else properties
    fields = {
        "producer_group": "shop",
        "topic": TOPIC,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000,
        "flag": 0,
    }
    return SendMessageV2(**{**fields, "properties": text, "body": body, **changes})


def a_pull(**changes: Any) -> PullMessage:
    """With the subscription in it, so that no heartbeat is needed; it does not wait."""
    fields = {
        "consumer_group": GROUP,
        "topic": TOPIC,
        "queue_id": 0,
        "queue_offset": 0,
        "max_msg_nums": 32,
        "sys_flag": 4,
        "commit_offset": 0,
        "suspend_timeout_millis": 15_000,
        "sub_version": 0,
        "subscription": "*",
    }
    return PullMessage(**{**fields, **changes})


async def turns(number: int = 20) -> None:
    """Lets the loop turn, for what needs no more than that."""
    for _ in range(number):
        await asyncio.sleep(0)
