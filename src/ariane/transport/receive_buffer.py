"""Zero-copy receive buffer: the socket reads into one large buffer, and frame bodies are views of it.

    buffer  | frame | frame | frame | half a fra          |
                                    ^ begin     ^ end     ^ free space for the next read

A reader of many large responses spends more time on copies than on the responses. Here a body is not copied before its
consumer copies it. When the free space ends, the incomplete last frame moves to a new buffer. The old buffer lives as
long as a view of it does, and is never written to again.
"""

import struct
from typing import NamedTuple

import numpy as np

from ariane.wire.frame import Command, FrameDecoder, FrameLimits, decode_header

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
