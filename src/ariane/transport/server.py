"""Listens, gives every connection its bounds, and drains them all on close.

When the house is full, a newcomer takes the place of the oldest guest that has not yet said a whole frame; only when
every guest has spoken is the newcomer refused. So a flood of silent connections cannot keep honest clients out.
"""

import asyncio
import errno
import logging
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from socket import socket

from ariane.clock import Clock
from ariane.lifecycle import TaskSet, background, every
from ariane.model.address import Address
from ariane.transport.connection import Connection, FastPath, Receiver
from ariane.transport.listener import affordable_connections, listen, set_options
from ariane.transport.settings import TlsMode, TlsSettings, TransportSettings
from ariane.transport.tls import begins_with_tls, server_context

log = logging.getLogger(__name__)

_NO_ROOM_FOR_FILES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_SWEEP_LONGEST_S = 0.5


@dataclass(eq=False, slots=True)
class _Guest:
    """A peer from accept to close; `connection` comes once it is known whether the peer speaks TLS."""

    peer: socket
    host: str
    connection: Connection | None = None

    @property
    def is_silent(self) -> bool:
        return self.connection is None or not self.connection.served_a_frame

    def expel(self) -> None:
        if self.connection is not None:
            self.connection.abort()
        else:
            self.peer.close()


class Server:
    """Made by `Server.open`, which is also its whole life."""

    def __init__(
        self,
        listener: socket,
        receive: Receiver,
        settings: TransportSettings,
        tls: TlsSettings,
        clock: Clock,
        fast_path: FastPath | None = None,
    ) -> None:
        self._listener = listener
        self._receive = receive
        self._fast_path = fast_path
        self._settings = settings
        self._tls_mode = tls.mode
        self._tls = server_context(tls)
        self._clock = clock
        self._connections_max = affordable_connections(settings.connections_max)
        self._guests: dict[_Guest, None] = {}  # oldest first
        self._per_host: Counter[str] = Counter()
        self._starting = TaskSet()
        self._refused = 0
        self.address = Address(*listener.getsockname()[:2])

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        address: Address,
        receive: Receiver,
        settings: TransportSettings,
        tls: TlsSettings,
        clock: Clock,
        fast_path: FastPath | None = None,
    ) -> AsyncIterator["Server"]:
        with listen(address, settings.backlog) as listener:
            server = cls(listener, receive, settings, tls, clock, fast_path)
            async with background(server._sweep_for_ever):
                try:
                    async with background(server._accept_for_ever):
                        yield server
                finally:
                    await server._drain()

    @property
    def connections(self) -> int:
        return len(self._guests)

    # --- arrivals ---------------------------------------------------------------------------------------------------

    async def _accept_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                peer, name = await loop.sock_accept(self._listener)
            except OSError as error:
                if error.errno in _NO_ROOM_FOR_FILES:
                    log.warning("cannot accept: the process has no room for more files", extra={"error": str(error)})
                    await asyncio.sleep(0.1)
                elif error.errno != errno.ECONNABORTED:  # the peer gave up while it waited: its own business
                    raise
                continue
            guest = _Guest(peer, name[0])
            if self._make_room(guest.host):
                self._guests[guest] = None
                self._per_host[guest.host] += 1
                self._starting.spawn(self._start(guest))
            else:
                self._refused += 1
                peer.close()

    def _make_room(self, host: str) -> bool:
        if self._per_host[host] >= self._settings.connections_per_address_max:
            return self._expel_silent(host)
        if len(self._guests) >= self._connections_max:
            return self._expel_silent(None)
        return True

    def _expel_silent(self, host: str | None) -> bool:
        for guest in self._guests:
            if guest.is_silent and host in (None, guest.host):
                self._forget(guest)
                guest.expel()
                self._refused += 1
                return True
        return False

    async def _start(self, guest: _Guest) -> None:
        loop = asyncio.get_running_loop()
        try:
            set_options(guest.peer, self._settings.keepalive_idle_s)
            async with asyncio.timeout(self._settings.first_frame_timeout_s):
                context = await self._choose_tls(guest)
                await loop.connect_accepted_socket(partial(self._connection, guest), guest.peer, ssl=context)
        except (OSError, ssl.SSLError, TimeoutError) as error:
            if guest in self._guests:
                log.info("connection not started", extra={"peer": guest.host, "reason": str(error) or "silent"})
            self._forget(guest)
            guest.expel()

    async def _choose_tls(self, guest: _Guest) -> ssl.SSLContext | None:
        if self._tls is None:
            return None  # a TLS hello then fails as an oversized frame
        if await begins_with_tls(guest.peer):
            return self._tls
        if self._tls_mode is TlsMode.ENFORCING:
            raise ConnectionRefusedError("plain text at a server that enforces TLS")
        return None

    def _connection(self, guest: _Guest) -> Connection:
        def opened(connection: Connection) -> None:
            connection.on_close(partial(self._forget, guest))
            guest.connection = connection
            if guest not in self._guests:  # expelled while its TLS hello was awaited
                connection.abort()

        return Connection(self._receive, self._settings, self._clock, opened, self._fast_path)

    # --- departures -------------------------------------------------------------------------------------------------

    def _forget(self, guest: _Guest) -> None:
        if guest in self._guests:
            del self._guests[guest]
            self._per_host[guest.host] -= 1
            if not self._per_host[guest.host]:
                del self._per_host[guest.host]

    async def _sweep_for_ever(self) -> None:
        limits = self._settings
        shortest_s = min(limits.first_frame_timeout_s, limits.frame_timeout_s, limits.idle_timeout_s)
        interval_s = min(_SWEEP_LONGEST_S, shortest_s / 4)
        await every(self._clock, interval_s, self._sweep, first=interval_s)

    def _sweep(self) -> None:
        now = self._clock.monotonic()
        for guest in list(self._guests):
            connection = guest.connection
            reason = connection.overdue(now) if connection is not None else None
            if connection is not None and reason is not None:
                log.info("connection closed: out of time", extra={"peer": connection.peer, "reason": reason})
                connection.abort()
        if self._refused:  # one line for all of them, or a flood of connections would be a flood of lines
            log.warning("connections refused: full", extra={"refused": self._refused, "open": len(self._guests)})
            self._refused = 0

    async def _drain(self) -> None:
        self._starting.cancel()
        await self._starting.wait()
        leaving = TaskSet()
        for guest in list(self._guests):
            if guest.connection is not None:
                leaving.spawn(guest.connection.drain(self._settings.drain_timeout_s))
        await leaving.wait()
