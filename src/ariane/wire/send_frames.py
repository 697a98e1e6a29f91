"""Sends as nearly all of them come, read in one pass: whole frames of SEND_MESSAGE_V2, back to back in one chunk.
SEND_BATCH_MESSAGE, which has the same fields, is read the same way.

The general way reads a header twice, once for its code and once for its fields, because it does not know what to
expect. Here the first bytes tell, and one typed pass reads all of it: 1.0 us against 2.7 us. Whatever is in any way
unusual - another code or flag, a binary header, an unknown or a missing field, a number that only Java would read, a
header or a frame that passes a limit - ends the run: the general way takes it from there, and refuses what is to be
refused. So the types below are those of the general way, and there is no error here.
"""

import struct
from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import field

from ariane.wire.fields import Int32, Int64
from ariane.wire.frame import FrameLimits
from ariane.wire.json_header import SURELY_WITHIN_LIMITS

_prefix = struct.Struct(">iI").unpack_from
# Java, Go and C++ all write the code first, and without blanks
_SINGLE = b'{"code":310,'
_BATCH = b'{"code":320,'


class SendFields(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`extFields` of both requests. Those without a letter are known so that they do not end the run.

    An unknown field ends it, which costs 0.07 us and makes a search for deep nesting (0.47 us) unnecessary.
    """

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: Int32 = field(name="d")
    queue_id: Int32 = field(name="e")
    sys_flag: Int32 = field(name="f")
    born_timestamp: Int64 = field(name="g")
    flag: Int32 = field(name="h")
    properties: str | None = field(name="i", default=None)
    reconsume_times: Int32 | None = field(name="j", default=None)
    unit_mode: bool = field(name="k", default=False)
    max_reconsume_times: Int32 | None = field(name="l", default=None)
    batch: bool | int = field(name="m", default=False)
    broker_name: str | None = field(name="n", default=None)
    access_key: str | None = field(name="AccessKey", default=None)
    signature: str | None = field(name="Signature", default=None)
    security_token: str | None = field(name="SecurityToken", default=None)


class SendHeader(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """The whole header. The flag must be 0: an answer is no send, and who asks one way is served the general way."""

    code: Literal[310, 320]
    fields: SendFields = field(name="extFields")
    flag: Literal[0] = 0
    opaque: Int32 = 0
    version: Int32 = 0
    language: str | int | None = None
    remark: str | None = None
    serialization: str | None = field(name="serializeTypeCurrentRPC", default=None)


_decode = msgspec.json.Decoder(SendHeader, strict=False).decode

SendFrame = tuple[int, int, SendFields, bytes]
"""Where the next frame begins, the opaque number, the fields, the body."""


def begins_with_send(data: bytes, position: int) -> bool:
    """Whether a send may begin there: a quick look, for who would prepare for it in vain."""
    return data.startswith(_SINGLE, position + 8)


def begins_with_batch(data: bytes, position: int) -> bool:
    """Likewise for a batch."""
    return data.startswith(_BATCH, position + 8)


def send_frames(data: bytes, position: int, limits: FrameLimits, *, batches: bool = False) -> Iterator[SendFrame]:
    """The usual sends in `data` from `position` on, up to the first frame that is another, or not yet whole.

    Of single sends, or of batches: a run has one kind of them.
    """
    beginning = _BATCH if batches else _SINGLE
    available = len(data)
    frame_bytes_max = limits.frame_bytes_max
    # A longer header may hold more fields, or longer ones, than are allowed: that is for the general way to count.
    header_bytes_max = min(limits.header_bytes_max, SURELY_WITHIN_LIMITS)
    while data.startswith(beginning, position + 8):
        length, header_bytes = _prefix(data, position)  # the header's kind is its top byte, and 0 for JSON
        header_at = position + 8
        body_at = header_at + header_bytes
        position += 4 + length
        if header_bytes > header_bytes_max or not body_at <= position <= available or length + 4 > frame_bytes_max:
            return
        try:
            header = _decode(data[header_at:body_at])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        yield position, header.opaque, header.fields, data[body_at:position]
