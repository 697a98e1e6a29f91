"""Sends as nearly all of them come (lane_frames.py): SEND_MESSAGE_V2, and SEND_BATCH_MESSAGE with the same fields.

One typed pass takes 1.0 us against 2.7. The types below are those of the general way.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import field

from ariane.wire.fields import Int32, Int64
from ariane.wire.frame import FrameLimits
from ariane.wire.lane_frames import LaneHeader, lane_frames

# Java, Go and C++ all write the code first, and without blanks
_SINGLE = (b'{"code":310,',)
_BATCH = (b'{"code":320,',)


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


class SendHeader(LaneHeader, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    code: Literal[310, 320]
    fields: SendFields = field(name="extFields")


_decode = msgspec.json.Decoder(SendHeader, strict=False).decode

SendFrame = tuple[int, int, SendFields, int]
"""Where the next frame begins, the opaque number, the fields, where the body begins."""


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
    return lane_frames(data, position, limits, _BATCH if batches else _SINGLE, _decode)
