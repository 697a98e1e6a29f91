"""Whole frames of one request, back to back in one chunk, each read in one typed pass.

The general way reads a header twice, once for its code and once for its fields, because it does not know what to
expect. Here the first bytes tell. Whatever is in any way unusual - another code or flag, a binary header, an unknown or
a missing field, a number that only Java would read, a header or a frame that passes a limit - ends the run: the general
way takes it from there, and refuses what is to be refused. So there is no error here.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Literal, Protocol, TypeVar

import msgspec
from msgspec import field

from ariane.wire.fields import Int32
from ariane.wire.frame import FrameLimits
from ariane.wire.json_header import SURELY_WITHIN_LIMITS

_prefix = struct.Struct(">iI").unpack_from
F = TypeVar("F", covariant=True)
G = TypeVar("G")


class LaneHeader(msgspec.Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """What any request has in its header beside code and fields. The flag must be 0: no answer, and not one-way."""

    flag: Literal[0] = 0
    opaque: Int32 = 0
    version: Int32 = 0
    language: str | int | None = None
    remark: str | None = None
    serialization: str | None = field(name="serializeTypeCurrentRPC", default=None)


class _Header(Protocol[F]):
    @property
    def opaque(self) -> int: ...

    @property
    def fields(self) -> F: ...


def lane_frames(
    data: bytes,
    position: int,
    limits: FrameLimits,
    beginnings: tuple[bytes, ...],
    decode: Callable[[bytes], _Header[G]],
) -> Iterator[tuple[int, int, G, int]]:
    """The frames in `data` from `position` on, up to the first that is another, or not yet whole.

    Of each: where the next one begins, the opaque number, the fields, and where the body begins.
    """
    available = len(data)
    frame_bytes_max = limits.frame_bytes_max
    # A longer header may hold more fields, or longer ones, than are allowed: that is for the general way to count.
    header_bytes_max = min(limits.header_bytes_max, SURELY_WITHIN_LIMITS)
    while data.startswith(beginnings, position + 8):
        length, header_bytes = _prefix(data, position)  # the header's kind is its top byte, and 0 for JSON
        header_at = position + 8
        body_at = header_at + header_bytes
        position += 4 + length
        if header_bytes > header_bytes_max or not body_at <= position <= available or length + 4 > frame_bytes_max:
            return
        try:
            header = decode(data[header_at:body_at])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        yield position, header.opaque, header.fields, body_at
