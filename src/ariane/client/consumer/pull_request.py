"""One pull: the request for messages of a queue from an offset, and its result.

The header of pulls is encoded once per queue and filled in for each request: only the opaque number, the two offsets
and the flag that goes with one of them change. That takes 0.8 us; the general path, which builds and encodes a request,
takes 4.6 us.
"""

from enum import StrEnum

import msgspec

from ariane.client.consumer.message import BODY_BYTES_MAX, Received, receive_all
from ariane.client.consumer.subscriptions import matching
from ariane.client.core.instance import Instance
from ariane.client.core.queue_bounds import broker_of
from ariane.client.core.raw_call import PipelinedCall
from ariane.errors import RecordError, TooManyInFlight, TransportError
from ariane.model.group import Subscription
from ariane.model.ids import QueueOffset
from ariane.model.route import MASTER_ID, MessageQueue
from ariane.wire.codes import ResponseCode
from ariane.wire.fast.templates import frame_of, header_form
from ariane.wire.requests.pull import PullMessage, PullResponse, PullSysFlag

_OFFSET_MARK, _FLAG_MARK, _COMMIT_MARK = 3_000_222_000, 2_000_333_000, 3_000_444_000
_MARKS = {b"%d" % mark: b"%d" for mark in (_OFFSET_MARK, _FLAG_MARK, _COMMIT_MARK)}


class PullTemplate:
    """The header of requests that differ from `sample` only in offsets and flags."""

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
        """None if only the general path can encode it."""
        return None if self._form is None else frame_of(self._form % (opaque, offset, flags, commit_offset))


# Added to the time that the broker may hold the request: the timeout must be well above that.
_SLACK_S = 10.0

# Plain ints: each IntFlag operation costs a microsecond.
_COMMIT_OFFSET = int(PullSysFlag.COMMIT_OFFSET)
_SUSPEND = int(PullSysFlag.SUSPEND)
_SUBSCRIPTION = int(PullSysFlag.SUBSCRIPTION)


class PullStatus(StrEnum):
    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"
    """Before the first or after the last message: `next_offset` is where the broker says to continue."""


_STATUS: dict[int, PullStatus] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


class PullResult(msgspec.Struct, frozen=True):
    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: tuple[Received, ...] = ()


class PullRequest(msgspec.Struct, frozen=True, kw_only=True):
    queue: MessageQueue
    offset: int
    subscription: Subscription
    count: int = 32
    wait_s: float = 0.0
    """How long the broker may hold the request if there are no messages; 0: it responds immediately."""
    commit_offset: int | None = None
    """Stored by the broker together with the pull."""
    carries_subscription: bool = True
    """Whether the request has the subscription, or the broker uses that of the heartbeat."""


class Puller:
    """Pulls for one group. Remembers from which broker, master or slave, each queue is best read."""

    def __init__(self, instance: Instance, group: str, *, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._instance = instance
        self._group = group
        self._body_bytes_max = body_bytes_max
        self._suggested: dict[MessageQueue, int] = {}
        self._templates: dict[MessageQueue, tuple[object, PullTemplate]] = {}

    async def pull(self, request: PullRequest) -> PullResult:
        return self.result(request, await self.response(request))

    async def response(self, request: PullRequest, ahead: PipelinedCall | None = None) -> PullResponse:
        """The response to `request`, to be decoded by `result`; `ahead` is the call if it was sent ahead."""
        target = self._address(request.queue)
        try:
            response: PullResponse = await (self._call(request) if ahead is None else ahead.response())
        except TransportError as error:
            self._suggested.pop(request.queue, None)  # the suggested slave may be the one that is down
            if target is not None and not isinstance(error, TooManyInFlight):
                self._instance.routes.silent.add(target[0])
            raise
        self._suggested[request.queue] = response.suggest_which_broker_id
        return response

    def send_ahead(self, request: PullRequest) -> PipelinedCall | None:
        """Sends now, for `response` to await later; None if that needs the general path, or is impossible."""
        target = self._address(request.queue)
        try:
            return None if target is None else self._send(*target, request)
        except TransportError:
            return None

    def result(self, request: PullRequest, response: PullResponse) -> PullResult:
        status = _STATUS[response.code]
        messages: tuple[Received, ...] = ()
        if status is PullStatus.FOUND:
            received = receive_all(response.body, request.queue, response.max_offset, self._body_bytes_max)
            _check_offsets(request, response, received)
            messages = tuple(matching(request.subscription, received))
            status = PullStatus.FOUND if messages else PullStatus.NO_MATCHED_MSG
        return PullResult(status, response.next_begin_offset, response.min_offset, response.max_offset, messages)

    def _address(self, queue: MessageQueue) -> tuple[str, int] | None:
        return self._instance.routes.address_of(queue.broker_name, self._suggested.get(queue, MASTER_ID))

    async def _call(self, request: PullRequest) -> PullResponse:
        address, broker_id = self._address(request.queue) or (await broker_of(self._instance, request.queue), MASTER_ID)
        call = self._send(address, broker_id, request)
        if call is not None:
            response: PullResponse = await call.response()
            return response
        return await self._instance.call(
            address, self._wire_request(request, _flags(request, broker_id)), request.wait_s + _SLACK_S
        )

    def _send(self, address: str, broker_id: int, request: PullRequest) -> PipelinedCall | None:
        """None if it needs the general path: there is no open connection, or no template."""
        connection = self._instance.ready(address)
        if connection is None:
            return None
        opaque = connection.next_opaque()
        frame = self._template(request).frame(
            opaque, request.offset, _flags(request, broker_id), request.commit_offset or 0
        )
        return (
            None if frame is None else PipelinedCall(connection, PullMessage, opaque, frame, request.wait_s + _SLACK_S)
        )

    def _template(self, request: PullRequest) -> PullTemplate:
        """Cached for each queue, as long as the other fields of the request do not change."""
        cached = self._templates.get(request.queue)
        fields = (request.subscription, request.count, request.wait_s, request.carries_subscription)
        if cached is None or cached[0] != fields:
            cached = self._templates[request.queue] = fields, PullTemplate(self._wire_request(request, 0))
        return cached[1]

    def _wire_request(self, request: PullRequest, flags: int) -> PullMessage:
        return PullMessage(
            consumer_group=self._group,
            topic=request.queue.topic,
            queue_id=request.queue.queue_id,
            queue_offset=QueueOffset(request.offset),
            max_msg_nums=request.count,
            sys_flag=flags,
            commit_offset=QueueOffset(request.commit_offset or 0),
            suspend_timeout_millis=round(request.wait_s * 1000),
            sub_version=request.subscription.sub_version,
            subscription=request.subscription.sub_string if request.carries_subscription else None,
            expression_type=request.subscription.expression_type,
        )


def _flags(request: PullRequest, broker_id: int) -> int:
    flags = 0
    if request.commit_offset is not None and broker_id == MASTER_ID:
        flags |= _COMMIT_OFFSET
    if request.wait_s > 0:
        flags |= _SUSPEND
    if request.carries_subscription:
        flags |= _SUBSCRIPTION
    return flags


def _check_offsets(request: PullRequest, response: PullResponse, messages: list[Received]) -> None:
    """Offsets are committed later from these numbers, so they must be in the range that the broker reports."""
    offsets = [message.queue_offset for message in messages]
    for offset in (min(offsets), max(offsets)) if offsets else ():
        if not request.offset <= offset < response.next_begin_offset:
            raise RecordError(
                f"{request.queue} responded to a pull from {request.offset} to {response.next_begin_offset} with a "
                f"message at {offset}: the broker's queue index is damaged"
            )
