"""The header of a pull, written once for each queue and filled in for each request.

Of all that it says, only the opaque number, the two offsets and the flag that goes with one of them change from pull to
pull of one queue. To fill them in takes 0.8 us; the general way, with its request and its fields, takes 4.6 us.
"""

from ariane.model.ids import QueueOffset
from ariane.wire.header_form import frame_of, header_form
from ariane.wire.requests.pull import PullMessage

_OFFSET_MARK, _FLAG_MARK, _COMMIT_MARK = 3_000_222_000, 2_000_333_000, 3_000_444_000
_MARKS = {b"%d" % mark: b"%d" for mark in (_OFFSET_MARK, _FLAG_MARK, _COMMIT_MARK)}


class PullTemplate:
    """For all requests that are like `sample` but for their offsets and flags."""

    __slots__ = ("_form",)

    def __init__(self, sample: PullMessage) -> None:
        marked = PullMessage(
            consumer_group=sample.consumer_group,
            topic=sample.topic,
            queue_id=sample.queue_id,
            queue_offset=QueueOffset(_OFFSET_MARK),
            max_msg_nums=sample.max_msg_nums,
            sys_flag=_FLAG_MARK,
            commit_offset=QueueOffset(_COMMIT_MARK),
            suspend_timeout_millis=sample.suspend_timeout_millis,
            sub_version=sample.sub_version,
            subscription=sample.subscription,
            expression_type=sample.expression_type,
        )
        self._form = header_form(marked, _MARKS)

    def frame(self, opaque: int, offset: int, flags: int, commit_offset: int) -> bytes | None:
        """None when it takes the general way to write it."""
        return None if self._form is None else frame_of(self._form % (opaque, offset, flags, commit_offset))
