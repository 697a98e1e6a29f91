"""Responses to pulls. Each carries the four numbers, without which clients stop.

FOUND                                          SUCCESS                 with the records, back to back
NO_MATCHED_MESSAGE, MESSAGE_WAS_REMOVING       PULL_RETRY_IMMEDIATELY  go on from nextBeginOffset at once
OFFSET_OVERFLOW_ONE, OFFSET_FOUND_NULL         PULL_NOT_FOUND          nothing new: wait
NO_MESSAGE_IN_QUEUE, NO_MATCHED_LOGIC_QUEUE    PULL_NOT_FOUND when 0 was asked for, else PULL_OFFSET_MOVED
OFFSET_TOO_SMALL, OFFSET_OVERFLOW_BADLY        PULL_OFFSET_MOVED       go to nextBeginOffset: the queue is elsewhere
"""

import struct

from msgspec.structs import replace

from ariane.broker.writer import InboundMessage
from ariane.model.group import GroupConfig
from ariane.model.ids import QueueOffset
from ariane.model.message import Property
from ariane.model.route import MASTER_ID, MessageQueue
from ariane.model.system_topics import OFFSET_MOVED_EVENT
from ariane.store.read.result import ReadResult, ReadStatus
from ariane.wire.codes import ResponseCode, Serialization
from ariane.wire.exchange import response_command
from ariane.wire.fast.fields import Opaque, opaque_of
from ariane.wire.fast.templates import BINARY_TEMPLATES_MAX, SAMPLE_OPAQUES, form_of_samples, sample_numbers
from ariane.wire.frame import FRAME_BYTES_MAX, Command, encode_binary_header, encode_json_header
from ariane.wire.json.body import JsonBody
from ariane.wire.requests.pull import Pull, PullResponse

_CODES = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
}
_PREFIX = struct.Struct(">iI")
_BINARY = Serialization.BINARY
_BINARY_KIND = _BINARY << 24

# Numbers that occur nowhere else in a response, each replaced by a placeholder.
_OPAQUE, _BROKER, _NEXT, _MIN, _MAX = 1_111_111_111, 1_222_222_222, 1_333_333_333, 1_444_444_444, 1_555_555_555

_EMPTY = (ReadStatus.NO_MESSAGE_IN_QUEUE, ReadStatus.NO_MATCHED_LOGIC_QUEUE)


def pull_code(result: ReadResult, offset: int) -> ResponseCode:
    if offset == 0 and result.status in _EMPTY:
        return ResponseCode.PULL_NOT_FOUND
    return _CODES[result.status]


def moved_at_slave(result: ReadResult, offset: int, is_checked: bool) -> tuple[ResponseCode, ReadResult]:
    """For an offset outside of its queue at a slave, which may only be behind: the consumer tries again with the offset
    that it has. `is_checked` is offsetCheckInSlave: it is moved, as by a master."""
    if is_checked:
        return ResponseCode.PULL_OFFSET_MOVED, result
    return ResponseCode.PULL_RETRY_IMMEDIATELY, replace(result, next_offset=offset)


def pull_response(code: ResponseCode, result: ReadResult, broker_id: int) -> PullResponse:
    return PullResponse(
        code=code,
        remark=result.status.value,
        suggest_which_broker_id=broker_id,
        next_begin_offset=QueueOffset(result.next_offset),
        min_offset=QueueOffset(result.min_offset),
        max_offset=QueueOffset(result.max_offset),
        body=b"".join(result.slices),  # one copy: cheaper than many small pieces, and no view outlives this call
    )


class FoundResponses:
    """Response frames of pulls that found messages, which nearly all do under load.

    Filled into templates, as the responses to sends are (send/responses.py), and joined with the records in one copy:
    the general encoder copies the body once more for its frame.
    """

    def __init__(self) -> None:
        result = ReadResult(status=ReadStatus.FOUND, next_offset=_NEXT, min_offset=_MIN, max_offset=_MAX)
        response = pull_response(ResponseCode.SUCCESS, result, _BROKER)
        header = encode_json_header(response_command(Command(code=0, opaque=_OPAQUE), response)).replace(b"%", b"%%")
        for number in (_OPAQUE, _BROKER, _NEXT, _MIN, _MAX):
            header = header.replace(str(number).encode(), b"%d")
        self._template = header
        self._binary_templates: dict[tuple[int, int, int, int], bytes] = {}

    def frame(self, command: Command, result: ReadResult, broker_id: int, size: int) -> bytes | None:
        """With `size` bytes of records; None when the template does not fit."""
        if command.flag or size > FRAME_BYTES_MAX // 2:
            return None
        head = self.head(opaque_of(command), broker_id, result.next_offset, result.min_offset, result.max_offset, size)
        return b"".join((head, *result.slices))

    def head(
        self, opaque: Opaque, broker_id: int, next_offset: int, min_offset: int, max_offset: int, size: int
    ) -> bytes:
        """A frame without its `size` bytes of records."""
        if type(opaque) is int:
            header = self._template % (opaque, broker_id, next_offset, min_offset, max_offset)
            return _PREFIX.pack(4 + len(header) + size, len(header)) + header
        next_text, min_text, max_text = b"%d" % next_offset, b"%d" % min_offset, b"%d" % max_offset
        kind = broker_id, len(next_text), len(min_text), len(max_text)
        template = self._binary_templates.get(kind) or self._make_binary_template(*kind)
        header = template % (opaque, next_text, min_text, max_text)
        return _PREFIX.pack(4 + len(header) + size, _BINARY_KIND | len(header)) + header

    def _make_binary_template(self, broker_id: int, next_digits: int, min_digits: int, max_digits: int) -> bytes:
        """Fits offsets of so many digits."""
        if len(self._binary_templates) >= BINARY_TEMPLATES_MAX:
            self._binary_templates.clear()
        samples = []
        offsets = zip(*map(sample_numbers, (next_digits, min_digits, max_digits)), strict=True)
        for sample_opaque, (next_offset, min_offset, max_offset) in zip(SAMPLE_OPAQUES, offsets, strict=True):
            result = ReadResult(
                status=ReadStatus.FOUND, next_offset=next_offset, min_offset=min_offset, max_offset=max_offset
            )
            request = Command(code=0, opaque=sample_opaque, serialization=_BINARY)
            response = pull_response(ResponseCode.SUCCESS, result, broker_id)
            samples.append(encode_binary_header(response_command(request, response)))
        template = form_of_samples(*samples, *[b"%b"] * 4)
        self._binary_templates[broker_id, next_digits, min_digits, max_digits] = template
        return template


def suggested_broker(result: ReadResult, group: GroupConfig, slave_read: bool) -> int:
    """Where to pull next: from the master, or, when it may be and the reader is far behind, from a slave."""
    if not slave_read:
        return MASTER_ID
    return group.which_broker_when_consume_slowly if result.suggest_slave else group.broker_id


class OffsetMovedEvent(JsonBody, frozen=True):
    consumer_group: str
    message_queue: MessageQueue
    offset_request: int
    offset_new: int


def offset_moved_event(
    request: Pull, offset: int, result: ReadResult, broker: str, now_ms: int, store_host: bytes
) -> InboundMessage:
    """A message for operators about a group whose offset was not in its queue: it may have missed messages."""
    event = OffsetMovedEvent(
        consumer_group=request.consumer_group,
        message_queue=MessageQueue(topic=request.topic, broker_name=broker, queue_id=request.queue_id),
        offset_request=offset,
        offset_new=result.next_offset,
    )
    return InboundMessage(
        topic=OFFSET_MOVED_EVENT,
        queue_id=0,
        body=event.to_bytes(),
        properties={Property.TAGS: request.consumer_group, Property.KEYS: request.consumer_group},
        born_timestamp_ms=now_ms,
        born_host=store_host,
    )
