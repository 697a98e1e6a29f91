"""One client: its identity, its connections, its routes and heartbeats, shared by the producers and consumers on it."""

import os
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from ariane.client.handlers import ClientHandlers
from ariane.client.heartbeats import Heartbeats
from ariane.client.identity import client_id, client_ip
from ariane.client.nameservers import Nameservers
from ariane.client.parts import ConsumerPart, Parts, ProducerPart
from ariane.client.replies import Replies
from ariane.client.routes import Routes
from ariane.client.settings import ClientSettings, ClientTlsSettings
from ariane.client.signing import Signer
from ariane.clock import Clock
from ariane.errors import ClientClosed, RequestFailed, TransportError
from ariane.lifecycle import background, every
from ariane.model.address import Address
from ariane.model.route import MASTER_ID, BrokerData
from ariane.rpc.dispatcher import Dispatcher
from ariane.transport.connection import Connection
from ariane.transport.pool import Pool
from ariane.transport.tls import client_context
from ariane.wire.command import Command
from ariane.wire.exchange import read_answer, request_command
from ariane.wire.fields import Answer, Request
from ariane.wire.requests.clients import GetConsumerIds

A = TypeVar("A", bound=Answer)

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
        self, settings: ClientSettings, clock: Clock, ip: str, pool: Pool, parts: Parts, replies: Replies
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
        parts, replies = Parts(), Replies()
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
        return read_answer(request, await self._pool.call(address, command, timeout_s))

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

    def register_producer(self, group: str, part: ProducerPart) -> None:
        self.parts.add_producer(group, part)
        self._heartbeats.soon()

    def register_consumer(self, group: str, part: ConsumerPart) -> None:
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
