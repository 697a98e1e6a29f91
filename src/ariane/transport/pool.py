"""Outgoing connections: one per address, opened when needed, opened again with growing pauses."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ariane.clock import Clock
from ariane.errors import ConnectFailed
from ariane.lifecycle import Backoff, TaskSet
from ariane.model.address import Address
from ariane.transport.connection import Connection, Receiver
from ariane.transport.listener import set_options
from ariane.transport.settings import TransportSettings
from ariane.wire.frame import Command


@dataclass(eq=False, slots=True)
class _Line:
    """What is known about one address."""

    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: Connection | None = None
    backoff: Backoff = field(default_factory=Backoff)
    not_before: float = 0.0
    last_error: str = ""

    @property
    def open(self) -> Connection | None:
        return self.connection if self.connection is not None and self.connection.is_open else None


class Pool:
    """Made by `Pool.open`. `receive` answers what servers ask over connections that this end opened."""

    def __init__(
        self, settings: TransportSettings, clock: Clock, receive: Receiver, tls: ssl.SSLContext | None = None
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._receive = receive
        self._tls = tls
        self._lines: dict[str, _Line] = {}

    @classmethod
    @asynccontextmanager
    async def open(
        cls, settings: TransportSettings, clock: Clock, receive: Receiver, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator["Pool"]:
        pool = cls(settings, clock, receive, tls)
        try:
            yield pool
        finally:
            await pool._close()

    async def call(self, address: str, command: Command, timeout_s: float | None = None) -> Command:
        """The answer of `address` to `command`. The time covers connecting, sending and waiting."""
        timeout_s = self._settings.call_timeout_s if timeout_s is None else timeout_s
        ready = self.ready(address)
        if ready is not None:
            return await ready.call(command, timeout_s)
        began = self._clock.monotonic()
        connection = await self.connection(address, timeout_s)
        return await connection.call(command, max(0.0, timeout_s - (self._clock.monotonic() - began)))

    def ready(self, address: str) -> Connection | None:
        """The connection to `address` if a request would leave at once."""
        line = self._lines.get(address)
        connection = None if line is None else line.connection
        return connection if connection is not None and connection.takes_requests else None

    async def send(self, address: str, command: Command) -> None:
        await (await self.connection(address)).send(command)

    async def connection(self, address: str, timeout_s: float | None = None) -> Connection:
        """The open connection to `address`. Callers who come while it is being opened share the attempt."""
        line = self._lines.setdefault(address, _Line())
        if line.open is not None:
            return line.open
        async with line.opening:
            if line.open is None:
                await self._reopen(address, line, timeout_s)
        assert line.connection is not None
        return line.connection

    async def _reopen(self, address: str, line: _Line, timeout_s: float | None) -> None:
        if line.connection is not None and line.connection.served_a_frame:
            line.backoff.reset()
            line.not_before = 0.0
        pause_s = line.not_before - self._clock.monotonic()
        if pause_s > 0:
            raise ConnectFailed(f"{address}: {line.last_error}; the next attempt is due in {pause_s:.2f} s")
        # Until this connection has carried an answer, the next attempt has to wait its turn.
        line.not_before = self._clock.monotonic() + line.backoff.next_s()
        limit_s = min(self._settings.connect_timeout_s, timeout_s or self._settings.connect_timeout_s)
        line.last_error = "it closed the connection without an answer"
        try:
            async with asyncio.timeout(limit_s):
                line.connection = await self._connect(address)
        except (OSError, ValueError) as error:  # TimeoutError and ssl.SSLError are OSErrors
            line.last_error = f"no connection within {limit_s} s" if isinstance(error, TimeoutError) else str(error)
            raise ConnectFailed(f"cannot connect to {address}: {line.last_error}") from error

    async def _connect(self, address: str) -> Connection:
        where = Address.parse(address)
        transport, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(self._receive, self._settings, self._clock, lambda _: None),
            where.host,
            where.port,
            ssl=self._tls,
        )
        set_options(transport.get_extra_info("socket"), self._settings.keepalive_idle_s)
        return connection

    async def _close(self) -> None:
        leaving = TaskSet()
        for line in self._lines.values():
            if line.open is not None:
                leaving.spawn(line.open.drain(self._settings.drain_timeout_s))
        await leaving.wait()
        self._lines.clear()
