"""One slave's connection at the master: streams the log to it, and takes its reports.

    accepted ─► first 8 bytes ─┬─ a report: classic ──────────────────────────┐
                               └─ MAGIC ─► hello ─► proof ─► welcome: native ─┴─► streaming, until either end closes

The stream goes on where the slave's log ends. A classic slave without a log begins with the master's last file, as in
Apache; one of Ariane with the oldest. Bytes written lately are sent from memory. Older ones are read by a thread, not
faster than `catch_up_mib_s`, so that neither the event loop nor the producers wait for the disk.

A slave that reads slowly holds a few megabytes here at most: nothing is sent while the transport is full.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, cast

from ariane.clock import Clock
from ariane.errors import FrameError
from ariane.replication.frames import (
    MAGIC,
    NATIVE_BODY_BYTES_MAX,
    HelloDecoder,
    Kind,
    Report,
    ReportDecoder,
    classic_frame_head,
    hello_bytes,
    native_frame_head,
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
    position_refusal,
    refusal,
    slave_proof,
)
from ariane.replication.log_source import LogSource
from ariane.replication.settings import MiB, ReplicationSettings

log = logging.getLogger(__name__)

_WRITE_BYTES = 1 * MiB
"""Then other connections get their turn."""
_COLD_READ_BYTES = 1 * MiB
_BUFFERED_BYTES_MAX = 4 * MiB
_TLS_HELLO = b"\x16\x03"
"""As a report it would be the end of a log of 1.5 EB."""


class SharedFrames:
    """The frames that a link has just sent, for the other links at the same place: they are joined and their checksums
    computed once for all slaves."""

    def __init__(self) -> None:
        self._place: tuple[object, ...] | None = None
        self._data = b""
        self._sent_to = 0

    def at(self, *place: object) -> tuple[bytes, int] | None:
        """The frames, and where the log goes on behind them."""
        return (self._data, self._sent_to) if place == self._place else None

    def put(self, data: bytes, sent_to: int, *place: object) -> None:
        self._place, self._data, self._sent_to = place, data, sent_to

    def clear(self) -> None:
        self._place, self._data = None, b""


class LinkOwner(Protocol):
    """The master (master.py)."""

    source: LogSource
    settings: ReplicationSettings
    identity: Identity
    secret: bytes | None
    clock: Clock
    shared: "SharedFrames"

    def pump_soon(self) -> None:
        """Calls `pump` of all links when this event-loop iteration ends."""

    def pump_later(self) -> None:
        """Calls `pump` of all links in a moment, even if nothing is acknowledged until then."""

    def reported(self, link: "SlaveLink", report: Report) -> None:
        """A valid report: the slave counts from now on."""

    def welcomed(self, link: "SlaveLink") -> None:
        """Its member id is known."""

    def closed(self, link: "SlaveLink", reason: str | None) -> None:
        """With the reason if the master closed it."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...


class SlaveLink(asyncio.Protocol):
    def __init__(self, owner: LinkOwner, host: str, *, is_trusted: bool) -> None:
        """`is_trusted`: it may speak the classic protocol, which has no authentication."""
        self._owner = owner
        self._source, self._settings, self._clock = owner.source, owner.settings, owner.clock
        self._is_trusted = is_trusted
        self._transport: asyncio.Transport | None = None
        self._receive: Callable[[bytes], None] = self._receive_first
        self._first = b""
        self._introduction = HelloDecoder()
        self._hello, self._challenge = b"", b""
        self._reports = ReportDecoder(native=False)
        self._writable = asyncio.Event()
        self._writable.set()
        self._is_catching_up = False
        self._reason: str | None = None
        self._accepted_at = self._received_at = self._written_at = self._clock.monotonic()
        self.host = host
        self.peer = host
        self.connected_ms = self._clock.now_ms()
        self.is_native = False
        self.is_streaming = False
        self.member: int | None = None
        """The slave's brokerId; None for a classic one, which does not say it."""
        self.started_at = 0
        self.sent_to = 0
        """The next byte of the log to send."""
        self.bytes_per_s = 0
        """How fast it was sent in the last second or so."""
        self._measured_to, self._measured_at = 0, self._received_at
        self._acknowledged = 0

    # --- the connection ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its type
        self._transport.set_write_buffer_limits(high=_BUFFERED_BYTES_MAX)
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if name else self.host

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self, reason: str | None = None) -> None:
        """At once: what is buffered is not sent. The slave asks for it again."""
        if self.is_open:
            assert self._transport is not None
            self._reason = reason
            self.is_streaming = False
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_streaming = False
        self._writable.set()
        self._owner.closed(self, self._reason)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
        self.pump()

    def data_received(self, data: bytes) -> None:
        self._received_at = self._clock.monotonic()
        try:
            self._receive(data)
        except FrameError as error:
            self.close(str(error))

    def tick(self) -> None:
        """Called now and then: closes a silent connection, and sends a heartbeat on an idle one."""
        now = self._clock.monotonic()
        self._measure(now)
        if now - self._received_at > self._settings.housekeeping_interval_s:
            self.close(f"nothing was received for {self._settings.housekeeping_interval_s:g} s")
        elif not self.is_streaming and now - self._accepted_at > self._settings.housekeeping_interval_s:
            self.close(f"it has not introduced itself within {self._settings.housekeeping_interval_s:g} s")
        elif self.is_streaming and self.sent_to < self._source.begin:
            self._close_as_deleted()
        elif now - self._written_at >= self._settings.heartbeat_interval_s:
            self._send_heartbeat()

    @property
    def sent_bytes(self) -> int:
        return self.sent_to - self.started_at

    def _measure(self, now: float) -> None:
        if now > self._measured_at:
            self.bytes_per_s = round((self.sent_to - self._measured_to) / (now - self._measured_at))
            self._measured_to, self._measured_at = self.sent_to, now

    # --- what the slave says ----------------------------------------------------------------------------------------

    def _receive_first(self, data: bytes) -> None:
        self._first += data
        if len(self._first) < len(MAGIC):
            return
        data, self._first = self._first, b""
        if data.startswith(MAGIC):
            self.is_native = True
            self._receive = self._receive_hello
            self._receive_hello(data[len(MAGIC) :])
        elif data.startswith(_TLS_HELLO):
            self.close(
                "TLS at a port without it: set replication.tls = false at the slave, or give the master a certificate "
                "(tls.certificate)"
            )
        elif self._is_trusted:
            self._receive = self._receive_reports
            self._receive_reports(data)
        else:
            self.close(
                "the protocol of RocketMQ 4.x from an address that is not in replication.allowed_peers: it has no "
                "authentication"
            )

    def _receive_hello(self, data: bytes) -> None:
        hello = self._introduction.feed(data)
        if hello is None:
            return
        decoded(Hello, hello)
        rest, self._introduction = self._introduction.rest, HelloDecoder()
        self._hello, self._challenge = hello, Challenge(challenge=new_challenge()).to_bytes()
        proof = master_proof(self._owner.secret, self._hello, self._challenge)
        self._write(hello_bytes(self._challenge) + hello_bytes(proof))
        self._receive = self._receive_proof
        self._receive_proof(rest)

    def _receive_proof(self, data: bytes) -> None:
        proof = self._introduction.feed(data)
        if proof is None:
            return
        if self._introduction.rest:
            raise FrameError("a report before the welcome")
        self._receive = self._receive_too_early
        if not is_proof(proof, slave_proof(self._owner.secret, self._hello, self._challenge)):
            self._refuse("the slave and the master have different secrets: set replication.secret_file alike")
            return
        self._owner.spawn(self._welcome(decoded(Hello, self._hello)))

    def _receive_too_early(self, data: bytes) -> None:
        raise FrameError("a report before the welcome")

    async def _welcome(self, hello: Hello) -> None:
        reason = refusal(hello, self._owner.identity, self._source.begin, self._source.end)
        if reason is None and not hello.is_empty:
            reason = await self._tail_refusal(hello)
        if not self.is_open:
            return
        if reason is not None:
            self._refuse(reason)
            return
        self.member = hello.member
        self._owner.welcomed(self)
        self._reports = ReportDecoder(native=True)
        self._receive = self._receive_reports
        begin = self._source.begin if hello.is_empty else hello.end
        self._write(hello_bytes(Welcome(begin=begin, end=self._source.end).to_bytes()))
        self._begin(begin, Report(begin))

    async def _tail_refusal(self, hello: Hello) -> str | None:
        """Compares the last bytes of the slave's log with ours."""
        size, crc = hello.tail
        size_max = min(TAIL_BYTES, (hello.end - 1) % self._source.file_bytes + 1)
        if not 0 < size <= size_max:
            return f"a checksum of the last {size} bytes of the slave's log, expected 1 to {size_max}: of one file"
        try:
            ours = await self._source.read(hello.end - size, size)
        except OSError as error:
            return f"the master cannot read its log: {error.strerror}"
        if len(ours) == size and zlib.crc32(ours) != crc:
            return (
                f"the logs of slave and master differ before {hello.end}: one has lost messages that the other has. "
                "Make the one with all messages the master, and begin with an empty slave"
            )
        return position_refusal(hello.end, self._source.begin, self._source.end)

    def _refuse(self, reason: str) -> None:
        """The slave gets the reason, too."""
        if self.is_open:
            assert self._transport is not None
            self._reason = f"slave refused: {reason}"
            self._transport.write(hello_bytes(Welcome(refused=reason).to_bytes()))
            self._transport.close()

    def _receive_reports(self, data: bytes) -> None:
        for report in self._reports.feed(data):
            if report.epoch:
                raise FrameError(f"a report of epoch {report.epoch}: this master has none")
            if not self.is_streaming:
                self._begin_classic(report)
            elif report.end > self.sent_to:
                raise FrameError(f"it reported {report.end}, but only {self.sent_to} was sent: it is not a slave")
            else:
                self._owner.reported(self, report)
                self._acknowledged = report.end
            if not self.is_open:
                return
        if self.is_streaming and self._acknowledged == self.sent_to < self._source.end:
            self._owner.pump_soon()

    def _begin_classic(self, report: Report) -> None:
        source = self._source
        reason = position_refusal(report.end, source.begin, source.end) if report.end else None
        if reason is not None:
            raise FrameError(reason)
        begin = report.end or source.last_file
        if begin > report.end and begin > source.begin:
            log.warning(
                "a slave without a log gets the last file only, as in Apache: it will not have older messages",
                extra={"slave": self.peer, "from": begin, "oldest": source.begin},
            )
        self._begin(begin, report)

    def _begin(self, begin: int, report: Report) -> None:
        self.started_at = self.sent_to = self._acknowledged = self._measured_to = begin
        self.is_streaming = True
        log.info("slave connected", extra={"slave": self.peer, "id": self.member, "from": begin})
        self._owner.reported(self, report)
        self.pump()

    # --- the stream -------------------------------------------------------------------------------------------------

    def pump(self, *, is_overdue: bool = False) -> None:
        """Sends what is new, as far as the slave reads it. Called after appends, and by itself until all is sent.

        One of Ariane gets little only when it has acknowledged the rest, or when that takes long (`is_overdue`): so
        what arrives meanwhile is one frame, as with a group commit. It costs both ends less, and an idle slave gets a
        message at once."""
        if not self.is_streaming or self._is_catching_up or not self._writable.is_set():
            return
        source = self._source
        if self.sent_to >= source.end:
            return
        if not is_overdue and self._may_wait():
            self._owner.pump_later()
            return
        if self.sent_to < source.cached_from:
            self._is_catching_up = True
            self._owner.spawn(self._catch_up())
            return
        end = source.end
        place = self.sent_to, end, self._batch_bytes, self.is_native
        data, self.sent_to = self._owner.shared.at(*place) or self._cached_frames(end)
        if not data:
            self._close_as_deleted()
            return
        self._owner.shared.put(data, self.sent_to, *place)
        self._write(data)
        if self.sent_to < end:
            asyncio.get_running_loop().call_soon(self.pump)

    def _may_wait(self) -> bool:
        """Whether an acknowledgement is on its way, and what is new does not fill a frame."""
        is_in_flight = self._acknowledged < self.sent_to
        return is_in_flight and self.is_native and self._source.end - self.sent_to < NATIVE_BODY_BYTES_MAX

    def _cached_frames(self, end: int) -> tuple[bytes, int]:
        """Frames of what is new up to `end`, and where the log goes on behind them; none when its file is gone."""
        pieces: list[bytes | memoryview] = []
        at, size, size_max = self.sent_to, 0, self._batch_bytes
        while at < end and size < _WRITE_BYTES:
            body = self._source.cached(at, size_max)
            if not body:
                return b"", self.sent_to
            pieces += (self._head(at, body), body)
            size += len(body)
            at += len(body)
        return b"".join(pieces), at

    async def _catch_up(self) -> None:
        try:
            while self.is_streaming and self.sent_to < self._source.cached_from:
                began = self._clock.monotonic()
                data = await self._source.read(self.sent_to, _COLD_READ_BYTES)
                if not data:
                    self._close_as_deleted()
                    return
                self._send(memoryview(data))
                took_s = self._clock.monotonic() - began
                await self._clock.sleep(max(0.0, len(data) / (self._settings.catch_up_mib_s * MiB) - took_s))
                await self._writable.wait()
        except OSError as error:
            self.close(f"the log cannot be read: {error.strerror}")
        finally:
            self._is_catching_up = False
        self.pump()

    def _close_as_deleted(self) -> None:
        self.close(
            f"the log has no bytes at {self.sent_to} any more, it begins at {self._source.begin}: the disk was full. "
            "Begin with an empty slave"
        )

    def _send(self, data: memoryview) -> None:
        if not self.is_streaming:
            return
        pieces: list[bytes | memoryview] = []
        for at in range(0, len(data), self._batch_bytes):
            body = data[at : at + self._batch_bytes]
            pieces += (self._head(self.sent_to, body), body)
            self.sent_to += len(body)
        self._write(b"".join(pieces))

    def _send_heartbeat(self) -> None:
        if self.is_streaming and self._writable.is_set():
            self._write(self._head(self.sent_to, b""))

    @property
    def _batch_bytes(self) -> int:
        return NATIVE_BODY_BYTES_MAX if self.is_native else self._settings.batch_bytes

    def _head(self, offset: int, body: bytes | memoryview) -> bytes:
        if not self.is_native:
            return classic_frame_head(offset, len(body))
        kind = Kind.DATA if body else Kind.HEARTBEAT
        return native_frame_head(kind, offset, body, self._source.end)

    def _write(self, data: bytes) -> None:
        if self.is_open:  # uvloop would raise on a closed transport
            assert self._transport is not None
            self._written_at = self._clock.monotonic()
            self._transport.write(data)
