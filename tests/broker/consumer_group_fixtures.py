"""The part of a broker that deals with groups, behind a real socket, and clients that speak to it frame by frame."""

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
from ariane.broker.groups.members import ClientLimits, Clients, MemberNotices
from ariane.broker.groups.offsets import ConsumerOffsets
from ariane.broker.heartbeats import ClientHandlers
from ariane.broker.json_table import TableFile
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
from ariane.wire.exchange import read_answer, request_command
from ariane.wire.fields import Answer, Request
from ariane.wire.frame import Command, encode_frame
from ariane.wire.requests.clients import ConsumerData, Heartbeat, HeartbeatData, ProducerData
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import opened
from tests.transport.peers import RawClient, connected, serving

A = TypeVar("A", bound=Answer)
CONFIG = Path("/store/config")
SETTINGS = BrokerSettings(name="broker-a", host="127.0.0.1", advertised_host="127.0.0.1", port=10911)


@dataclass
class Office:
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
            LockHandlers(self.locks, self.topics, clock),
            ConsumerOffsetHandlers(settings, self.offsets, self.groups, self.topics, clients, self.store),
            GroupHandlers(settings, self.groups, self.offsets, clients, self.progress, clock),
            ConnectionHandlers(settings, clients, self.store, clock),
        )

    def topic(self, name: str, queues: int = 4, **more: Any) -> None:
        self.topics.put(TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, **more))


def office(settings: BrokerSettings = SETTINGS, limits: ClientLimits | None = None) -> Office:
    clock, disk = FakeClock(), SimulatedDisk()
    groups = Groups(settings, TableFile(disk, CONFIG / "subscriptionGroup.json"), clock)
    clients = Clients(MemberNotices(settings, groups.get).members_changed, limits=limits)
    return Office(
        settings=settings,
        clock=clock,
        disk=disk,
        store=opened(disk, clock),
        topics=Topics(settings, None, clock),
        groups=groups,
        offsets=ConsumerOffsets(TableFile(disk, CONFIG / "consumerOffset.json")),
        clients=clients,
    )


@dataclass
class Speaker:
    """One connection of a client: calls, and keeps what the broker says unasked."""

    raw: RawClient
    told: list[Command] = field(default_factory=list)
    _opaque: int = 100

    async def ask(self, ask: Request[A], **header: Any) -> Command:
        self._opaque += 1
        command = request_command(ask, opaque=self._opaque)
        for name, value in header.items():
            setattr(command, name, value)
        await self.raw.send(encode_frame(command))
        while True:
            answer = await self.raw.read()
            if answer.flag & HeaderFlag.RESPONSE and answer.opaque == self._opaque:
                return answer
            self.told.append(answer)

    async def call(self, ask: Request[A], **header: Any) -> A:
        return read_answer(ask, await self.ask(ask, **header))

    async def refusal(self, ask: Request[Any], **header: Any) -> tuple[int, str]:
        answer = await self.ask(ask, **header)
        assert answer.code != ResponseCode.SUCCESS
        return answer.code, answer.remark or ""

    async def next_told(self) -> Command:
        return self.told.pop(0) if self.told else await self.raw.read()

    async def answer(self, command: Command, body: bytes, code: int = 0, remark: str | None = None) -> None:
        flag = HeaderFlag.RESPONSE
        reply = Command(code=code, opaque=command.opaque, flag=flag, body=body, remark=remark)
        await self.raw.send(encode_frame(reply))


@asynccontextmanager
async def at_work(parts: Office) -> AsyncIterator[Server]:
    async with serving(Dispatcher(parts.handlers()).receive) as server:
        yield server


@asynccontextmanager
async def speaker(server: Server) -> AsyncIterator[Speaker]:
    async with connected(server) as raw:
        yield Speaker(raw)


def subscription(topic: str, expression: str = "*", version: int = 1, kind: str = "TAG") -> Subscription:
    return Subscription(topic=topic, sub_string=expression, sub_version=version, expression_type=kind)


def consumer(group: str, *wanted: Subscription, model: MessageModel = MessageModel.CLUSTERING) -> ConsumerData:
    return ConsumerData(
        group_name=group,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=model,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscription_data_set=list(wanted),
    )


def heartbeat(client_id: str, *consumers: ConsumerData, producers: tuple[str, ...] = ()) -> Heartbeat:
    return Heartbeat(
        body=HeartbeatData(
            client_id=client_id,
            producer_data_set=[ProducerData(group_name=name) for name in producers],
            consumer_data_set=list(consumers),
        )
    )
