"""Pulls as nearly all of them come, read in one pass: whole frames of PULL_MESSAGE, back to back in one chunk.

As for sends (send_frames.py) the first bytes tell what to expect, and one typed pass reads all of it: 2.5 us against
3.9. Whatever is in any way unusual - another flag, a binary header, an unknown or a missing field, a number that only
Java would read, a header or a frame that passes a limit - ends the run: the general way takes it from there, and
refuses what is to be refused. So there is no error here.
"""

import struct
from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import field

from ariane.wire.fields import Int32
from ariane.wire.frame import FrameLimits
from ariane.wire.json_header import SURELY_WITHIN_LIMITS
from ariane.wire.requests.pull import Pull

_prefix = struct.Struct(">iI").unpack_from
# PULL_MESSAGE and LITE_PULL_MESSAGE. Java, Go, C++ and Node all write the code first, and without blanks.
_BEGINNINGS = (b'{"code":11,', b'{"code":361,')


class PullFields(Pull, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """`extFields` of a pull. What the general way passes over is known here so that it does not end the run."""

    bname: str | None = None
    request_type: str | None = field(name="ReqT", default=None)
    ns: str | None = None
    nsd: str | None = None
    oway: str | None = None
    lo: str | None = None
    request_source: str | int | None = None
    proxy_froward_client_id: str | None = None  # so misspelt by Apache
    access_key: str | None = field(name="AccessKey", default=None)
    signature: str | None = field(name="Signature", default=None)
    security_token: str | None = field(name="SecurityToken", default=None)
    ons_channel: str | None = field(name="OnsChannel", default=None)


class PullHeader(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """The whole header. The flag must be 0: an answer is no pull, and nobody pulls one way."""

    code: Literal[11, 361]
    fields: PullFields = field(name="extFields")
    flag: Literal[0] = 0
    opaque: Int32 = 0
    version: Int32 = 0
    language: str | int | None = None
    remark: str | None = None
    serialization: str | None = field(name="serializeTypeCurrentRPC", default=None)


_decode = msgspec.json.Decoder(PullHeader, strict=False).decode

PullFrame = tuple[int, int, PullFields]
"""Where the next frame begins, the opaque number, the fields."""


def begins_with_pull(data: bytes, position: int) -> bool:
    """Whether a pull may begin there: a quick look, for who would prepare for it in vain."""
    return data.startswith(_BEGINNINGS, position + 8)


def pull_frames(data: bytes, position: int, limits: FrameLimits) -> Iterator[PullFrame]:
    """The usual pulls in `data` from `position` on, up to the first frame that is another, or not yet whole."""
    available = len(data)
    frame_bytes_max = limits.frame_bytes_max
    # A longer header may hold more fields, or longer ones, than are allowed: that is for the general way to count.
    header_bytes_max = min(limits.header_bytes_max, SURELY_WITHIN_LIMITS)
    while data.startswith(_BEGINNINGS, position + 8):
        length, header_bytes = _prefix(data, position)  # the header's kind is its top byte, and 0 for JSON
        header_at = position + 8
        header_end = header_at + header_bytes
        position += 4 + length
        if header_bytes > header_bytes_max or not header_end <= position <= available or length + 4 > frame_bytes_max:
            return
        try:
            header = _decode(data[header_at:header_end])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        yield position, header.opaque, header.fields
