"""The group handlers of a broker behind a real socket, and clients that send it single frames."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ariane.broker.admin.clients import ConnectionHandlers
from ariane.broker.admin.groups import GroupHandlers
from ariane.broker.admin.offsets import ConsumerOffsetHandlers
from ariane.broker.groups.configs import Groups
from ariane.broker.groups.lag import ConsumeProgress
from ariane.broker.groups.locks import LockHandlers, QueueLocks
from ariane.broker.groups.members import ClientLimits, Clients, RebalanceNotifier
from ariane.broker.groups.offsets import ConsumerOffsets
from ariane.broker.heartbeats import ClientHandlers
from ariane.broker.json_table import JsonTable
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.model.group import ConsumeFromWhere, ConsumeType, MessageModel, Subscription
from ariane.model.topic import TopicConfig
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import HandlerTable
from ariane.store.message_store import MessageStore
from ariane.testing import FakeClock
from ariane.transport.server import Server
from ariane.wire.codes import HeaderFlag, ResponseCode
from ariane.wire.exchange import read_response, request_command
from ariane.wire.fields import Request, Response
from ariane.wire.frame import Command, encode_frame
from ariane.wire.requests.clients import ConsumerData, Heartbeat, HeartbeatData, ProducerData
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import opened
from tests.transport.peers import RawClient, connected, serving

A = TypeVar("A", bound=Response)
CONFIG = Path("/store/config")
SETTINGS = BrokerSettings(name="broker-a", host="127.0.0.1", advertised_host="127.0.0.1", port=10911)


@dataclass
class GroupBroker:
    settings: BrokerSettings
    clock: FakeClock
    disk: SimulatedDisk
    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets
    clients: Clients
    locks: QueueLocks = field(default_factory=QueueLocks)

    @property
    def progress(self) -> ConsumeProgress:
        return ConsumeProgress(self.settings.name, self.topics, self.offsets, self.clients, self.store)

    def handlers(self) -> HandlerTable:
        settings, clients, clock = self.settings, self.clients, self.clock
        return HandlerTable.of(
            ClientHandlers(settings, clients, self.groups, self.topics, clock),
            LockHandlers(settings, self.locks, self.topics, self.groups, clock),
            ConsumerOffsetHandlers(settings, self.offsets, self.groups, self.topics, clients, self.store),
            GroupHandlers(settings, self.groups, self.offsets, clients, self.progress, clock),
            ConnectionHandlers(settings, clients, self.store, clock),
        )

    def topic(self, name: str, queues: int = 4, **more: Any) -> None:
        self.topics.put(TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, **more))


def group_broker(settings: BrokerSettings = SETTINGS, limits: ClientLimits | None = None) -> GroupBroker:
    clock, disk = FakeClock(), SimulatedDisk()
    groups = Groups(settings, JsonTable(disk, CONFIG / "subscriptionGroup.json"), clock)
    clients = Clients(RebalanceNotifier(settings, groups.get).members_changed, limits=limits)
    return GroupBroker(
        settings=settings,
        clock=clock,
        disk=disk,
        store=opened(disk, clock),
        topics=Topics(settings, None, clock),
        groups=groups,
        offsets=ConsumerOffsets(JsonTable(disk, CONFIG / "consumerOffset.json")),
        clients=clients,
    )


@dataclass
class RawGroupClient:
    """One client connection: sends requests, and collects the requests that the broker pushes."""

    raw: RawClient
    pushed: list[Command] = field(default_factory=list)
    _opaque: int = 100

    async def send_request(self, request: Request[A], **header: Any) -> Command:
        self._opaque += 1
        command = request_command(request, opaque=self._opaque)
        for name, value in header.items():
            setattr(command, name, value)
        await self.raw.send(encode_frame(command))
        while True:
            response = await self.raw.read()
            if response.flag & HeaderFlag.RESPONSE and response.opaque == self._opaque:
                return response
            self.pushed.append(response)

    async def call(self, request: Request[A], **header: Any) -> A:
        return read_response(request, await self.send_request(request, **header))

    async def error_response(self, request: Request[Any], **header: Any) -> tuple[int, str]:
        response = await self.send_request(request, **header)
        assert response.code != ResponseCode.SUCCESS
        return response.code, response.remark or ""

    async def next_pushed(self) -> Command:
        return self.pushed.pop(0) if self.pushed else await self.raw.read()

    async def answer(self, command: Command, body: bytes, code: int = 0, remark: str | None = None) -> None:
        flag = HeaderFlag.RESPONSE
        reply = Command(code=code, opaque=command.opaque, flag=flag, body=body, remark=remark)
        await self.raw.send(encode_frame(reply))


@asynccontextmanager
async def running(broker: GroupBroker) -> AsyncIterator[Server]:
    async with serving(Dispatcher(broker.handlers()).receive) as server:
        yield server


@asynccontextmanager
async def connected_client(server: Server) -> AsyncIterator[RawGroupClient]:
    async with connected(server) as raw:
        yield RawGroupClient(raw)


def subscription(topic: str, expression: str = "*", version: int = 1, kind: str = "TAG") -> Subscription:
    return Subscription(topic=topic, sub_string=expression, sub_version=version, expression_type=kind)


def consumer(group: str, *subscriptions: Subscription, model: MessageModel = MessageModel.CLUSTERING) -> ConsumerData:
    return ConsumerData(
        group_name=group,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=model,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscription_data_set=list(subscriptions),
    )


def heartbeat(client_id: str, *consumers: ConsumerData, producers: tuple[str, ...] = ()) -> Heartbeat:
    return Heartbeat(
        body=HeartbeatData(
            client_id=client_id,
            producer_data_set=[ProducerData(group_name=name) for name in producers],
            consumer_data_set=list(consumers),
        )
    )
