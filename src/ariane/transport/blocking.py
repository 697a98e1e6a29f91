"""A connection over a blocking socket: for Spark's workers and for scripts, which have no event loop.

One caller at a time. Requests can be pipelined (`call_all`), which makes a reader of many small responses fast:
measured on the loopback, a request waits longer for its turn than it takes. Response bodies stay in the receive buffer
(transport/receive_buffer.py): `receive_available` returns views of it, all other methods copy.
"""

import select
import socket
import ssl
from collections.abc import Sequence
from itertools import takewhile
from time import monotonic

from ariane.errors import CallTimeout, ConnectFailed, ConnectionLost, WireError
from ariane.model.address import Address
from ariane.transport.receive_buffer import ReceiveBuffer, ReceivedFrame
from ariane.transport.settings import TransportSettings
from ariane.wire.codes import HeaderFlag
from ariane.wire.frame import Command, FrameLimits, encode_frame

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
