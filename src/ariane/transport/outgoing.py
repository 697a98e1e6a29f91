"""The half of a connection that writes: requests and their answers' waiters, flow control, and the end of the socket.

What is asked in one turn of the loop leaves in one write. A peer that does not read is waited for, so that nothing
piles up here; how the other half reacts to that is its own affair (`pause_writing`, `resume_writing`).
"""

import asyncio
from collections.abc import Callable
from typing import Any

from ariane.clock import Clock
from ariane.errors import CallTimeout, ConnectionLost, TooManyInFlight
from ariane.transport.settings import TransportSettings
from ariane.transport.waiters import Waiters
from ariane.wire.command import Command
from ariane.wire.frame import encode_frame

_TOGETHER_BYTES = 64 * 1024  # requests of one turn of the loop are written at the latest when they reach this
_OPAQUE_MAX = 2**31 - 1


class Outgoing(asyncio.Protocol):
    def __init__(self, settings: TransportSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._closers: list[Callable[[], None]] = []
        self._waiters: Waiters[Command] = Waiters()
        self._opaque = 0
        self._requests: list[bytes] = []
        self._requests_bytes = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.Event()
        self._active_at = clock.monotonic()
        self.peer = "?"

    # --- life -------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        self.peer = address_text(transport.get_extra_info("peername"))
        self._live().set_write_buffer_limits(high=self._settings.write_buffer_bytes_max)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()
        self._writable.set()
        why = f": {exc}" if exc else ""
        self._waiters.fail_all(ConnectionLost(f"the connection to {self.peer} closed before the answer came{why}"))
        closers, self._closers = self._closers, []
        for closer in closers:
            closer()

    def on_close(self, closer: Callable[[], None]) -> None:
        """Calls `closer` once, when the connection is gone."""
        self._closers.append(closer)

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        """Sends what is already written, then closes."""
        self._send_requests()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Closes at once."""
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def write(self, data: bytes) -> None:
        """Sends `data` if the peer is still there; uvloop would raise on a closed transport."""
        if self.is_open:
            self._active_at = self._clock.monotonic()
            self._live().write(data)

    def _live(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    # --- requests ---------------------------------------------------------------------------------------------------

    @property
    def takes_requests(self) -> bool:
        """Whether a request would leave at once: the peer is there, and reads."""
        return self._writable.is_set() and self.is_open

    @property
    def calls_in_flight(self) -> int:
        return len(self._waiters)

    async def call(self, command: Command, timeout_s: float) -> Command:
        """Sends a request and waits for its answer. A time-out leaves nothing behind; a late answer is dropped."""
        opaque = command.opaque = self.next_opaque()
        waiter = self._wait_for(opaque, timeout_s)
        try:
            if self.takes_requests:
                self._send_soon(encode_frame(command))
            else:
                async with asyncio.timeout(timeout_s):
                    await self.send(command)
            return await waiter
        except TimeoutError:
            raise self.no_answer(command.code, timeout_s) from None
        finally:
            self._waiters.drop(opaque, waiter)

    def ask(self, opaque: int, frame: bytes, timeout_s: float) -> "asyncio.Future[Command]":
        """The short way of `call`, while the peer `takes_requests`: for who writes frames by itself.

        Who awaits the answer must `forget` it if it does not get there. A TimeoutError means `no_answer`.
        """
        waiter = self._wait_for(opaque, timeout_s)
        self._send_soon(frame)
        return waiter

    def forget(self, opaque: int, waiter: "asyncio.Future[Command]") -> None:
        self._waiters.drop(opaque, waiter)

    def no_answer(self, code: int, timeout_s: float) -> CallTimeout:
        return CallTimeout(f"{self.peer} did not answer request {code} within {timeout_s} s: its outcome is unknown")

    def _wait_for(self, opaque: int, timeout_s: float) -> "asyncio.Future[Command]":
        if len(self._waiters) >= self._settings.calls_max:
            raise TooManyInFlight(f"{len(self._waiters)} calls to {self.peer} already wait for their answers")
        return self._waiters.add(opaque, timeout_s)

    async def send(self, command: Command) -> None:
        """Sends without waiting for an answer; waits while the peer does not read."""
        await self._writable.wait()
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self.peer} is closed")
        self._send_soon(encode_frame(command))

    def _send_soon(self, frame: bytes) -> None:
        """Requests of one turn of the loop leave in one write: a consumer's eight pulls cost one system call."""
        if not self._requests:
            asyncio.get_running_loop().call_soon(self._send_requests)
        self._requests.append(frame)
        self._requests_bytes += len(frame)
        if self._requests_bytes >= _TOGETHER_BYTES:
            self._send_requests()

    def _send_requests(self) -> None:
        if self._requests:
            frames, self._requests, self._requests_bytes = self._requests, [], 0
            self.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def next_opaque(self) -> int:
        """From 1 (Node's client takes 0 for missing), wrapping within int32, never one that is still awaited."""
        while True:
            self._opaque = 1 if self._opaque >= _OPAQUE_MAX else self._opaque + 1
            if self._opaque not in self._waiters:
                return self._opaque


def address_text(name: Any) -> str:
    """A socket's address as people write it."""
    if isinstance(name, tuple) and len(name) >= 2:
        host, port = name[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(name or "?")
