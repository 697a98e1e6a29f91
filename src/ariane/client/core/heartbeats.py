"""Heartbeats: sent to every broker of the cached routes every 30 s, and immediately when a registration changes."""

import asyncio
import logging
from typing import Any

from ariane.client.core.lifecycle import RegisteredClients
from ariane.client.core.routes import Calls, Routes
from ariane.errors import ArianeError
from ariane.lifecycle import TaskSet
from ariane.wire.fields import Request
from ariane.wire.requests.clients import Heartbeat, HeartbeatData, UnregisterClient

log = logging.getLogger(__name__)

_TIMEOUT_S = 3.0  # as in Apache's clients


class Heartbeats:
    def __init__(self, client_id: str, calls: Calls, routes: Routes, clients: RegisteredClients) -> None:
        self._client_id = client_id
        self._calls = calls
        self._routes = routes
        self._clients = clients
        self._up_to_date: set[str] = set()  # brokers that know of all registered clients
        self._registered_at: set[str] = set()  # brokers that know of at least one
        self._due = asyncio.Event()
        self._in_flight = TaskSet()
        routes.on_change(lambda _topic, _route: self._send_to_new_brokers())

    async def send(self) -> None:
        """Sends to all brokers concurrently; returns when all have responded or failed. A failure is only logged."""
        self._due.clear()
        if not self._clients.is_empty:
            self._to_all(Heartbeat(body=self._data()), self._addresses())
            await self._in_flight.wait()

    async def ensure(self) -> None:
        """Returns when every known broker has every registration; without a call if that is already so."""
        if not self._addresses() <= self._up_to_date:
            await self.send()

    def send_soon(self) -> None:
        """A registration changed: every broker needs a new heartbeat."""
        self._up_to_date.clear()
        self._due.set()

    async def run(self) -> None:
        """Sends a heartbeat after each `send_soon`, and when a route names a new broker."""
        try:
            while True:
                await self._due.wait()
                await self.send()
        finally:
            self._in_flight.cancel()

    async def unregister(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        """Unregisters a producer or consumer at the brokers, which would otherwise keep it for 120 s.

        Waits first until every heartbeat is answered, also one whose sender was cancelled meanwhile. Apache's brokers
        handle the two requests in different threads: a broker that handles the unregistration first would then take
        the heartbeat and keep a member that is gone.
        """
        await self._in_flight.wait()
        request = UnregisterClient(self._client_id, producer_group, consumer_group)
        self._to_all(request, self._addresses(slaves=True) & self._registered_at)
        await self._in_flight.wait()

    def _send_to_new_brokers(self) -> None:
        if not self._clients.is_empty and not self._addresses() <= self._up_to_date:
            self._due.set()

    def _addresses(self, *, slaves: bool = False) -> set[str]:
        """Only consumers read from slaves, so producers send them no heartbeat."""
        return self._routes.addresses(slaves=slaves or bool(self._clients.consumers))

    def _data(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self._client_id,
            producer_data_set=[client.producer_data() for client in self._clients.producers.values()],
            consumer_data_set=[client.consumer_data() for client in self._clients.consumers.values()],
        )

    def _to_all(self, request: Request[Any], addresses: set[str]) -> None:
        for address in addresses:
            self._in_flight.spawn(self._to_one(request, address))

    async def _to_one(self, request: Request[Any], address: str) -> None:
        try:
            await self._calls.call(address, request, _TIMEOUT_S)
        except ArianeError as error:
            self._up_to_date.discard(address)
            log.warning("heartbeat failed", extra={"broker": address, "reason": str(error)})
        else:
            if isinstance(request, Heartbeat):
                self._up_to_date.add(address)
                self._registered_at.add(address)
