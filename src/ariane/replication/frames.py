"""Bytes of the replication port: reports of slaves, frames of masters; of RocketMQ 4.x and of Ariane. No I/O.

    classic  slave    int64: the end of its log
             master   int64 offset | int32 size | `size` bytes of the log; size 0 is a heartbeat
    native   slave    int32 kind | int32 epoch | int64 end | int64 dispatched
             master   int32 size | int8 kind | 3 zeros | int32 epoch | int64 offset | int64 confirmed | int32 CRC-32
                      | body

All numbers are big-endian. The first eight bytes of a slave decide: a classic report is not negative, and `MAGIC` would
be a negative one. Native peers then introduce themselves (hello.py). A frame never crosses the end of a log file, but
it may begin and end inside a record.

The decoders check a length before they make room for it, and raise only FrameError. They work on any cut of the stream.
"""

import struct
import zlib
from collections.abc import Container, Iterator
from enum import IntEnum
from typing import NamedTuple

from ariane.errors import FrameError

MAGIC = b"\xffARIANE\x02"
"""The first bytes of a slave that speaks the native protocol. Never send them to a master of Apache: it would take what
follows for a report, and acknowledge messages that no slave has."""

CLASSIC_BODY_BYTES_MAX = 4 * 1024 * 1024 - 12
"""A slave of Apache has a buffer of 4 MiB, head included."""
NATIVE_BODY_BYTES_MAX = 256 * 1024
HELLO_BYTES_MAX = 64 * 1024

OFFSET_MAX = 2**63 - 1

_CLASSIC_HEAD = struct.Struct(">qi")
_CLASSIC_REPORT = struct.Struct(">q")
_NATIVE_HEAD = struct.Struct(">ib3xiqqI")
_NATIVE_REPORT = struct.Struct(">iiqq")
_HELLO_LENGTH = struct.Struct(">i")
_BUFFER_BYTES = 256 * 1024


class Kind(IntEnum):
    """Of a native frame. `STATE` is for groups; a slave of a pair ignores it."""

    HEARTBEAT = 0
    DATA = 1
    STATE = 2
    GOODBYE = 3


class Frame(NamedTuple):
    """From a master. The body is a view of the decoder's buffer: use it before the next bytes are received."""

    kind: Kind
    offset: int
    """Of the first byte of the body in the log; of a heartbeat, where the next one goes."""
    body: memoryview
    epoch: int = 0
    confirmed: int = 0


class ReportKind(IntEnum):
    """Of a native report. `STATE` is for groups: what is not in the log was applied up to the change number `end`."""

    LOG = 0
    STATE = 1


class Report(NamedTuple):
    """From a slave: the end of its log, and how much of it can be read there."""

    end: int
    dispatched: int = 0
    epoch: int = 0
    kind: ReportKind = ReportKind.LOG


# --- encoding ---------------------------------------------------------------------------------------------------------


def classic_frame_head(offset: int, size: int) -> bytes:
    return _CLASSIC_HEAD.pack(offset, size)


def native_frame_head(kind: Kind, offset: int, body: bytes | memoryview, confirmed: int, epoch: int = 0) -> bytes:
    return _NATIVE_HEAD.pack(len(body), kind, epoch, offset, confirmed, zlib.crc32(body))


def classic_report(end: int) -> bytes:
    return _CLASSIC_REPORT.pack(end)


def native_report(report: Report) -> bytes:
    return _NATIVE_REPORT.pack(report.kind, report.epoch, report.end, report.dispatched)


def hello_bytes(text: bytes) -> bytes:
    """A message of the introduction (hello.py), with its length."""
    if len(text) > HELLO_BYTES_MAX:
        raise FrameError(f"an introduction of {len(text)} bytes, at most {HELLO_BYTES_MAX} are taken")
    return _HELLO_LENGTH.pack(len(text)) + text


# --- frames of a master -----------------------------------------------------------------------------------------------


class FrameDecoder:
    """Splits what a slave receives into frames; works like asyncio.BufferedProtocol, so a body is copied only once."""

    def __init__(self, *, native: bool) -> None:
        self._is_native = native
        self._head_bytes = _NATIVE_HEAD.size if native else _CLASSIC_HEAD.size
        self._memory = memoryview(bytearray(_BUFFER_BYTES))
        self._begin = self._end = 0

    def get_buffer(self) -> memoryview:
        """Room for the next bytes, at least for the rest of the frame that has begun; then call `buffer_updated`."""
        begin, end, memory = self._begin, self._end, self._memory
        needed = self._head_bytes
        if end - begin >= needed:
            needed += self._body_bytes()
        if begin == end:
            self._begin = self._end = 0
        elif begin + needed > len(memory) or end == len(memory):
            rest = bytes(memory[begin:end])
            if needed > len(memory):
                self._memory = memoryview(bytearray(needed))
            self._memory[: len(rest)] = rest
            self._begin, self._end = 0, len(rest)
        return self._memory[self._end :]

    def buffer_updated(self, count: int) -> None:
        self._end += count

    def add(self, data: bytes) -> None:
        """Adds a few bytes that were received otherwise: at most the room that `get_buffer` returns."""
        room = self.get_buffer()
        room[: len(data)] = data
        self.buffer_updated(len(data))

    def next_frame(self) -> Frame | None:
        """The next complete frame; None when more bytes are needed; FrameError when no frame can begin so."""
        if self._end - self._begin < self._head_bytes:
            return None
        body_at = self._begin + self._head_bytes
        end = body_at + self._body_bytes()
        if end > self._end:
            return None
        head, body = self._begin, self._memory[body_at:end]
        self._begin = end
        return self._native(head, body) if self._is_native else self._classic(head, body)

    def _body_bytes(self) -> int:
        """As the head says, checked before anything is allocated."""
        if self._is_native:
            size, limit = _NATIVE_HEAD.unpack_from(self._memory, self._begin)[0], NATIVE_BODY_BYTES_MAX
        else:
            offset, size = _CLASSIC_HEAD.unpack_from(self._memory, self._begin)
            limit = CLASSIC_BODY_BYTES_MAX
            _check_offset(offset, size)
        if not 0 <= size <= limit:
            raise FrameError(f"a replication frame of {size} bytes, expected 0 to {limit}")
        return int(size)

    def _classic(self, head: int, body: memoryview) -> Frame:
        offset, size = _CLASSIC_HEAD.unpack_from(self._memory, head)
        return Frame(Kind.DATA if size else Kind.HEARTBEAT, offset, body)

    def _native(self, head: int, body: memoryview) -> Frame:
        size, number, epoch, offset, confirmed, crc = _NATIVE_HEAD.unpack_from(self._memory, head)
        _check_offset(offset, size)
        try:
            kind = Kind(number)
        except ValueError:
            raise FrameError(f"a replication frame of kind {number}, which is not known") from None
        if zlib.crc32(body) != crc:
            raise FrameError(f"the replication frame at {offset} does not match its checksum")
        return Frame(kind, offset, body, epoch, confirmed)


def _check_offset(offset: int, size: int) -> None:
    if not 0 <= offset <= OFFSET_MAX - max(size, 0):
        raise FrameError(f"a replication frame at offset {offset}: not an offset of a log")


# --- reports of a slave -----------------------------------------------------------------------------------------------


class ReportDecoder:
    """Splits what a master receives into reports. Keeps less than one of them."""

    def __init__(self, *, native: bool, kinds: Container[int] = (ReportKind.LOG,)) -> None:
        """`kinds`: which native reports are taken."""
        self._is_native = native
        self._kinds = kinds
        self._bytes = _NATIVE_REPORT.size if native else _CLASSIC_REPORT.size
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Report]:
        data = self._rest + data if self._rest else data
        whole = len(data) - len(data) % self._bytes
        self._rest = data[whole:]
        for at in range(0, whole, self._bytes):
            yield self._native(data, at) if self._is_native else self._classic(data, at)

    def _classic(self, data: bytes, at: int) -> Report:
        (end,) = _CLASSIC_REPORT.unpack_from(data, at)
        return Report(_checked_end(end))

    def _native(self, data: bytes, at: int) -> Report:
        kind, epoch, end, dispatched = _NATIVE_REPORT.unpack_from(data, at)
        if kind not in self._kinds:
            raise FrameError(f"a report of kind {kind}, which is not known")
        if dispatched < 0 or (kind == ReportKind.LOG and dispatched > _checked_end(end)):
            raise FrameError(f"a slave reported {dispatched} of {end} as dispatched")
        return Report(_checked_end(end), dispatched, epoch, ReportKind(kind))


def _checked_end(end: int) -> int:
    if end < 0:
        raise FrameError(f"a slave reported {end}: not the end of a log")
    return int(end)


# --- the introduction of native peers ---------------------------------------------------------------------------------


class HelloDecoder:
    """Collects one message of the introduction; what follows it is `rest`."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.rest = b""

    def feed(self, data: bytes) -> bytes | None:
        """The message when it is complete; FrameError when it is longer than any introduction."""
        self._data += data
        if len(self._data) < _HELLO_LENGTH.size:
            return None
        (length,) = _HELLO_LENGTH.unpack_from(self._data)
        if not 0 <= length <= HELLO_BYTES_MAX:
            raise FrameError(f"an introduction of {length} bytes, at most {HELLO_BYTES_MAX} are taken")
        end = _HELLO_LENGTH.size + length
        if len(self._data) < end:
            return None
        self.rest = bytes(self._data[end:])
        return bytes(self._data[_HELLO_LENGTH.size : end])
