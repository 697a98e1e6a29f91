"""The client's connection pool: one connection per address, opened on demand, reopened with exponential back-off."""

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
class _Target:
    """The state of one address: its connection, and when to try again after a failure."""

    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: Connection | None = None
    backoff: Backoff = field(default_factory=Backoff)
    not_before: float = 0.0
    last_error: str = ""

    @property
    def open(self) -> Connection | None:
        return self.connection if self.connection is not None and self.connection.is_open else None


class Pool:
    """Open it with `async with Pool.open(...)`. `receive` handles the requests that servers send to this client."""

    def __init__(
        self, settings: TransportSettings, clock: Clock, receive: Receiver, tls: ssl.SSLContext | None = None
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._receive = receive
        self._tls = tls
        self._targets: dict[str, _Target] = {}

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

    @property
    def call_timeout_s(self) -> float:
        """The timeout of a call that names none."""
        return self._settings.call_timeout_s

    async def call(self, address: str, command: Command, timeout_s: float | None = None) -> Command:
        """The response of `address` to `command`. The timeout covers connecting, sending and waiting."""
        timeout_s = self._settings.call_timeout_s if timeout_s is None else timeout_s
        ready = self.ready(address)
        if ready is not None:
            return await ready.call(command, timeout_s)
        began = self._clock.monotonic()
        connection = await self.connection(address, timeout_s)
        return await connection.call(command, max(0.0, timeout_s - (self._clock.monotonic() - began)))

    def ready(self, address: str) -> Connection | None:
        """The connection to `address` if a request can be sent on it without waiting."""
        target = self._targets.get(address)
        connection = None if target is None else target.connection
        return connection if connection is not None and connection.is_writable else None

    async def send(self, address: str, command: Command) -> None:
        await (await self.connection(address)).send(command)

    async def connection(self, address: str, timeout_s: float | None = None) -> Connection:
        """The open connection to `address`. Concurrent callers share one attempt to open it."""
        target = self._targets.setdefault(address, _Target())
        if target.open is not None:
            return target.open
        async with target.opening:
            if target.open is None:
                await self._reopen(address, target, timeout_s)
        assert target.connection is not None
        return target.connection

    async def _reopen(self, address: str, target: _Target, timeout_s: float | None) -> None:
        if target.connection is not None and target.connection.has_received_frame:
            target.backoff.reset()
            target.not_before = 0.0
        pause_s = target.not_before - self._clock.monotonic()
        if pause_s > 0:
            raise ConnectFailed(f"{address}: {target.last_error}; the next attempt is due in {pause_s:.2f} s")
        # The back-off is reset only after this connection has received a frame.
        target.not_before = self._clock.monotonic() + target.backoff.next_s()
        limit_s = min(self._settings.connect_timeout_s, timeout_s or self._settings.connect_timeout_s)
        target.last_error = "it closed the connection without a response"
        try:
            async with asyncio.timeout(limit_s):
                target.connection = await self._connect(address)
        except (OSError, ValueError) as error:  # TimeoutError and ssl.SSLError are OSErrors
            target.last_error = f"no connection within {limit_s} s" if isinstance(error, TimeoutError) else str(error)
            raise ConnectFailed(f"cannot connect to {address}: {target.last_error}") from error

    async def _connect(self, address: str) -> Connection:
        parsed = Address.parse(address)
        transport, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(self._receive, self._settings, self._clock, lambda _: None),
            parsed.host,
            parsed.port,
            ssl=self._tls,
        )
        set_options(transport.get_extra_info("socket"), self._settings.keepalive_idle_s)
        return connection

    async def _close(self) -> None:
        leaving = TaskSet()
        for target in self._targets.values():
            if target.open is not None:
                leaving.spawn(target.open.drain(self._settings.drain_timeout_s))
        await leaving.wait()
        self._targets.clear()
