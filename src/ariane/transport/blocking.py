"""The same frames over a blocking socket: for Spark's workers and for scripts, which have no event loop.

One caller at a time. Several requests may be on their way at once (`call_all`), which is what makes a reader of many
small answers fast: measured on the loopback, a request waits longer for its turn than it takes. Answers lie where they
were received (frame_arena.py): `take_arrived` tells where, everything else copies.
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
_FRESH_S = 5.0
_RESPONSE = int(HeaderFlag.RESPONSE)


class BlockingConnection:
    """Made by `BlockingConnection.open`. After any error it is closed: what the peer did is then unknown."""

    def __init__(self, peer: str, channel: socket.socket, settings: TransportSettings) -> None:
        self.peer = peer
        self._socket: socket.socket | None = channel
        self._arena = ReceiveBuffer(FrameLimits(settings.frame_bytes_max, settings.header_bytes_max))
        self._settings = settings
        self._opaque = 0
        self._awaited: set[int] = set()
        self._arrived: dict[int, ReceivedFrame] = {}
        """Answers that came before it was their turn: a peer may answer what it has in memory first."""
        self._used_at = monotonic()

    @classmethod
    def open(
        cls, address: str, settings: TransportSettings | None = None, tls: ssl.SSLContext | None = None
    ) -> "BlockingConnection":
        """ConnectFailed when nobody listens at `address`, or TLS does not come about."""
        settings = settings or TransportSettings()
        try:
            where = Address.parse(address)
            plain = socket.create_connection((where.host, where.port), settings.connect_timeout_s)
        except (OSError, ValueError) as error:
            raise ConnectFailed(f"cannot connect to {address}: {error}") from error
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel = plain if tls is None else tls.wrap_socket(plain, server_hostname=where.host)
        except OSError as error:  # ssl.SSLError is one
            plain.close()
            raise ConnectFailed(f"cannot connect to {address}: {error}") from error
        return cls(address, channel, settings)

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    @property
    def is_stale(self) -> bool:
        """Unused for a while, and something has come that nobody waits for: nearly always the peer's good-bye.

        Servers close connections that are idle for two minutes. Found out by the next request, that would look like an
        outcome that is unknown.
        """
        if self._socket is None or monotonic() - self._used_at < _FRESH_S:
            return False
        readable, _, _ = select.select([self._socket], [], [], 0)
        return bool(readable)

    def close(self) -> None:
        channel, self._socket = self._socket, None
        self._awaited.clear()
        self._arrived.clear()
        if channel is not None:
            channel.close()

    def call(self, command: Command, timeout_s: float | None = None) -> Command:
        return self.call_all([command], timeout_s)[0]

    def call_all(self, commands: Sequence[Command], timeout_s: float | None = None) -> list[Command]:
        """The answers, in the order of the questions, which all leave at once. The time is for all of them."""
        return self.take(self.post_all(commands), timeout_s)

    def post(self, command: Command) -> int:
        """Sends a request; `take` its answer by the number returned."""
        return self.post_all([command])[0]

    def post_all(self, commands: Sequence[Command]) -> list[int]:
        """The same for several, in one write: a write for each of eight pulls is the dearest step of a reader."""
        opaques = self.opaques(len(commands))
        for opaque, command in zip(opaques, commands, strict=True):
            command.opaque = opaque
        self.post_frames(opaques, list(map(encode_frame, commands)))
        return opaques

    def opaques(self, count: int) -> list[int]:
        """Numbers for the next requests, which the caller writes by itself and gives to `post_frames`."""
        first = self._opaque + 1 if self._opaque <= _OPAQUE_MAX - count else 1
        self._opaque = first + count - 1
        return list(range(first, first + count))

    def post_frames(self, opaques: Sequence[int], frames: Sequence[bytes]) -> None:
        channel = self._live()
        self._used_at = monotonic()
        try:
            channel.settimeout(self._settings.call_timeout_s)
            channel.sendall(b"".join(frames))
        except OSError as error:
            self.close()
            raise ConnectionLost(f"the connection to {self.peer} closed while a request was sent: {error}") from error
        self._awaited.update(opaques)

    def take(self, opaques: Sequence[int], timeout_s: float | None = None) -> list[Command]:
        """The answers to requests that were posted, in whatever order they come."""
        self._receive(set(opaques) - self._arrived.keys(), timeout_s)
        return [_with_body(self._arrived.pop(opaque)) for opaque in opaques]

    def take_arrived(self, opaques: Sequence[int], timeout_s: float | None = None) -> list[ReceivedFrame]:
        """The answer to the first of these requests, and those behind it that are there, too: one at least.

        Bodies are told by their place in what was received. They stay valid, and keep up to some MiB in memory each.
        """
        if opaques[0] not in self._arrived:
            self._receive({opaques[0]}, timeout_s)
        arrived = self._arrived
        return [arrived.pop(opaque) for opaque in takewhile(arrived.__contains__, opaques)]

    def _receive(self, missing: set[int], timeout_s: float | None) -> None:
        """Until nothing is missing; and whatever else came with it."""
        timeout_s = self._settings.call_timeout_s if timeout_s is None else timeout_s
        deadline = monotonic() + timeout_s
        try:
            while missing:
                if not self._cut_all(missing):
                    self._fill(deadline, timeout_s)
        except WireError:
            self.close()
            raise

    def _cut_all(self, missing: set[int]) -> bool:
        """Sorts what was received; whether there was a frame."""
        cut, awaited, arrived = self._arena.cut, self._awaited, self._arrived
        found = one = cut()
        while one is not None:
            opaque = one.command.opaque
            if one.command.flag & _RESPONSE and opaque in awaited:
                awaited.discard(opaque)
                missing.discard(opaque)
                arrived[opaque] = one
            one = cut()
        return found is not None

    def forget(self, opaques: Sequence[int]) -> None:
        """Nobody will take the answers to these requests: they are dropped when they come."""
        self._awaited.difference_update(opaques)
        for opaque in opaques:
            self._arrived.pop(opaque, None)

    def _fill(self, deadline: float, timeout_s: float) -> None:
        channel = self._live()
        left_s = deadline - monotonic()
        try:
            if left_s <= 0:
                raise TimeoutError
            channel.settimeout(left_s)
            count = channel.recv_into(self._arena.room())
        except TimeoutError:
            self.close()
            raise CallTimeout(f"{self.peer} did not answer within {timeout_s} s: the outcome is unknown") from None
        except OSError as error:
            self.close()
            raise ConnectionLost(f"the connection to {self.peer} closed before the answer came: {error}") from error
        if not count:
            self.close()
            raise ConnectionLost(f"the connection to {self.peer} closed before the answer came")
        self._used_at = monotonic()
        self._arena.filled(count)

    def _live(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionLost(f"the connection to {self.peer} is closed")
        return self._socket


def _with_body(arrived: ReceivedFrame) -> Command:
    arrived.command.body = bytes(arrived.body.view)
    return arrived.command
