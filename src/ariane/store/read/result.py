"""The result of a read: messages, or a status of Apache that says why there are none and where to continue."""

from enum import Enum

import msgspec

from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.read.fast_reads import SegmentRead


class ReadStatus(Enum):
    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class ReadResult(msgspec.Struct, frozen=True, kw_only=True):
    status: ReadStatus
    next_offset: int
    min_offset: int = 0
    max_offset: int = 0
    slices: list[memoryview] = []
    ranges: list[tuple[int, int]] = []
    """Physical offset and size of each slice, to fetch them first if they are cold."""
    suggest_slave: bool = False
    """The reader is so far behind that its messages are no longer cached: a slave should serve it."""


def found_result(queue: ConsumeQueue, offset: int, segment_read: SegmentRead) -> ReadResult:
    return ReadResult(
        status=ReadStatus.FOUND,
        next_offset=offset + len(segment_read.offsets),
        min_offset=queue.min_offset,
        max_offset=queue.visible_end,
        slices=segment_read.slices(),
        ranges=list(zip(segment_read.offsets, segment_read.sizes, strict=True)),
    )


def out_of_range(queue: ConsumeQueue, offset: int) -> ReadResult | None:
    """The result when `offset` is not inside what readers see of the queue; None when it is.

    A reader that is ahead of the visible end, and not of the queue, waits: it has been here when more was confirmed, at
    another member of the group, and what is there will be confirmed again."""
    low, high = queue.min_offset, queue.visible_end
    if high < offset <= queue.max_offset:
        status, following = ReadStatus.OFFSET_OVERFLOW_ONE, offset
    elif high == 0:
        status, following = ReadStatus.NO_MESSAGE_IN_QUEUE, 0
    elif offset < low:
        status, following = ReadStatus.OFFSET_TOO_SMALL, low
    elif offset == high:
        status, following = ReadStatus.OFFSET_OVERFLOW_ONE, offset
    elif offset > high:
        # To the end, as Apache does from 4.9 on. Earlier releases went to 0 if that was still there: a group that was
        # ahead of a truncated log then got everything again.
        status, following = ReadStatus.OFFSET_OVERFLOW_BADLY, high
    else:
        return None
    return ReadResult(status=status, next_offset=following, min_offset=low, max_offset=high)
