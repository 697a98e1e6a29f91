"""Signs of life: to every broker of the routes known, every 30 s, and at once when there is something new to tell."""

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
    def __init__(self, client_id: str, calls: Calls, routes: Routes, parts: RegisteredClients) -> None:
        self._client_id = client_id
        self._calls = calls
        self._routes = routes
        self._parts = parts
        self._greeted: set[str] = set()  # who knows of all our parts
        self._introduced: set[str] = set()  # who knows of any
        self._due = asyncio.Event()
        self._unanswered = TaskSet()
        routes.on_change(lambda _topic, _route: self._greet_newcomers())

    async def send(self) -> None:
        """To all brokers at the same time; returns when all have answered or failed. A failure is only logged."""
        self._due.clear()
        if not self._parts.is_empty:
            self._to_all(Heartbeat(body=self._data()), self._addresses())
            await self._unanswered.wait()

    async def ensure(self) -> None:
        """Returns when every broker known has heard of every part; at once when that is so already."""
        if not self._addresses() <= self._greeted:
            await self.send()

    def soon(self) -> None:
        """There is news for every broker."""
        self._greeted.clear()
        self._due.set()

    async def run(self) -> None:
        """Sends whenever there is news."""
        try:
            while True:
                await self._due.wait()
                await self.send()
        finally:
            self._unanswered.cancel()

    async def unregister(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        """Tells the brokers that a part leaves, so that they need not wait 120 s to find out.

        Not before they have answered every heartbeat, also one whose sender was cancelled meanwhile: Apache's brokers
        handle the two in different threads, and one that takes the farewell first keeps a member that is gone.
        """
        await self._unanswered.wait()
        leave = UnregisterClient(self._client_id, producer_group, consumer_group)
        self._to_all(leave, self._addresses(slaves=True) & self._introduced)
        await self._unanswered.wait()

    def _greet_newcomers(self) -> None:
        if not self._parts.is_empty and not self._addresses() <= self._greeted:
            self._due.set()

    def _addresses(self, *, slaves: bool = False) -> set[str]:
        """Slaves only matter to those who read from them."""
        return self._routes.addresses(slaves=slaves or bool(self._parts.consumers))

    def _data(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self._client_id,
            producer_data_set=[part.producer_data() for part in self._parts.producers.values()],
            consumer_data_set=[part.consumer_data() for part in self._parts.consumers.values()],
        )

    def _to_all(self, request: Request[Any], addresses: set[str]) -> None:
        for address in addresses:
            self._unanswered.spawn(self._to_one(request, address))

    async def _to_one(self, request: Request[Any], address: str) -> None:
        try:
            await self._calls.call(address, request, _TIMEOUT_S)
        except ArianeError as error:
            self._greeted.discard(address)
            log.warning("broker did not take our sign of life", extra={"broker": address, "reason": str(error)})
        else:
            if isinstance(request, Heartbeat):
                self._greeted.add(address)
                self._introduced.add(address)
