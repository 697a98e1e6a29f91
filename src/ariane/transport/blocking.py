"""A connection over a blocking socket: for Spark's workers and for scripts, which have no event loop.

One caller at a time. Requests can be pipelined (`call_all`), which makes a reader of many small responses fast:
measured on the loopback, a request waits longer for its turn than it takes. Response bodies stay in the receive buffer:
`receive_available` returns views of it, all other methods copy.

The receive buffer is this connection's alone (connection.py feeds a FrameDecoder). The socket reads into one large
buffer, and frame bodies are views of it:

    buffer  | frame | frame | frame | half a fra          |
                                    ^ begin     ^ end     ^ free space for the next read

A reader of many large responses spends more time on copies than on the responses. Here a body is not copied before its
consumer copies it. When the free space ends, the incomplete last frame moves to a new buffer. The old buffer lives as
long as a view of it does, and is never written to again.
"""

import select
import socket
import ssl
import struct
from collections.abc import Sequence
from itertools import takewhile
from time import monotonic
from typing import NamedTuple

import numpy as np

from ariane.errors import CallTimeout, ConnectFailed, ConnectionLost, WireError
from ariane.model.address import Address
from ariane.transport.settings import TransportSettings
from ariane.wire.codes import HeaderFlag
from ariane.wire.frame import Command, FrameDecoder, FrameLimits, decode_header, encode_frame

# --- the receive buffer ---

_PREFIX = struct.Struct(">iI")
_PREFIX_BYTES = _PREFIX.size
_LENGTH_BYTES = 4
_LENGTH_MIN = 4  # the header's kind and length
_BUFFER_BYTES_FIRST = 64 * 1024
_GROWTH_FACTOR = 4
_FREE_BYTES_MIN = 32 * 1024
"""With less free space than this, a read would be a system call for too few bytes."""
BUFFER_BYTES_MAX = 4 * 1024 * 1024
"""Larger buffers fall out of the processor's cache before they are decoded; smaller ones cost more system calls."""


class Span(NamedTuple):
    """A body inside the buffer that received it. It keeps the whole buffer alive."""

    memory: memoryview
    begin: int
    end: int

    @property
    def view(self) -> memoryview:
        return self.memory[self.begin : self.end]


class ReceivedFrame(NamedTuple):
    """A command with an empty body, and where its body is."""

    command: Command
    body: Span


class ReceiveBuffer:
    """Splits the received bytes into frames. After an error the stream is out of sync: close the connection."""

    def __init__(self, limits: FrameLimits) -> None:
        self._limits = limits
        self._length_max = limits.frame_bytes_max - _LENGTH_BYTES
        self._header_max = limits.header_bytes_max
        self._buffer_bytes = _BUFFER_BYTES_FIRST
        self._view = memoryview(b"")
        self._begin = self._end = 0

    def get_buffer(self) -> memoryview:
        """Where to read the next bytes, once `next_frame` has returned None; report their number to `buffer_updated`.

        The two methods work like those of asyncio.BufferedProtocol.
        """
        have = self._end - self._begin
        length = _PREFIX.unpack_from(self._view, self._begin)[0] if have >= _PREFIX_BYTES else _LENGTH_MIN
        missing = _LENGTH_BYTES + length - have
        if len(self._view) - self._end < max(missing, _FREE_BYTES_MIN):
            self._move(missing)
        return self._view[self._end :]

    def buffer_updated(self, count: int) -> None:
        self._end += count

    def next_frame(self) -> ReceivedFrame | None:
        """The next complete frame; None when more bytes are needed; FrameError or HeaderError if it is invalid."""
        begin, view = self._begin, self._view
        if self._end - begin < _PREFIX_BYTES:
            if self._end > begin:
                self._raise_if_invalid()
            return None
        length, word = _PREFIX.unpack_from(view, begin)
        header_length = word & 0xFFFFFF
        if not _LENGTH_MIN + header_length <= length <= self._length_max:
            self._raise_if_invalid()
        end = begin + _LENGTH_BYTES + length
        if end > self._end:
            return None
        header_at = begin + _PREFIX_BYTES
        body_at = header_at + header_length
        self._begin = end
        command = decode_header(word >> 24, bytes(view[header_at:body_at]), b"", self._header_max)
        return ReceivedFrame(command, Span(view, body_at, end))

    def _raise_if_invalid(self) -> None:
        """FrameError when the bytes cannot begin a frame. FrameDecoder raises it, so there is one set of messages."""
        decoder = FrameDecoder(self._limits)
        decoder.feed(bytes(self._view[self._begin : min(self._begin + _PREFIX_BYTES, self._end)]))
        next(decoder, None)

    def _move(self, missing: int) -> None:
        """Continues in a new buffer, which begins with the incomplete frame of this one."""
        rest = self._view[self._begin : self._end]
        fresh = np.empty(max(self._buffer_bytes, len(rest) + missing), np.uint8).data  # as bytearray, but not zeroed
        fresh[: len(rest)] = rest
        self._view, self._begin, self._end = fresh, 0, len(rest)
        self._buffer_bytes = min(self._buffer_bytes * _GROWTH_FACTOR, BUFFER_BYTES_MAX)


# --- the connection ---

_OPAQUE_MAX = 2**31 - 1
_STALE_AFTER_S = 5.0
_RESPONSE = int(HeaderFlag.RESPONSE)


class BlockingConnection:
    """Made by `BlockingConnection.open`. Any error closes it: what the peer did is then unknown."""

    def __init__(self, peer: str, channel: socket.socket, settings: TransportSettings) -> None:
        self.peer = peer
        self._socket: socket.socket | None = channel
        self._buffer = ReceiveBuffer(FrameLimits(settings.frame_bytes_max, settings.header_bytes_max))
        self._settings = settings
        self._opaque = 0
        self._pending: set[int] = set()
        self._responses: dict[int, ReceivedFrame] = {}
        """Responses received and not yet returned: a peer may answer out of order, what it has in memory first."""
        self._used_at = monotonic()

    @classmethod
    def open(
        cls, address: str, settings: TransportSettings | None = None, tls: ssl.SSLContext | None = None
    ) -> "BlockingConnection":
        """ConnectFailed when the connection to `address` is refused or times out, or the TLS handshake fails."""
        settings = settings or TransportSettings()
        try:
            target = Address.parse(address)
            plain = socket.create_connection((target.host, target.port), settings.connect_timeout_s)
        except (OSError, ValueError) as error:
            raise ConnectFailed(f"cannot connect to {address}: {error}") from error
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel = plain if tls is None else tls.wrap_socket(plain, server_hostname=target.host)
        except OSError as error:  # ssl.SSLError is one
            plain.close()
            raise ConnectFailed(f"cannot connect to {address}: {error}") from error
        return cls(address, channel, settings)

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    @property
    def is_stale(self) -> bool:
        """Whether the peer has probably closed the connection: idle for a while, and the socket is readable.

        Servers close connections that are idle for two minutes. If the next request found out, its outcome would count
        as unknown.
        """
        if self._socket is None or monotonic() - self._used_at < _STALE_AFTER_S:
            return False
        readable, _, _ = select.select([self._socket], [], [], 0)
        return bool(readable)

    def close(self) -> None:
        channel, self._socket = self._socket, None
        self._pending.clear()
        self._responses.clear()
        if channel is not None:
            channel.close()

    def call(self, command: Command, timeout_s: float | None = None) -> Command:
        return self.call_all([command], timeout_s)[0]

    def call_all(self, commands: Sequence[Command], timeout_s: float | None = None) -> list[Command]:
        """Sends all requests at once and returns the responses in their order. The timeout is for all of them."""
        return self.receive(self.send_all(commands), timeout_s)

    def send(self, command: Command) -> int:
        """Sends a request; `receive` its response by the opaque number returned."""
        return self.send_all([command])[0]

    def send_all(self, commands: Sequence[Command]) -> list[int]:
        """Sends several requests in one write: a write for each of eight pulls would be a reader's dearest step."""
        opaques = self.next_opaques(len(commands))
        for opaque, command in zip(opaques, commands, strict=True):
            command.opaque = opaque
        self.send_frames(opaques, list(map(encode_frame, commands)))
        return opaques

    def next_opaques(self, count: int) -> list[int]:
        """Opaque numbers for requests that the caller encodes itself and passes to `send_frames`."""
        first = self._opaque + 1 if self._opaque <= _OPAQUE_MAX - count else 1
        self._opaque = first + count - 1
        return list(range(first, first + count))

    def send_frames(self, opaques: Sequence[int], frames: Sequence[bytes]) -> None:
        channel = self._require_socket()
        self._used_at = monotonic()
        try:
            channel.settimeout(self._settings.call_timeout_s)
            channel.sendall(b"".join(frames))
        except OSError as error:
            self.close()
            raise ConnectionLost(f"the connection to {self.peer} closed while a request was sent: {error}") from error
        self._pending.update(opaques)

    def receive(self, opaques: Sequence[int], timeout_s: float | None = None) -> list[Command]:
        """The responses to requests that were sent, in the order of `opaques`, whatever order they arrive in."""
        self._receive_until(set(opaques) - self._responses.keys(), timeout_s)
        return [_with_body(self._responses.pop(opaque)) for opaque in opaques]

    def receive_available(self, opaques: Sequence[int], timeout_s: float | None = None) -> list[ReceivedFrame]:
        """Waits for the response to the first of these requests; returns it and those after it that have arrived.

        Bodies are views of the receive buffer. They stay valid, and each keeps up to some MiB in memory.
        """
        if opaques[0] not in self._responses:
            self._receive_until({opaques[0]}, timeout_s)
        responses = self._responses
        return [responses.pop(opaque) for opaque in takewhile(responses.__contains__, opaques)]

    def _receive_until(self, missing: set[int], timeout_s: float | None) -> None:
        """Receives until nothing is missing. Other responses that arrive are kept."""
        timeout_s = self._settings.call_timeout_s if timeout_s is None else timeout_s
        deadline = monotonic() + timeout_s
        try:
            while missing:
                if not self._read_frames(missing):
                    self._fill(deadline, timeout_s)
        except WireError:
            self.close()
            raise

    def _read_frames(self, missing: set[int]) -> bool:
        """Keeps every complete frame of the buffer that is a pending response. Whether there was any frame."""
        next_frame, pending, responses = self._buffer.next_frame, self._pending, self._responses
        first = frame = next_frame()
        while frame is not None:
            opaque = frame.command.opaque
            if frame.command.flag & _RESPONSE and opaque in pending:
                pending.discard(opaque)
                missing.discard(opaque)
                responses[opaque] = frame
            frame = next_frame()
        return first is not None

    def discard(self, opaques: Sequence[int]) -> None:
        """The caller does not want these responses any more: they are dropped when they arrive."""
        self._pending.difference_update(opaques)
        for opaque in opaques:
            self._responses.pop(opaque, None)

    def _fill(self, deadline: float, timeout_s: float) -> None:
        channel = self._require_socket()
        remaining_s = deadline - monotonic()
        try:
            if remaining_s <= 0:
                raise TimeoutError
            channel.settimeout(remaining_s)
            count = channel.recv_into(self._buffer.get_buffer())
        except TimeoutError:
            self.close()
            raise CallTimeout(f"{self.peer} did not answer within {timeout_s} s: the outcome is unknown") from None
        except OSError as error:
            self.close()
            raise ConnectionLost(
                f"the connection to {self.peer} closed before the response arrived: {error}"
            ) from error
        if not count:
            self.close()
            raise ConnectionLost(f"the connection to {self.peer} closed before the response arrived")
        self._used_at = monotonic()
        self._buffer.buffer_updated(count)

    def _require_socket(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionLost(f"the connection to {self.peer} is closed")
        return self._socket


def _with_body(frame: ReceivedFrame) -> Command:
    frame.command.body = bytes(frame.body.view)
    return frame.command
