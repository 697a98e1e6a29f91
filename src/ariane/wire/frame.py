"""Frames: feed bytes in any split, take Commands out; and the way back.

    0        4            5                8                 8 + header length
    | length | header kind | header length | header          | body ... |
      i32      u8            u24             JSON or binary     to the end

`length` counts everything after itself. Every limit is checked from the first eight bytes, before anything is kept.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ariane.errors import FrameError, HeaderError
from ariane.wire.binary_header import decode_binary_header, encode_binary_header
from ariane.wire.codes import Serialization
from ariane.wire.command import Command
from ariane.wire.json_header import decode_json_header, encode_json_header

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""Of a whole frame, its length word included: what every RocketMQ client and server allows."""
HEADER_BYTES_MAX = 64 * 1024

_PREFIX = struct.Struct(">iI")
_LENGTH = struct.Struct(">i")
_LENGTH_MIN = 4  # the header's kind and length
_TLS_HELLO = 0x16
_JSON, _BINARY = Serialization.JSON, Serialization.BINARY


@dataclass(frozen=True, slots=True)
class FrameLimits:
    frame_bytes_max: int = FRAME_BYTES_MAX
    header_bytes_max: int = HEADER_BYTES_MAX


class FrameDecoder:
    """Cuts a byte stream into Commands. After an error the stream cannot be followed: drop the connection."""

    def __init__(self, limits: FrameLimits = FrameLimits()) -> None:
        self._limits = limits
        # What is not yet cut, and from where on. A lane (transport/connection.py) cuts frames by itself and moves on.
        self.data = b""
        self.position = 0
        # A frame larger than a read is kept as a list of pieces: joining once is linear, `data + more` is quadratic.
        self._pieces: list[bytes] = []
        self._missing = 0

    @property
    def mid_frame(self) -> bool:
        """Whether a frame has begun and its end has not come."""
        return bool(self._pieces) or self.position < len(self.data)

    def feed(self, data: bytes) -> None:
        if self._pieces:
            self._pieces.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return
            data = b"".join(self._pieces)
            self._pieces.clear()
        elif self.position < len(self.data):
            data = self.data[self.position :] + data
        self.data, self.position = data, 0

    def __iter__(self) -> Iterator[Command]:
        return self

    def __next__(self) -> Command:
        """The next whole command; StopIteration when more bytes are needed; FrameError or HeaderError at a bad one."""
        data, start = self.data, self.position
        available = len(data) - start
        if available < 8:
            if available >= 4:
                self._check_length(_LENGTH.unpack_from(data, start)[0])
            raise StopIteration
        length, word = _PREFIX.unpack_from(data, start)
        header_length = word & 0xFFFFFF
        self._check_length(length)
        if header_length > length - 4:
            raise FrameError(f"a header of {header_length} bytes in a frame of {length}: the header cannot be longer")
        if header_length > self._limits.header_bytes_max:
            raise FrameError(f"a header of {header_length} bytes, at most {self._limits.header_bytes_max} are allowed")
        end = start + 4 + length
        if end > len(data):
            self._wait_for(end - len(data))
            raise StopIteration
        header_end = start + 8 + header_length
        self.position = end
        return decode_header(word >> 24, data[start + 8 : header_end], data[header_end:end])

    def _check_length(self, length: int) -> None:
        if length < _LENGTH_MIN:
            raise FrameError(f"frame length {length}: at least {_LENGTH_MIN} expected; this is not a RocketMQ client")
        if length + 4 > self._limits.frame_bytes_max:
            hint = "; it looks like TLS, which is off here" if length >> 24 == _TLS_HELLO else ""
            raise FrameError(f"a frame of {length + 4} bytes, at most {self._limits.frame_bytes_max} are allowed{hint}")

    def _wait_for(self, missing: int) -> None:
        if not self._pieces:
            self._pieces = [self.data[self.position :]]
            self._missing = missing
            self.data, self.position = b"", 0


def decode_header(serialization: int, header: bytes, body: bytes) -> Command:
    """The command in one frame; HeaderError when the header's bytes break a rule or a limit."""
    if serialization == _JSON:
        command = decode_json_header(header)
    elif serialization == _BINARY:
        command = decode_binary_header(header)
    else:
        raise HeaderError(f"unknown header serialisation {serialization}: 0 (JSON) or 1 (ROCKETMQ) expected")
    command.body = body
    return command


def encode_frame(command: Command) -> bytes:
    """The bytes of `command` in its own serialisation; refuses what a peer would have to refuse."""
    header = encode_json_header(command) if command.serialization is _JSON else encode_binary_header(command)
    if len(header) > HEADER_BYTES_MAX:
        raise HeaderError(f"the header to send has {len(header)} bytes, at most {HEADER_BYTES_MAX} are allowed")
    length = 4 + len(header) + len(command.body)
    if length + 4 > FRAME_BYTES_MAX:
        raise FrameError(f"the frame to send has {length + 4} bytes, at most {FRAME_BYTES_MAX} are allowed")
    return b"".join((_PREFIX.pack(length, command.serialization << 24 | len(header)), header, command.body))
