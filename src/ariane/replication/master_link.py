"""The slave's end of its connection to the master: writes what arrives to the log at once, and reports it.

`SlaveStream` is what a slave does with the master's bytes, without sockets and clock. `MasterLink` is the connection
around it, with the introduction of native peers before it.
"""

import asyncio
import zlib
from collections.abc import Callable
from typing import cast

from ariane.clock import Clock
from ariane.errors import ArianeError, FrameError
from ariane.replication.frames import (
    MAGIC,
    OFFSET_MAX,
    FrameDecoder,
    HelloDecoder,
    Kind,
    Report,
    classic_report,
    hello_bytes,
    native_report,
)
from ariane.replication.hello import (
    TAIL_BYTES,
    Challenge,
    Hello,
    Identity,
    Welcome,
    decoded,
    is_proof,
    master_proof,
    new_challenge,
    slave_proof,
)
from ariane.replication.settings import ReplicationSettings
from ariane.store.following import FollowingLog

_HELLO_READ_BYTES = 4096

REFUSED = "the master refuses us: "
"""So begins the reason of a connection that a master of Ariane did not want: to try again does not help."""


class SlaveStream:
    """Frames of a master to the log of a slave, and reports. After any error the connection has to be closed."""

    def __init__(self, log: FollowingLog, *, native: bool) -> None:
        self._log = log
        self._is_native = native
        self.decoder = FrameDecoder(native=native)
        self.master_end = 0
        """Where the master's log ended when it last said so; native masters only."""

    def report(self) -> bytes:
        """Where our log ends."""
        if not self._is_native:
            return classic_report(self._log.end)
        return native_report(Report(self._log.end, self._log.dispatched_to))

    def received(self) -> bool:
        """Writes all complete frames to the log; whether it has grown. FrameError or StoreError says why not."""
        before = self._log.end
        while (frame := self.decoder.next_frame()) is not None:
            if frame.offset != self._log.end and not self._log.is_empty:
                raise FrameError(f"the master sent bytes at {frame.offset}, but the log ends at {self._log.end}")
            self.master_end = frame.confirmed
            if frame.kind is Kind.DATA:
                self._log.append(frame.offset, frame.body)
            elif frame.kind is Kind.GOODBYE:
                raise FrameError(f"the master says goodbye: {str(frame.body, 'utf-8', 'replace')[:200]}")
        return self._log.end != before


class MasterLink(asyncio.BufferedProtocol):
    """`done` ends with the reason when the connection is over."""

    def __init__(
        self,
        log: FollowingLog,
        settings: ReplicationSettings,
        clock: Clock,
        arrived: Callable[[], None],
        *,
        hello: tuple[Identity, int] | None = None,
        secret: bytes | None = None,
    ) -> None:
        """`hello` is who we are, and our id, for a master of Ariane; None: the protocol of RocketMQ 4.x."""
        self._log = log
        self._settings = settings
        self._clock = clock
        self._arrived = arrived
        self._identity = hello
        self._secret = secret
        self._stream = SlaveStream(log, native=hello is not None)
        self._transport: asyncio.Transport | None = None
        self._introduction = HelloDecoder()
        self._hello_buffer = bytearray(_HELLO_READ_BYTES)
        self._expect: Callable[[bytes], None] | None = None if hello is None else self._expect_challenge
        """What the next message of the introduction goes to; None when it is over."""
        self._hello, self._challenge = b"", b""
        self._began_at = self.received_at = self.written_at = clock.monotonic()
        self.done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.connected_ms = clock.now_ms()
        self.is_welcome = False
        """Whether the master has sent something that was right."""

    @property
    def master_end(self) -> int | None:
        """Where the master's log ended when it last said so; masters of Apache never do."""
        end = self._stream.master_end
        return None if self._identity is None or self._expect is not None or end < 0 else end

    @property
    def is_native(self) -> bool:
        return self._identity is not None

    @property
    def is_introduced(self) -> bool:
        """Whether the master takes us for its slave, as far as its protocol says so."""
        return self.is_welcome or (self.is_native and self._expect is None)

    # --- the connection ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its type
        if self._identity is None:
            self._write(self._stream.report())
        else:
            self._hello = self._our_hello(*self._identity).to_bytes()
            self._write(MAGIC + hello_bytes(self._hello))

    def close(self, reason: str) -> None:
        if not self.done.done():
            self.done.set_result(reason)
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            reason = "the master closed the connection" if error is None else str(error)
            hint = "" if self.is_introduced else "; it had sent nothing that we understand: the master's log says why"
            self.done.set_result(reason + hint)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._hello_buffer) if self._expect is not None else self._stream.decoder.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.received_at = self._clock.monotonic()
        if self.done.done():
            return
        try:
            if self._expect is not None:
                self._introduced(bytes(self._hello_buffer[:nbytes]))
            else:
                self._stream.decoder.buffer_updated(nbytes)
                self._take_frames()
        except ArianeError as error:
            self.close(str(error))

    def tick(self) -> None:
        """Called now and then: closes a silent connection, and reports on an idle one."""
        now = self._clock.monotonic()
        if now - self.received_at > self._settings.housekeeping_interval_s:
            self.close(f"nothing was received for {self._settings.housekeeping_interval_s:g} s")
        elif self._expect is not None and now - self._began_at > self._settings.housekeeping_interval_s:
            self.close(f"the master has not introduced itself within {self._settings.housekeeping_interval_s:g} s")
        elif now - self.written_at >= self._settings.heartbeat_interval_s and self._expect is None:
            self._write(self._stream.report())

    def _take_frames(self) -> None:
        has_grown = self._stream.received()
        self.is_welcome = True
        if has_grown:
            self._write(self._stream.report())
            self._arrived()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():  # uvloop would raise then
            self.written_at = self._clock.monotonic()
            self._transport.write(data)

    # --- the introduction -------------------------------------------------------------------------------------------

    def _our_hello(self, identity: Identity, member: int) -> Hello:
        tail = self._log.tail(TAIL_BYTES)
        return Hello(
            cluster=identity.cluster,
            group=identity.group,
            member=member,
            file_size=identity.file_size,
            min=self._log.begin,
            end=self._log.end,
            tail=(len(tail), zlib.crc32(tail)),
            challenge=new_challenge(),
        )

    def _introduced(self, data: bytes) -> None:
        while self._expect is not None:
            message = self._introduction.feed(data)
            if message is None:
                return
            data, self._introduction = self._introduction.rest, HelloDecoder()
            self._expect(message)
        if data:
            self._stream.decoder.add(data)
            self._take_frames()

    def _expect_challenge(self, message: bytes) -> None:
        decoded(Challenge, message)
        self._challenge = message
        self._expect = self._expect_proof

    def _expect_proof(self, proof: bytes) -> None:
        if not is_proof(proof, master_proof(self._secret, self._hello, self._challenge)):
            raise FrameError(
                "the master does not know our secret: set replication.secret_file alike, or check haMasterAddress"
            )
        self._write(hello_bytes(slave_proof(self._secret, self._hello, self._challenge)))
        self._expect = self._expect_welcome

    def _expect_welcome(self, message: bytes) -> None:
        welcome = decoded(Welcome, message)
        if welcome.refused is not None:
            raise FrameError(f"{REFUSED}{welcome.refused[:1000]}")
        if welcome.begin != self._log.end and not self._log.is_empty:
            raise FrameError(f"the master begins at {welcome.begin}, but the log ends at {self._log.end}")
        self._expect = None
        self._stream.master_end = min(welcome.end, OFFSET_MAX)
        self._write(self._stream.report())
