"""One socket, at either end: bytes to commands, answers to waiters, bounded in every direction.

Both ends may ask. A response is matched to its waiter by the opaque number; a request goes to `receive`, which returns
the answer's bytes, a coroutine that will, or None. All answers to one chunk of input leave in one write: measured, a
write per answer costs 1.5 to 1.8 times as much.

A server may have a lane: a short way for the frames that come most often, which sees them before they are decoded and
takes what it knows. What it takes it answers by itself, by `write` or `start`, at the latest in the next turn of the
loop.

Reading stops while too many requests are in flight or the peer does not read its answers. What was read but not yet
cut into commands waits in the decoder, so the bound holds for bytes that have already arrived, too.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from ariane.clock import Clock
from ariane.errors import WireError
from ariane.lifecycle import TaskSet
from ariane.transport.outgoing import Outgoing
from ariane.transport.settings import TransportSettings
from ariane.wire.codes import HeaderFlag
from ariane.wire.command import Command
from ariane.wire.frame import FrameDecoder, FrameLimits

log = logging.getLogger(__name__)


Reply = bytes | Coroutine[Any, Any, bytes | None] | None
Receiver = Callable[["Connection", Command], Reply]

Lane = Callable[["Connection", bytes, int], int]
"""Takes the frames that it knows, from a position of the bytes on, and returns where it stopped. It must not raise."""

_COALESCE_BYTES = 256 * 1024  # answers to one chunk are written at the latest when they reach this


class Connection(Outgoing):
    def __init__(
        self,
        receive: Receiver,
        settings: TransportSettings,
        clock: Clock,
        opened: Callable[["Connection"], None],
        lane: Lane | None = None,
    ) -> None:
        super().__init__(settings, clock)
        self._receive = receive
        self._lane = lane
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
        await asyncio.sleep(0)  # what a lane took in this turn is answered, or has its task, in the next
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
        answers: list[bytes] = []
        size = 0
        progress = False
        decoder = self._decoder
        try:
            while True:
                while self._take_lane():
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
                    answers.append(reply)
                    size += len(reply)
                    if size >= _COALESCE_BYTES:
                        self.write(b"".join(answers))
                        answers, size = [], 0
                elif reply is not None:
                    self.start(reply)
                if self._must_wait():
                    break
        except WireError as error:
            self._refuse(answers, error)
            return
        if answers:
            self.write(b"".join(answers))
        self._note_frames(progress)
        self._pace_reading()

    def _take_lane(self) -> bool:
        """Whether the lane took any of the frames that come next."""
        decoder = self._decoder
        began = decoder.position
        if self._lane is None or began == len(decoder.data) or self._must_wait():
            return False
        decoder.position = self._lane(self, decoder.data, began)
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

    def _refuse(self, answers: list[bytes], error: WireError) -> None:
        """The stream cannot be followed any further: answer what came before, say why once, close."""
        if answers:
            self.write(b"".join(answers))
        log.warning(
            "connection closed: bytes break the protocol",
            extra={"peer": self.peer, "error": type(error).__name__, "reason": str(error)},
        )
        self.close()

    async def _finish(self, reply: Coroutine[Any, Any, bytes | None]) -> None:
        try:
            answer = await reply
            if answer is not None:
                self.write(answer)
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
