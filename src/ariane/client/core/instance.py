"""A client instance: identity, connections, routes and heartbeats, shared by the producers and consumers on it.

It also receives the requests that brokers send to clients (`ClientHandlers`) and the replies of request-reply messaging
(`PendingReplies`).
"""

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
from ariane.client.core.identity import client_id, client_ip, signer_of
from ariane.client.core.lifecycle import RegisteredClients, RegisteredConsumer, RegisteredProducer
from ariane.client.core.routes import Nameservers, Routes
from ariane.client.settings import ClientSettings, ClientTlsSettings
from ariane.clock import Clock
from ariane.errors import ClientClosed, ConnectFailed, ConnectionLost, RequestFailed, TransportError, WireError
from ariane.lifecycle import background, every
from ariane.model.address import Address
from ariane.model.ids import QueueOffset
from ariane.model.message import Property, StoredMessage
from ariane.model.route import BrokerData, MessageQueue
from ariane.model.topic import AUTO_CREATE_TEMPLATE
from ariane.rpc.caller import call_signed
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import Call, HandlerTable, handles
from ariane.rpc.signing import Signer
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
    GetMaxOffset,
    OffsetList,
    ResetClientOffset,
)
from ariane.wire.requests.send import CheckTransaction, PushReply

log = logging.getLogger(__name__)

_BODY_BYTES_MAX = 16 * 1024 * 1024


class Reply:
    """The reply to a request message: `body` and `properties`."""

    __slots__ = ("body", "properties", "topic")

    def __init__(self, topic: str, body: bytes, properties: dict[str, str]) -> None:
        self.topic = topic
        self.body = body
        self.properties = properties


class PendingReplies:
    """Callers that wait for a reply, by correlation id."""

    def __init__(self) -> None:
        self._waiters: dict[str, asyncio.Future[Reply]] = {}

    def expect(self, correlation_id: str) -> asyncio.Future[Reply]:
        waiter: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiters[correlation_id] = waiter
        return waiter

    def forget(self, correlation_id: str) -> None:
        self._waiters.pop(correlation_id, None)

    def resolve(self, pushed: PushReply) -> None:
        """Untrusted bytes: an unreadable reply raises, and a reply that no caller waits for is dropped."""
        properties = decode_properties((pushed.properties or "").encode())
        waiter = self._waiters.pop(properties.get(Property.CORRELATION_ID, ""), None)
        if waiter is None or waiter.done():
            log.info("reply dropped: its request has timed out", extra={"topic": pushed.topic})
            return
        try:
            body = decompress(pushed.body, pushed.sys_flag, _BODY_BYTES_MAX)
        except WireError as error:
            waiter.set_exception(error)
            raise
        waiter.set_result(Reply(pushed.topic, body, properties))


@dataclass(frozen=True)
class ClientHandlers:
    """Handlers of requests from brokers: each is passed on to the producer or consumer of the group it names."""

    clients: RegisteredClients
    replies: PendingReplies

    def table(self) -> HandlerTable:
        return HandlerTable.of(self)

    # --- to producers

    @handles(CheckTransaction)
    async def check_transaction(self, request: CheckTransaction, call: Call) -> Response:
        """One-way: the client responds with an EndTransaction when the application has decided."""
        message = decode(request.body)
        group = message.properties.get(Property.PRODUCER_GROUP, "")
        producer = self.clients.producers.get(group)
        if producer is None:
            raise _unknown("producer", group)
        await producer.check_transaction(request, message, call.connection.peer)
        return Response()

    @handles(PushReply)
    def push_reply(self, request: PushReply, call: Call) -> Response:
        self.replies.resolve(request)
        return Response()

    # --- to consumers

    @handles(NotifyConsumerIdsChanged)
    def members_changed(self, request: NotifyConsumerIdsChanged, call: Call) -> Response:
        self._consumer(request.consumer_group).rebalance_soon()
        return Response()

    @handles(ResetClientOffset)
    def reset_offsets(self, request: ResetClientOffset, call: Call) -> Response:
        self._consumer(request.group).reset_offsets(request.topic, _offsets_of(request))
        return Response()

    @handles(GetClientStatus)
    def status(self, request: GetClientStatus, call: Call) -> ConsumerStatusResponse:
        offsets = self._consumer(request.group).status(request.topic)
        table = {queue: QueueOffset(offset) for queue, offset in offsets.items()}
        return ConsumerStatusResponse(body=ConsumerStatus(message_queue_table=table))

    @handles(GetRunningInfo)
    def running_info(self, request: GetRunningInfo, call: Call) -> RunningInfoResponse:
        return RunningInfoResponse(body=self._consumer(request.consumer_group).running_info())

    @handles(ConsumeDirectly)
    async def consume_directly(self, request: ConsumeDirectly, call: Call) -> ConsumeDirectlyResponse:
        consumer = self._consumer(request.consumer_group)
        message: StoredMessage = decode(request.body)
        return ConsumeDirectlyResponse(body=await consumer.consume_directly(message, request.broker_name))

    def _consumer(self, group: str) -> RegisteredConsumer:
        consumer = self.clients.consumers.get(group)
        if consumer is None:
            raise _unknown("consumer", group)
        return consumer


def _offsets_of(request: ResetClientOffset) -> dict[MessageQueue, int]:
    if isinstance(request.body, OffsetList):
        return {
            MessageQueue(topic=entry.topic, broker_name=entry.broker_name, queue_id=entry.queue_id): entry.offset
            for entry in request.body.offset_table
        }
    return dict(request.body.offset_table)


def _unknown(kind: str, group: str) -> RequestFailed:
    return RequestFailed(ResponseCode.SYSTEM_ERROR, f"this client has no {kind} of group {group!r}")


A = TypeVar("A", bound=Response)

_VIP_PORT_BELOW = 2
_PROBE = GetMaxOffset(AUTO_CREATE_TEMPLATE, 0)
"""Every broker answers it: of Apache's, too."""


class _Forks:
    """Counts forks of this process. Checked for each message instead of the process id, which costs a system call."""

    count = 0

    def increment(self) -> None:
        self.count += 1


_forks = _Forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forks.increment)


class Instance:
    """Made by `Instance.open`."""

    def __init__(
        self,
        settings: ClientSettings,
        clock: Clock,
        ip: str,
        pool: Pool,
        clients: RegisteredClients,
        replies: PendingReplies,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.ip = ip
        self.client_id = client_id(ip, settings)
        self.clients = clients
        self.replies = replies
        self.nameservers = Nameservers(settings.nameserver_list, self, settings.nameserver_timeout_s)
        self.routes = Routes(self.nameservers, clock)
        self._heartbeats = Heartbeats(self.client_id, self, self.routes, self.clients)
        self._pool = pool
        self._signer = signer_of(settings, clock.now_ms)
        self._pid = os.getpid()
        self._forks = _forks.count
        self._closed = False

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: ClientSettings, *, clock: Clock | None = None) -> AsyncIterator["Instance"]:
        """Opens no connection yet: a nameserver that is down now may be up when the first message is sent."""
        clock = clock or Clock()
        clients, replies = RegisteredClients(), PendingReplies()
        receive = Dispatcher(ClientHandlers(clients, replies).table()).receive
        async with Pool.open(settings.transport, clock, receive, _tls(settings.tls)) as pool:
            instance = cls(settings, clock, await client_ip(settings), pool, clients, replies)
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
            self._fetch_missing_routes,
        ]

    async def _fetch_missing_routes(self) -> None:
        while True:
            await self.routes.missing.wait()
            await self.routes.fetch_missing()

    # --- calls ------------------------------------------------------------------------------------------------------

    async def call(self, address: str, request: Request[A], timeout_s: float | None = None) -> A:
        """The response; RequestFailed if the peer refuses, TransportError if it is unreachable or does not respond."""
        command = self._command(request, oneway=False)
        try:
            if self._signer is None:
                response = await self._pool.call(address, command, timeout_s)
            else:
                response = await self._call_signed(self._signer, address, command, timeout_s)
        except (ConnectFailed, ConnectionLost):
            self.routes.silent.add(address)
            raise
        self.routes.silent.remove(address)
        return read_response(request, response)

    async def _call_signed(self, signer: Signer, address: str, command: Command, timeout_s: float | None) -> Command:
        timeout_s = self.settings.transport.call_timeout_s if timeout_s is None else timeout_s
        return await call_signed(self._pool, signer, address, command, timeout_s)

    def ready(self, address: str) -> Connection | None:
        """The connection to `address`, for `call_with_frame`: None while it is not open, or if requests are signed."""
        self.check_usable()
        return self._pool.ready(address) if self._signer is None else None

    def ready_master(self, broker_name: str) -> Connection | None:
        """The same for the master of `broker_name`, which takes messages."""
        address = self.routes.master_of(broker_name)
        return None if address is None else self.ready(self.send_address(address))

    async def oneway(self, address: str, request: Request[Any]) -> None:
        command = self._command(request, oneway=True)
        if self._signer is None:
            await self._pool.send(address, command)
            return
        connection = await self._pool.connection(address)
        if not self._signer.is_known(connection):
            # There is no response that could say how to sign it, so another request asks first.
            await self._call_signed(self._signer, address, request_command(_PROBE, opaque=0), None)
        self._signer.sign(command, connection)
        await connection.send(command)

    def _command(self, request: Request[Any], *, oneway: bool) -> Command:
        self.check_usable()
        return request_command(request, opaque=0, oneway=oneway)

    def check_usable(self) -> None:
        if self._closed:
            raise ClientClosed("this client is closed: open a new one")
        if _forks.count != self._forks:
            # A child shares the sockets of its parent: the two would read each other's responses.
            raise ClientClosed(
                f"this client belongs to process {self._pid}, and this is its fork {os.getpid()}: "
                "make a new client in the child"
            )

    def send_address(self, address: str) -> str:
        """Where to send messages for the broker at `address`: that address, or its VIP port."""
        if not self.settings.vip_channel:
            return address
        broker = Address.parse(address)
        return str(Address(broker.host, broker.port - _VIP_PORT_BELOW))

    # --- registered producers and consumers -------------------------------------------------------------------------

    def register_producer(self, group: str, producer: RegisteredProducer) -> None:
        self.clients.add_producer(group, producer)
        self._heartbeats.send_soon()

    def register_consumer(self, group: str, consumer: RegisteredConsumer) -> None:
        self.clients.add_consumer(group, consumer)
        self._heartbeats.send_soon()

    async def unregister_producer(self, group: str) -> None:
        if self.clients.producers.pop(group, None) is not None:
            await self._heartbeats.unregister(producer_group=group)

    async def unregister_consumer(self, group: str) -> None:
        if self.clients.consumers.pop(group, None) is not None:
            await self._heartbeats.unregister(consumer_group=group)

    async def heartbeat_now(self) -> None:
        """Returns when every known broker has responded or failed."""
        await self._heartbeats.send()

    def heartbeat_soon(self) -> None:
        self._heartbeats.send_soon()

    async def ensure_registered(self) -> None:
        """Returns when every known broker has every registration; without a call if that is already so."""
        await self._heartbeats.ensure()

    async def consumer_ids(self, topic: str, group: str) -> list[str]:
        """The client ids of `group`, as one broker of `topic` knows them; empty when it knows none."""
        route = await self.routes.route(topic)
        for data in random.sample(route.broker_datas, len(route.broker_datas)):
            for address in self._by_preference(data):
                try:
                    return (await self.call(address, GetConsumerIds(group))).body.consumer_id_list
                except RequestFailed:
                    return []
                except TransportError:
                    continue
        return []

    def _by_preference(self, data: BrokerData) -> list[str]:
        """The master first, and last what did not respond lately."""
        addresses = [address for _, address in sorted(data.broker_addrs.items())]
        return sorted(addresses, key=self.routes.silent.__contains__)


def _tls(settings: ClientTlsSettings) -> ssl.SSLContext | None:
    if not settings.enable:
        return None
    context = client_context(settings.trust, settings.certificate, settings.key)
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
