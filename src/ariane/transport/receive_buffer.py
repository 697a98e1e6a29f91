"""Frames where they were received: one large piece of memory that a socket writes into, and bodies as views of it.

    arena   | frame | frame | frame | half a fra          |
                                    ^ begin     ^ end     ^ room for what the socket has next

A reader of many large answers spends more on copies than on the answers. Here a body is copied by nobody before its
consumer does. When the room ends, what is there of the last frame moves to a new arena; the old one lives as long as a
view of it does, and is never written to again.
"""

import struct
from typing import NamedTuple

import numpy as np

from ariane.wire.frame import Command, FrameDecoder, FrameLimits, decode_header

_PREFIX = struct.Struct(">iI")
_PREFIX_BYTES = _PREFIX.size
_LENGTH_BYTES = 4
_LENGTH_MIN = 4  # the header's kind and length
_FIRST_BYTES = 64 * 1024
_GROWS_BY = 4
_ROOM_BYTES_MIN = 32 * 1024
"""With less room than this a read would be a call for too few bytes."""
ARENA_BYTES = 4 * 1024 * 1024
"""Larger ones fall out of the processor's cache before they are decoded, smaller ones cost calls."""


class Span(NamedTuple):
    """A body where it was received. It keeps all of that memory."""

    memory: memoryview
    begin: int
    end: int

    @property
    def view(self) -> memoryview:
        return self.memory[self.begin : self.end]


class ReceivedFrame(NamedTuple):
    """A command without its body, and its body."""

    command: Command
    body: Span


class ReceiveBuffer:
    """Cuts what is received into frames. After an error the stream cannot be followed: drop the connection."""

    def __init__(self, limits: FrameLimits) -> None:
        self._limits = limits
        self._length_max = limits.frame_bytes_max - _LENGTH_BYTES
        self._header_max = limits.header_bytes_max
        self._bytes = _FIRST_BYTES
        self._view = memoryview(b"")
        self._begin = self._end = 0

    def room(self) -> memoryview:
        """Where the next bytes are to go, once `cut` has found no whole frame; tell `filled` how many came."""
        have = self._end - self._begin
        length = _PREFIX.unpack_from(self._view, self._begin)[0] if have >= _PREFIX_BYTES else _LENGTH_MIN
        missing = _LENGTH_BYTES + length - have
        if len(self._view) - self._end < max(missing, _ROOM_BYTES_MIN):
            self._move(missing)
        return self._view[self._end :]

    def filled(self, count: int) -> None:
        self._end += count

    def cut(self) -> ReceivedFrame | None:
        """The next whole frame; None when more bytes are needed; FrameError or HeaderError at a bad one."""
        begin, view = self._begin, self._view
        if self._end - begin < _PREFIX_BYTES:
            if self._end > begin:
                self._refuse_if_bad()
            return None
        length, word = _PREFIX.unpack_from(view, begin)
        header_length = word & 0xFFFFFF
        if not (_LENGTH_MIN + header_length <= length <= self._length_max and header_length <= self._header_max):
            self._refuse_if_bad()
        end = begin + _LENGTH_BYTES + length
        if end > self._end:
            return None
        header_at = begin + _PREFIX_BYTES
        body_at = header_at + header_length
        self._begin = end
        return ReceivedFrame(decode_header(word >> 24, bytes(view[header_at:body_at]), b""), Span(view, body_at, end))

    def _refuse_if_bad(self) -> None:
        """FrameError when what is there cannot begin a frame, in the words of the one decoder that has them."""
        decoder = FrameDecoder(self._limits)
        decoder.feed(bytes(self._view[self._begin : min(self._begin + _PREFIX_BYTES, self._end)]))
        next(decoder, None)

    def _move(self, missing: int) -> None:
        """What is left of this arena begins the next one."""
        rest = self._view[self._begin : self._end]
        fresh = np.empty(max(self._bytes, len(rest) + missing), np.uint8).data  # as bytearray, but not zeroed
        fresh[: len(rest)] = rest
        self._view, self._begin, self._end = fresh, 0, len(rest)
        self._bytes = min(self._bytes * _GROWS_BY, ARENA_BYTES)
