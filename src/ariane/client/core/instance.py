"""One client: its identity, its connections, its routes and heartbeats, shared by the producers and consumers on it."""

import asyncio
import logging
import os
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ariane.client.core.heartbeats import Heartbeats
from ariane.client.core.identity import Signer, client_id, client_ip
from ariane.client.core.lifecycle import RegisteredClients, RegisteredConsumer, RegisteredProducer
from ariane.client.core.routes import Nameservers, Routes
from ariane.client.settings import ClientSettings, ClientTlsSettings
from ariane.clock import Clock
from ariane.errors import ClientClosed, RequestFailed, TransportError, WireError
from ariane.lifecycle import background, every
from ariane.model.address import Address
from ariane.model.ids import QueueOffset
from ariane.model.message import Property, StoredMessage
from ariane.model.route import MASTER_ID, BrokerData, MessageQueue
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import Call, HandlerTable, handles
from ariane.transport.connection import Connection
from ariane.transport.pool import Pool
from ariane.transport.tls import client_context
from ariane.wire.codes import ResponseCode
from ariane.wire.compression import decompress
from ariane.wire.exchange import read_response, request_command
from ariane.wire.fields import Request, Response
from ariane.wire.frame import Command
from ariane.wire.properties import decode_properties
from ariane.wire.record.read import decode
from ariane.wire.requests.clients import (
    ConsumeDirectly,
    ConsumeDirectlyResponse,
    GetConsumerIds,
    GetRunningInfo,
    NotifyConsumerIdsChanged,
    RunningInfoResponse,
)
from ariane.wire.requests.offsets import (
    ConsumerStatus,
    ConsumerStatusResponse,
    GetClientStatus,
    OffsetList,
    ResetClientOffset,
)
from ariane.wire.requests.send import CheckTransaction, PushReply

# --- replies ---
#
# Answers to request messages, on their way from a broker to the caller who waits for them.

log = logging.getLogger(__name__)

_BODY_BYTES_MAX = 16 * 1024 * 1024


class Reply:
    """What a replier sent: `body` and `properties`."""

    __slots__ = ("body", "properties", "topic")

    def __init__(self, topic: str, body: bytes, properties: dict[str, str]) -> None:
        self.topic = topic
        self.body = body
        self.properties = properties


class Replies:
    """Who waits for which correlation id."""

    def __init__(self) -> None:
        self._waiters: dict[str, asyncio.Future[Reply]] = {}

    def expect(self, correlation_id: str) -> asyncio.Future[Reply]:
        waiter: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiters[correlation_id] = waiter
        return waiter

    def forget(self, correlation_id: str) -> None:
        self._waiters.pop(correlation_id, None)

    def arrived(self, pushed: PushReply) -> None:
        """Bytes from a stranger: what cannot be read is refused, what nobody waits for is dropped."""
        properties = decode_properties((pushed.properties or "").encode())
        waiter = self._waiters.pop(properties.get(Property.CORRELATION_ID, ""), None)
        if waiter is None or waiter.done():
            log.info("reply dropped: nobody waits for it any more", extra={"topic": pushed.topic})
            return
        try:
            body = decompress(pushed.body, pushed.sys_flag, _BODY_BYTES_MAX)
        except WireError as error:
            waiter.set_exception(error)
            raise
        waiter.set_result(Reply(pushed.topic, body, properties))


# --- handlers ---
#
# What brokers ask of clients, passed on to the producer or consumer it is about.


@dataclass(frozen=True)
class ClientHandlers:
    parts: RegisteredClients
    replies: Replies

    def table(self) -> HandlerTable:
        return HandlerTable.of(self)

    # --- to producers

    @handles(CheckTransaction)
    async def check_transaction(self, ask: CheckTransaction, call: Call) -> Response:
        """One-way: the answer is an EndTransaction of ours, sent when the application has made up its mind."""
        message = decode(ask.body)
        group = message.properties.get(Property.PRODUCER_GROUP, "")
        part = self.parts.producers.get(group)
        if part is None:
            raise _unknown("producer", group)
        await part.check_transaction(ask, message, call.connection.peer)
        return Response()

    @handles(PushReply)
    def push_reply(self, ask: PushReply, call: Call) -> Response:
        self.replies.arrived(ask)
        return Response()

    # --- to consumers

    @handles(NotifyConsumerIdsChanged)
    def members_changed(self, ask: NotifyConsumerIdsChanged, call: Call) -> Response:
        self._consumer(ask.consumer_group).rebalance_soon()
        return Response()

    @handles(ResetClientOffset)
    def reset_offsets(self, ask: ResetClientOffset, call: Call) -> Response:
        self._consumer(ask.group).reset_offsets(ask.topic, _offsets_of(ask))
        return Response()

    @handles(GetClientStatus)
    def status(self, ask: GetClientStatus, call: Call) -> ConsumerStatusResponse:
        offsets = self._consumer(ask.group).status(ask.topic)
        table = {queue: QueueOffset(offset) for queue, offset in offsets.items()}
        return ConsumerStatusResponse(body=ConsumerStatus(message_queue_table=table))

    @handles(GetRunningInfo)
    def running_info(self, ask: GetRunningInfo, call: Call) -> RunningInfoResponse:
        return RunningInfoResponse(body=self._consumer(ask.consumer_group).running_info())

    @handles(ConsumeDirectly)
    async def consume_directly(self, ask: ConsumeDirectly, call: Call) -> ConsumeDirectlyResponse:
        consumer = self._consumer(ask.consumer_group)
        message: StoredMessage = decode(ask.body)
        return ConsumeDirectlyResponse(body=await consumer.consume_directly(message, ask.broker_name))

    def _consumer(self, group: str) -> RegisteredConsumer:
        part = self.parts.consumers.get(group)
        if part is None:
            raise _unknown("consumer", group)
        return part


def _offsets_of(ask: ResetClientOffset) -> dict[MessageQueue, int]:
    if isinstance(ask.body, OffsetList):
        return {
            MessageQueue(topic=one.topic, broker_name=one.broker_name, queue_id=one.queue_id): one.offset
            for one in ask.body.offset_table
        }
    return dict(ask.body.offset_table)


def _unknown(kind: str, group: str) -> RequestFailed:
    return RequestFailed(ResponseCode.SYSTEM_ERROR, f"this client has no {kind} of group {group!r}")


# ---

A = TypeVar("A", bound=Response)

_VIP_PORT_BELOW = 2


class _Forks:
    """How many forks lie between this process and the first. To ask for the process id is a system call per message."""

    count = 0

    def note(self) -> None:
        self.count += 1


_forks = _Forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forks.note)


class Instance:
    """Made by `Instance.open`."""

    def __init__(
        self, settings: ClientSettings, clock: Clock, ip: str, pool: Pool, parts: RegisteredClients, replies: Replies
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.ip = ip
        self.client_id = client_id(ip, settings)
        self.parts = parts
        self.replies = replies
        self.nameservers = Nameservers(settings.nameserver_list, self, settings.nameserver_timeout_s)
        self.routes = Routes(self.nameservers, clock)
        self._heartbeats = Heartbeats(self.client_id, self, self.routes, self.parts)
        self._pool = pool
        self._signer = Signer.of(settings)
        self._pid = os.getpid()
        self._forks = _forks.count
        self._closed = False

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: ClientSettings, *, clock: Clock | None = None) -> AsyncIterator["Instance"]:
        """Contacts nobody yet: a nameserver that is down now may be up when the first message is sent."""
        clock = clock or Clock()
        parts, replies = RegisteredClients(), Replies()
        receive = Dispatcher(ClientHandlers(parts, replies).table()).receive
        async with Pool.open(settings.transport, clock, receive, _tls(settings.tls)) as pool:
            instance = cls(settings, clock, await client_ip(settings), pool, parts, replies)
            try:
                async with background(*instance._jobs()):
                    yield instance
            finally:
                instance._closed = True

    def _jobs(self) -> list[Any]:
        poll_s, beat_s = self.settings.route_poll_interval_s, self.settings.heartbeat_interval_s
        return [
            partial(every, self.clock, poll_s, self.routes.refresh, poll_s),
            partial(every, self.clock, beat_s, self._heartbeats.send, beat_s),
            self._heartbeats.run,
            self._fetch_wanted_routes,
        ]

    async def _fetch_wanted_routes(self) -> None:
        while True:
            await self.routes.wanted.wait()
            await self.routes.fetch_wanted()

    # --- calls ------------------------------------------------------------------------------------------------------

    async def call(self, address: str, request: Request[A], timeout_s: float | None = None) -> A:
        """The answer; RequestFailed when the peer refuses, TransportError when it cannot be reached or stays silent."""
        command = self._command(request, oneway=False)
        return read_response(request, await self._pool.call(address, command, timeout_s))

    def ready(self, address: str) -> Connection | None:
        """The connection to `address`, for `short_call`: None while it is not open, and where requests are signed."""
        self.check_usable()
        return self._pool.ready(address) if self._signer is None else None

    def ready_master(self, broker_name: str) -> Connection | None:
        """The same for the broker that takes messages."""
        address = self.routes.master_of(broker_name)
        return None if address is None else self.ready(self.send_address(address))

    async def oneway(self, address: str, request: Request[Any]) -> None:
        await self._pool.send(address, self._command(request, oneway=True))

    def _command(self, request: Request[Any], *, oneway: bool) -> Command:
        self.check_usable()
        command = request_command(request, opaque=0, oneway=oneway)
        if self._signer is not None:
            self._signer.sign(command)
        return command

    def check_usable(self) -> None:
        if self._closed:
            raise ClientClosed("this client is closed: open a new one")
        if _forks.count != self._forks:
            # A child shares the sockets of its parent: the two would read each other's answers.
            raise ClientClosed(
                f"this client belongs to process {self._pid}, and this is its fork {os.getpid()}: "
                "make a new client in the child"
            )

    def send_address(self, address: str) -> str:
        """Where to send messages for the broker at `address`: there, or through its VIP port."""
        if not self.settings.vip_channel:
            return address
        broker = Address.parse(address)
        return str(Address(broker.host, broker.port - _VIP_PORT_BELOW))

    # --- parts ------------------------------------------------------------------------------------------------------

    def register_producer(self, group: str, part: RegisteredProducer) -> None:
        self.parts.add_producer(group, part)
        self._heartbeats.soon()

    def register_consumer(self, group: str, part: RegisteredConsumer) -> None:
        self.parts.add_consumer(group, part)
        self._heartbeats.soon()

    async def unregister_producer(self, group: str) -> None:
        if self.parts.producers.pop(group, None) is not None:
            await self._heartbeats.unregister(producer_group=group)

    async def unregister_consumer(self, group: str) -> None:
        if self.parts.consumers.pop(group, None) is not None:
            await self._heartbeats.unregister(consumer_group=group)

    async def heartbeat_now(self) -> None:
        """Returns when every broker known has answered, or failed to."""
        await self._heartbeats.send()

    def heartbeat_soon(self) -> None:
        self._heartbeats.soon()

    async def ensure_known(self) -> None:
        """Returns when every broker known has heard of every part; no call when that is so already."""
        await self._heartbeats.ensure()

    async def consumer_ids(self, topic: str, group: str) -> list[str]:
        """The members of `group`, as one broker of `topic` knows them; empty when it knows none."""
        route = await self.routes.route(topic)
        for data in random.sample(route.broker_datas, len(route.broker_datas)):
            try:
                return (await self.call(_any_address(data), GetConsumerIds(group))).body.consumer_id_list
            except RequestFailed:
                return []
            except TransportError:
                continue
        return []


def _any_address(data: BrokerData) -> str:
    return data.broker_addrs.get(MASTER_ID) or random.choice(list(data.broker_addrs.values()))  # noqa: S311


def _tls(settings: ClientTlsSettings) -> ssl.SSLContext | None:
    if not settings.enable:
        return None
    context = client_context(settings.trust, settings.certificate, settings.key)
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
