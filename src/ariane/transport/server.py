"""The TCP server: accepts connections, enforces connection limits and timeouts, and drains them all on close.

When the connection limit is reached, a new connection is accepted by evicting the oldest one that has not yet sent a
complete frame. It is refused only if every open connection has sent one. So a flood of silent connections cannot keep
real clients out.
"""

import asyncio
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
from ariane.transport.listener import accept_forever, connection_limit, listen, set_options
from ariane.transport.memory_budget import MemoryBudget
from ariane.transport.settings import TlsSettings, TransportSettings
from ariane.transport.tls import chosen_tls, server_context

log = logging.getLogger(__name__)

_SWEEP_INTERVAL_MAX_S = 0.5


@dataclass(eq=False, slots=True)
class _Peer:
    """An accepted peer until it closes. `connection` is set once it is known whether the peer speaks TLS."""

    socket: socket
    host: str
    connection: Connection | None = None

    @property
    def is_silent(self) -> bool:
        return self.connection is None or not self.connection.has_received_frame

    def close(self) -> None:
        if self.connection is not None:
            self.connection.abort()
        else:
            self.socket.close()


class Server:
    """Open it with `async with Server.open(...)`: leaving the block stops the server."""

    def __init__(
        self,
        listener: socket,
        receive: Receiver,
        settings: TransportSettings,
        tls: TlsSettings,
        clock: Clock,
        fast_path: FastPath | None = None,
        memory: MemoryBudget | None = None,
    ) -> None:
        self._receive = receive
        self._fast_path = fast_path
        self._memory = memory or MemoryBudget(settings.memory_bytes_max)
        self._settings = settings
        self._tls_mode = tls.mode
        self._tls = server_context(tls)
        self._clock = clock
        self._connections_max = connection_limit(settings.connections_max)
        self._per_address_max = settings.connections_per_address_max or -(-self._connections_max // 2)
        self._peers: dict[_Peer, None] = {}  # oldest first
        self._per_host: Counter[str] = Counter()
        self._starting = TaskSet()
        self._refused: Counter[str] = Counter()  # by the limit
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
        memory: MemoryBudget | None = None,
    ) -> AsyncIterator["Server"]:
        """`memory` is shared by the servers of a process; without it, this one has its own."""
        with listen(address, settings.backlog) as listener:
            server = cls(listener, receive, settings, tls, clock, fast_path, memory)
            async with background(server._sweep_forever):
                try:
                    async with background(partial(accept_forever, listener, server._accept)):
                        yield server
                finally:
                    await server._drain()

    @property
    def connections(self) -> int:
        return len(self._peers)

    # --- accept -----------------------------------------------------------------------------------------------------

    def _accept(self, accepted: socket, host: str) -> None:
        peer = _Peer(accepted, host)
        if self._make_room(peer.host):
            self._peers[peer] = None
            self._per_host[peer.host] += 1
            self._starting.spawn(self._start(peer))
        else:
            accepted.close()

    def _make_room(self, host: str) -> bool:
        """Whether there is room for one more from this host; silent connections are closed for it."""
        if self._per_host[host] >= self._per_address_max:
            self._refused[f"connections_per_address_max ({self._per_address_max})"] += 1
            return self._evict_silent(host)
        if len(self._peers) >= self._connections_max:
            self._refused[f"connections_max ({self._connections_max})"] += 1
            return self._evict_silent(None)
        return True

    def _evict_silent(self, host: str | None) -> bool:
        for peer in self._peers:
            if peer.is_silent and host in (None, peer.host):
                self._forget(peer)
                peer.close()
                return True
        return False

    async def _start(self, peer: _Peer) -> None:
        loop = asyncio.get_running_loop()
        try:
            set_options(peer.socket, self._settings.keepalive_idle_s)
            async with asyncio.timeout(self._settings.first_frame_timeout_s):
                context = await chosen_tls(peer.socket, self._tls, self._tls_mode)
                await loop.connect_accepted_socket(partial(self._connection, peer), peer.socket, ssl=context)
        except (OSError, ssl.SSLError, TimeoutError) as error:
            if peer in self._peers:
                log.info("connection not started", extra={"peer": peer.host, "reason": str(error) or "silent"})
            self._forget(peer)
            peer.close()

    def _connection(self, peer: _Peer) -> Connection:
        def opened(connection: Connection) -> None:
            connection.on_close(partial(self._forget, peer))
            peer.connection = connection
            if peer not in self._peers:  # evicted during the TLS handshake
                connection.abort()

        return Connection(self._receive, self._settings, self._clock, opened, self._fast_path, self._memory)

    # --- timeouts and close -----------------------------------------------------------------------------------------

    def _forget(self, peer: _Peer) -> None:
        if peer in self._peers:
            del self._peers[peer]
            self._per_host[peer.host] -= 1
            if not self._per_host[peer.host]:
                del self._per_host[peer.host]

    async def _sweep_forever(self) -> None:
        limits = self._settings
        shortest_s = min(limits.first_frame_timeout_s, limits.frame_timeout_s, limits.idle_timeout_s)
        interval_s = min(_SWEEP_INTERVAL_MAX_S, shortest_s / 4)
        await every(self._clock, interval_s, self._sweep, first=interval_s)

    def _sweep(self) -> None:
        now = self._clock.monotonic()
        self._memory.measure()
        for peer in list(self._peers):
            connection = peer.connection
            reason = connection.overdue(now) if connection is not None else None
            if connection is not None and reason is not None:
                log.info("connection closed: timeout", extra={"peer": connection.peer, "reason": reason})
                connection.abort()
        for limit, refused in self._refused.items():  # one line each: a flood must not become a flood of log lines
            fields = {"limit": limit, "refused": refused, "open": len(self._peers)}
            log.warning("connections refused: limit reached", extra=fields)
        self._refused.clear()

    async def _drain(self) -> None:
        self._starting.cancel()
        await self._starting.wait()
        leaving = TaskSet()
        for peer in list(self._peers):
            if peer.connection is not None:
                leaving.spawn(peer.connection.drain(self._settings.drain_timeout_s))
        await leaving.wait()
