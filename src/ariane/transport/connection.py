"""One socket, at either end: bytes to commands, answers to waiters, bounded in every direction.

Both ends may ask. A response is matched to its waiter by the opaque number; a request goes to `receive`, which returns
the answer's bytes, a coroutine that will, or None. All answers to one chunk of input leave in one write: measured, a
write per answer costs 1.5 to 1.8 times as much.

A server may have a fast path for the most frequent requests: it sees frames before they are decoded, and takes those
that it knows. What it takes it answers by itself, by `write` or `start`, at the latest in the next turn of the
loop.

Reading stops while too many requests are in flight or the peer does not read its answers. What was read but not yet
cut into commands waits in the decoder, so the bound holds for bytes that have already arrived, too.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any, Generic, TypeVar

from ariane.clock import Clock
from ariane.errors import CallTimeout, ConnectionLost, TooManyInFlight, WireError
from ariane.lifecycle import TaskSet
from ariane.transport.settings import TransportSettings
from ariane.wire.codes import HeaderFlag
from ariane.wire.frame import Command, FrameDecoder, FrameLimits, encode_frame

# --- waiters ---
#
# Calls in flight on one connection: who waits for which answer, and until when.
#
# One timer serves them all. It is set to the earliest deadline, and when it goes off it looks through whoever waits
# then; calls that were answered meanwhile cost it nothing. With `asyncio.timeout` around each call a loop sets and
# clears thousands of timers that never go off.

T = TypeVar("T")

_SLACK_S = 0.001  # loops round their timers to milliseconds, and one that is early would only be set again


class PendingCalls(Generic[T]):
    """By opaque number. A call whose time is over ends with a TimeoutError."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[asyncio.Future[T], float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, opaque: int) -> bool:
        return opaque in self._waiting

    def add(self, opaque: int, timeout_s: float) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        waiter: asyncio.Future[T] = asyncio.Future(loop=loop)
        self._waiting[opaque] = waiter, deadline
        if deadline < self._timer_at:
            self._set_timer(loop, deadline)
        return waiter

    def settle(self, opaque: int, response: T) -> bool:
        """Whether somebody waited for it."""
        waiting = self._waiting.pop(opaque, None)
        if waiting is None:
            return False
        if not waiting[0].done():
            waiting[0].set_result(response)
        return True

    def drop(self, opaque: int, waiter: asyncio.Future[T]) -> None:
        """Nobody waits any more; a late answer will find nobody."""
        self._waiting.pop(opaque, None)
        if not waiter.cancel() and not waiter.cancelled():
            waiter.exception()  # perhaps it was not looked at, and it need not be

    def fail_all(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, {}
        for waiter, _ in waiting.values():
            if not waiter.done():
                waiter.set_exception(error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at = None, inf

    def _set_timer(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = loop.call_at(deadline, self._expire, loop), deadline

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self._timer_at = None, inf
        late_from = loop.time() + _SLACK_S
        for opaque in [opaque for opaque, (_, deadline) in self._waiting.items() if deadline <= late_from]:
            waiter, _ = self._waiting.pop(opaque)
            if not waiter.done():
                waiter.set_exception(TimeoutError())
        if self._waiting:
            self._set_timer(loop, min(deadline for _, deadline in self._waiting.values()))


# --- outgoing ---
#
# The half of a connection that writes: requests and their answers' waiters, flow control, and the end of the socket.
#
# What is asked in one turn of the loop leaves in one write. A peer that does not read is waited for, so that nothing
# piles up here; how the other half reacts to that is its own affair (`pause_writing`, `resume_writing`).

_TOGETHER_BYTES = 64 * 1024  # requests of one turn of the loop are written at the latest when they reach this
_OPAQUE_MAX = 2**31 - 1


class ConnectionWriter(asyncio.Protocol):
    def __init__(self, settings: TransportSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._closers: list[Callable[[], None]] = []
        self._waiters: PendingCalls[Command] = PendingCalls()
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


# ---

log = logging.getLogger(__name__)


Reply = bytes | Coroutine[Any, Any, bytes | None] | None
Receiver = Callable[["Connection", Command], Reply]

FastPath = Callable[["Connection", bytes, int], int]
"""Takes the frames that it knows, from a position of the bytes on, and returns where it stopped. It must not raise."""

_COALESCE_BYTES = 256 * 1024  # answers to one chunk are written at the latest when they reach this


class Connection(ConnectionWriter):
    def __init__(
        self,
        receive: Receiver,
        settings: TransportSettings,
        clock: Clock,
        opened: Callable[["Connection"], None],
        fast_path: FastPath | None = None,
    ) -> None:
        super().__init__(settings, clock)
        self._receive = receive
        self._fast_path = fast_path
        self._opened = opened
        self._decoder = FrameDecoder(FrameLimits(settings.frame_bytes_max, settings.header_bytes_max))
        self._handlers = TaskSet()
        self._in_flight = 0
        self._paused = False
        self._draining = False
        self.served_a_frame = False
        self._opened_at = self._active_at
        self._frame_began_at: float | None = None

    # --- life -------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._handlers.cancel()
        super().connection_lost(exc)

    async def drain(self, timeout_s: float) -> None:
        """Takes no new request, lets running ones answer, sends what is written, closes: all within the time."""
        self._draining = True
        self._pace_reading()
        deadline = self._clock.monotonic() + timeout_s
        await asyncio.sleep(0)  # what a fast path took in this turn is answered, or has its task, in the next
        await self._handlers.wait(timeout_s)
        self._handlers.cancel()
        self.close()
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                await self._closed.wait()
        except TimeoutError:
            self.abort()
            await self._closed.wait()

    def overdue(self, now: float) -> str | None:
        """Why this peer has had its time, or None."""
        limits = self._settings
        if not self.served_a_frame and now - self._opened_at > limits.first_frame_timeout_s:
            return f"no whole frame within {limits.first_frame_timeout_s} s of connecting"
        began = self._frame_began_at
        if began is not None and not self._must_wait() and now - began > limits.frame_timeout_s:
            return f"a frame took longer than {limits.frame_timeout_s} s"
        if now - self._active_at > limits.idle_timeout_s:
            return f"idle for more than {limits.idle_timeout_s} s"
        return None

    # --- in ---------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._active_at = self._clock.monotonic()
        self._decoder.feed(data)
        self._take_commands()

    def _take_commands(self) -> None:
        responses: list[bytes] = []
        size = 0
        progress = False
        decoder = self._decoder
        try:
            while True:
                while self._take_fast_path():
                    progress = True
                if decoder.position == len(decoder.data):  # told here, it costs less than by StopIteration
                    break
                command = next(decoder, None)
                if command is None:
                    break
                progress = True
                if command.flag & HeaderFlag.RESPONSE:
                    self._settle(command)
                    continue
                reply = self._receive(self, command)
                if isinstance(reply, bytes):
                    responses.append(reply)
                    size += len(reply)
                    if size >= _COALESCE_BYTES:
                        self.write(b"".join(responses))
                        responses, size = [], 0
                elif reply is not None:
                    self.start(reply)
                if self._must_wait():
                    break
        except WireError as error:
            self._refuse(responses, error)
            return
        if responses:
            self.write(b"".join(responses))
        self._note_frames(progress)
        self._pace_reading()

    def _take_fast_path(self) -> bool:
        """Whether the fast path took any of the frames that come next."""
        decoder = self._decoder
        began = decoder.position
        if self._fast_path is None or began == len(decoder.data) or self._must_wait():
            return False
        decoder.position = self._fast_path(self, decoder.data, began)
        return decoder.position > began

    def start(self, reply: Coroutine[Any, Any, bytes | None]) -> None:
        """Sends what `reply` returns, when it does; until then it is a request in flight."""
        self._in_flight += 1
        self._handlers.spawn(self._finish(reply))

    def _note_frames(self, progress: bool) -> None:
        if progress:
            self.served_a_frame = True
            self._frame_began_at = None
        if self._frame_began_at is None and self._decoder.mid_frame:
            self._frame_began_at = self._active_at

    def _refuse(self, responses: list[bytes], error: WireError) -> None:
        """The stream cannot be followed any further: answer what came before, say why once, close."""
        if responses:
            self.write(b"".join(responses))
        log.warning(
            "connection closed: bytes break the protocol",
            extra={"peer": self.peer, "error": type(error).__name__, "reason": str(error)},
        )
        self.close()

    async def _finish(self, reply: Coroutine[Any, Any, bytes | None]) -> None:
        try:
            response = await reply
            if response is not None:
                self.write(response)
        finally:
            self._in_flight -= 1
            self._resume()

    def _settle(self, command: Command) -> None:
        if not self._waiters.settle(command.opaque, command):
            # Normal after a time-out, and for clients whose one-way calls lack the flag.
            log.debug("answer without a waiter", extra={"peer": self.peer, "opaque": command.opaque})

    # --- bounds -----------------------------------------------------------------------------------------------------

    def _must_wait(self) -> bool:
        return self._in_flight >= self._settings.in_flight_max or not self._writable.is_set() or self._draining

    def _pace_reading(self) -> None:
        must_wait = self._must_wait()
        if must_wait != self._paused and self.is_open:
            self._paused = must_wait
            if must_wait:
                self._live().pause_reading()
            else:
                self._live().resume_reading()

    def _resume(self) -> None:
        """There is room again: first for what already arrived, then for more."""
        if self._paused and self.is_open and not self._must_wait():
            self._take_commands()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._pace_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._resume()
