"""One connection, as an asyncio protocol: frames in both directions, calls in flight, and back-pressure.

The same class serves both ends, because both may send requests: a client calls a broker, and a broker calls its clients
over the connection that they opened. Three parts, from the inside out:

    PendingCalls       calls that wait for their response, by opaque number (pending_calls.py)
    ConnectionWriter   the sending half: requests, write flow control, close
    Connection         the receiving half: frames to responses, handlers and the fast path, read flow control

    data_received ─> FrameDecoder ─┬─ frames the fast path knows ─> fast path: answers by `write` or `start_handler`
                                   ├─ response ─> PendingCalls.resolve: wakes up the caller by the opaque number
                                   └─ request ──> receive(): response bytes, a coroutine that returns them, or None

FrameDecoder limits the size of a frame (wire/frame.py).

Batching of writes. All responses to one received chunk leave in one write: measured, a write per response costs 1.5 to
1.8 times as much. Requests that are sent in the same event-loop iteration leave in one write too: the eight pulls of a
consumer cost one system call.

Fast path. A server may have one for its most frequent requests. It sees frames before they are decoded and takes those
that it knows. It answers what it took, by `write` or `start_handler`, at the latest in the next event-loop iteration.

Back-pressure. Reading pauses while too many requests are in flight, while the peer does not read its responses, and
while the connection drains. It also pauses for an event-loop iteration when its requests have taken 10 ms, so that
others have their turn. Bytes that were received but not yet decoded wait in the decoder, so the bound holds for them,
too, and memory_budget.py has one for all connections together. A sender waits while the peer does not read
(`_writable`), so nothing piles up here.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Any

from ariane.clock import Clock
from ariane.errors import CallTimeout, ConnectionLost, TooManyInFlight, WireError
from ariane.lifecycle import TaskSet
from ariane.transport.memory_budget import MemoryBudget
from ariane.transport.pending_calls import PendingCalls
from ariane.transport.settings import TransportSettings
from ariane.wire.codes import HeaderFlag
from ariane.wire.frame import Command, FrameDecoder, FrameLimits, encode_frame

log = logging.getLogger(__name__)

ReceiveResult = bytes | Coroutine[Any, Any, bytes | None] | None
"""The response frame, a coroutine that returns it (None for no response), or None for no response."""

Receiver = Callable[["Connection", Command], ReceiveResult]
"""Handles one request."""

FastPath = Callable[["Connection", bytes, int], int]
"""Takes the frames that it knows, from a position of the bytes on, and returns where it stopped. It must not raise."""

_OPAQUE_MAX = 2**31 - 1
_REQUEST_BATCH_BYTES = 64 * 1024  # requests of one event-loop iteration are written at the latest when they reach this
_RESPONSE_BATCH_BYTES = 256 * 1024  # responses to one chunk are written at the latest when they reach this
_HELD_BYTES_MIN = 4096  # less is not counted: a chunk often ends inside a small frame
_SLICE_S = 0.01  # of one connection: a chunk may hold thousands of requests that are cheap to send


class ConnectionWriter(asyncio.Protocol):
    """The sending half of a connection: requests and their pending calls, write flow control, close.

    How the receiving half reacts to a peer that does not read is its own matter (`pause_writing`, `resume_writing`).
    """

    def __init__(self, settings: TransportSettings, clock: Clock, memory: MemoryBudget | None = None) -> None:
        self._settings = settings
        self._clock = clock
        self._memory = memory
        self._held = 0
        self._unread_since: float | None = None
        self.has_received_frame = False
        self._transport: asyncio.Transport | None = None
        self._close_callbacks: list[Callable[[], None]] = []
        self._pending_calls: PendingCalls[Command] = PendingCalls()
        self._opaque = 0
        self._requests: list[bytes] = []
        self._requests_bytes = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.Event()
        self._active_at = clock.monotonic()
        self.peer = "?"

    # --- open and close ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        self.peer = address_text(transport.get_extra_info("peername"))
        self._require_transport().set_write_buffer_limits(high=self._settings.write_buffer_bytes_max)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()
        self._writable.set()
        why = f": {exc}" if exc else ""
        self._pending_calls.fail_all(
            ConnectionLost(f"the connection to {self.peer} closed before the response arrived{why}")
        )
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            callback()

    def on_close(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once, when the connection is gone."""
        self._close_callbacks.append(callback)

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        """Flushes what was already written, then closes."""
        self._flush_requests()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Closes immediately; unsent bytes are lost."""
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        self._writable.clear()
        self._unread_since = self._clock.monotonic()

    def resume_writing(self) -> None:
        self._writable.set()
        self._unread_since = None

    def write(self, data: bytes) -> None:
        """Sends `data` if the connection is still open; uvloop would raise on a closed transport."""
        if self.is_open:
            self._active_at = self._clock.monotonic()
            transport = self._require_transport()
            transport.write(data)
            if self._memory is not None and (transport.get_write_buffer_size() or self._held):
                self.measure()

    def measure(self) -> None:
        """Tells the budget how many bytes this connection holds now."""
        assert self._memory is not None
        held = self._held_bytes() if self.is_open else 0
        if held < _HELD_BYTES_MIN:
            held = 0
        if held != self._held:
            self._held = held
            self._memory.set_held(self, held, self._clock.monotonic())

    def _held_bytes(self) -> int:
        return self._require_transport().get_write_buffer_size()

    def _require_transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    # --- requests ---------------------------------------------------------------------------------------------------

    @property
    def is_writable(self) -> bool:
        """Whether a request can be sent without waiting: the connection is open and the peer reads."""
        return self._writable.is_set() and self.is_open

    @property
    def calls_in_flight(self) -> int:
        return len(self._pending_calls)

    async def call(self, command: Command, timeout_s: float) -> Command:
        """Sends a request and waits for its response. A timeout cleans up; a late response is dropped."""
        opaque = command.opaque = self.next_opaque()
        future = self._add_pending(opaque, timeout_s)
        try:
            if self.is_writable:
                self._enqueue_request(encode_frame(command))
            else:
                async with asyncio.timeout(timeout_s):
                    await self.send(command)
            return await future
        except TimeoutError:
            raise self.timeout_error(command.code, timeout_s) from None
        finally:
            self._pending_calls.discard(opaque, future)

    def start_call(self, opaque: int, frame: bytes, timeout_s: float) -> "asyncio.Future[Command]":
        """`call` for a frame that the caller has encoded itself. Only while the connection `is_writable`.

        A caller that stops waiting for the future must `abandon_call`. It turns a TimeoutError of the future into a
        `timeout_error`.
        """
        future = self._add_pending(opaque, timeout_s)
        self._enqueue_request(frame)
        return future

    def abandon_call(self, opaque: int, future: "asyncio.Future[Command]") -> None:
        self._pending_calls.discard(opaque, future)

    def timeout_error(self, code: int, timeout_s: float) -> CallTimeout:
        return CallTimeout(f"{self.peer} did not answer request {code} within {timeout_s} s: its outcome is unknown")

    def _add_pending(self, opaque: int, timeout_s: float) -> "asyncio.Future[Command]":
        if len(self._pending_calls) >= self._settings.calls_max:
            raise TooManyInFlight(f"{len(self._pending_calls)} calls to {self.peer} already wait for their answers")
        return self._pending_calls.add(opaque, timeout_s)

    async def send(self, command: Command) -> None:
        """Sends without waiting for a response; waits while the peer does not read."""
        await self._writable.wait()
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self.peer} is closed")
        self._enqueue_request(encode_frame(command))

    def _enqueue_request(self, frame: bytes) -> None:
        """Batches the requests of one event-loop iteration into one write."""
        if not self._requests:
            asyncio.get_running_loop().call_soon(self._flush_requests)
        self._requests.append(frame)
        self._requests_bytes += len(frame)
        if self._requests_bytes >= _REQUEST_BATCH_BYTES:
            self._flush_requests()

    def _flush_requests(self) -> None:
        if self._requests:
            frames, self._requests, self._requests_bytes = self._requests, [], 0
            self.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def next_opaque(self) -> int:
        """From 1 (Node's client takes 0 for missing), wrapping within int32, skipping numbers of pending calls."""
        while True:
            self._opaque = 1 if self._opaque >= _OPAQUE_MAX else self._opaque + 1
            if self._opaque not in self._pending_calls:
                return self._opaque


def address_text(name: Any) -> str:
    """A socket address as `host:port` or `[ipv6]:port`."""
    if isinstance(name, tuple) and len(name) >= 2:
        host, port = name[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(name or "?")


class Connection(ConnectionWriter):
    """The whole connection: `ConnectionWriter` plus the receiving half. See the module's docstring."""

    def __init__(
        self,
        receive: Receiver,
        settings: TransportSettings,
        clock: Clock,
        opened: Callable[["Connection"], None],
        fast_path: FastPath | None = None,
        memory: MemoryBudget | None = None,
    ) -> None:
        """`memory` is the budget that it shares with others; a client's own connection has none."""
        super().__init__(settings, clock, memory)
        self._receive = receive
        self._fast_path = fast_path
        self._opened = opened
        self._decoder = FrameDecoder(FrameLimits(settings.frame_bytes_max, settings.header_bytes_max))
        self._handlers = TaskSet()
        self._in_flight = 0
        self._none_in_flight = asyncio.Event()
        self._paused = False
        self._draining = False
        self._slice_s = _SLICE_S
        self._waiting_for_turn = False
        self._waiting_bytes = 0
        self._opened_at = self._active_at
        self._frame_started_at: float | None = None

    # --- open and close ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._handlers.cancel()
        self._none_in_flight.set()
        self._decoder = FrameDecoder()  # what was half received is of no use, and others may need the memory
        super().connection_lost(exc)
        if self._memory is not None:
            self.measure()

    async def drain(self, timeout_s: float) -> None:
        """Accepts no new request, lets running handlers respond, flushes and closes, all within the time."""
        self._draining = True
        self._update_reading()
        deadline = self._clock.monotonic() + timeout_s
        # Requests that the fast path took in this event-loop iteration are answered, or in flight, in the next.
        await asyncio.sleep(0)
        if self._in_flight:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._none_in_flight.wait()
        self._handlers.cancel()
        self.close()
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                await self._closed.wait()
        except TimeoutError:
            self.abort()
            await self._closed.wait()

    def overdue(self, now: float) -> str | None:
        """Why this connection should be closed for a timeout, or None."""
        limits = self._settings
        if not self.has_received_frame and now - self._opened_at > limits.first_frame_timeout_s:
            return f"no whole frame within {limits.first_frame_timeout_s} s of connecting"
        started = self._frame_started_at
        if started is not None and not self._must_pause() and now - started > limits.frame_timeout_s:
            return f"a frame took longer than {limits.frame_timeout_s} s"
        if self._unread_since is not None and now - self._unread_since > limits.idle_timeout_s:
            return f"has not read its responses for {limits.idle_timeout_s} s"
        if now - self._active_at > limits.idle_timeout_s:
            return f"idle for more than {limits.idle_timeout_s} s"
        return None

    # --- receive ----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._active_at = self._clock.monotonic()
        self._decoder.feed(data)
        self._process_frames()
        if self._memory is not None and (self._held or self._decoder.mid_frame):
            self.measure()

    def _held_bytes(self) -> int:
        return super()._held_bytes() + self._decoder.buffered + self._waiting_bytes

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """While a request of this size waits for a thread: it counts as half received."""
        self._waiting_bytes += size
        if self._memory is not None:
            self.measure()
        try:
            yield
        finally:
            self._waiting_bytes -= size
            if self._memory is not None:
                self.measure()

    def _process_frames(self) -> None:
        decoder = self._decoder
        progress = self._run_fast_path()
        if progress and decoder.position == len(decoder.data):  # the common case
            self.has_received_frame, self._frame_started_at = True, None
            self._update_reading()
            return
        responses: list[bytes] = []
        size = 0
        slice_ends = 0.0
        try:
            while True:
                while self._run_fast_path():
                    progress = True
                if decoder.position == len(decoder.data):  # cheaper than raising StopIteration in the decoder
                    break
                command = next(decoder, None)
                if command is None:
                    break
                progress = True
                if command.flag & HeaderFlag.RESPONSE:
                    self._resolve(command)
                    continue
                if not slice_ends:
                    slice_ends = perf_counter() + self._slice_s
                result = self._receive(self, command)
                if isinstance(result, bytes):
                    responses.append(result)
                    size += len(result)
                    if size >= _RESPONSE_BATCH_BYTES:
                        self.write(b"".join(responses))
                        responses, size = [], 0
                elif result is not None:
                    self.start_handler(result)
                if perf_counter() > slice_ends:
                    self._wait_for_turn()
                if self._must_pause():
                    break
        except WireError as error:
            self._close_on_protocol_error(responses, error)
            return
        if responses:
            self.write(b"".join(responses))
        self._record_progress(progress)
        self._update_reading()

    def _wait_for_turn(self) -> None:
        self._waiting_for_turn = True
        asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._waiting_for_turn = False
        self._resume()

    def _run_fast_path(self) -> bool:
        """Whether the fast path took any of the next frames."""
        decoder = self._decoder
        started = decoder.position
        if self._fast_path is None or started == len(decoder.data) or self._must_pause():
            return False
        decoder.position = self._fast_path(self, decoder.data, started)
        return decoder.position > started

    def start_handler(self, handler: Coroutine[Any, Any, bytes | None]) -> None:
        """Runs `handler` as a task and sends the response that it returns. Until then it is a request in flight."""
        self.hold_request()
        self._handlers.spawn(self._finish(handler))

    def hold_request(self) -> None:
        """A request is in flight until `finish_request`."""
        self._in_flight += 1

    def finish_request(self, response: bytes | None) -> None:
        """Sends the response to what `hold_request` holds."""
        if response:
            self.write(response)
        self._in_flight -= 1
        if not self._in_flight and self._draining:
            self._none_in_flight.set()
        self._resume()

    def _record_progress(self, progress: bool) -> None:
        if progress:
            self.has_received_frame = True
            self._frame_started_at = None
        if self._frame_started_at is None and self._decoder.mid_frame:
            self._frame_started_at = self._active_at

    def _close_on_protocol_error(self, responses: list[bytes], error: WireError) -> None:
        """The rest of the stream cannot be decoded: send the responses so far, log the reason, close."""
        if responses:
            self.write(b"".join(responses))
        log.warning(
            "connection closed: protocol error",
            extra={"peer": self.peer, "error": type(error).__name__, "reason": str(error)},
        )
        self.close()

    async def _finish(self, handler: Coroutine[Any, Any, bytes | None]) -> None:
        response = None
        try:
            response = await handler
        finally:
            self.finish_request(response)

    def _resolve(self, command: Command) -> None:
        if not self._pending_calls.resolve(command.opaque, command):
            # Normal after a timeout, and for clients whose one-way calls lack the flag.
            log.debug("response without a pending call", extra={"peer": self.peer, "opaque": command.opaque})

    # --- back-pressure ----------------------------------------------------------------------------------------------

    def _must_pause(self) -> bool:
        return (
            self._in_flight >= self._settings.in_flight_max
            or not self._writable.is_set()
            or self._draining
            or self._waiting_for_turn
        )

    def _update_reading(self) -> None:
        must_pause = self._must_pause()
        if must_pause != self._paused and self.is_open:
            self._paused = must_pause
            if must_pause:
                self._require_transport().pause_reading()
            else:
                self._require_transport().resume_reading()

    def _resume(self) -> None:
        """Below the limits again: process the frames that already arrived, then read more."""
        if self._paused and self.is_open and not self._must_pause():
            self._process_frames()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._update_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._resume()
