"""Pulls all messages of an offset range of one queue from its broker, as the bytes of stored records.

Several pulls are pending at the same time: a broker returns 32 messages at a time, so waiting for each response before
the next request would leave both sides idle. But where the next pull begins is only known for sure from the response
before it.

The broker decides how many messages it returns: 32, or what its settings say, 8 of those that left its memory, fewer
large ones. So the first pull is sent alone and requests many; what it gets is the stride of those that follow, which
request no more than that. A response with fewer makes the offsets of all later pending pulls wrong: these are dropped,
and for a while each pull is sent alone again. From time to time one is sent alone anyway, because a broker may return
more by then.

With 32 messages to a response, the work for each response counts: requests are made from a template, all responses that
have arrived are taken at once, and their bodies stay where they were received.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ariane.client.consumer.pull_request import PullTemplate
from ariane.errors import ArianeError, RecordError, TransportError
from ariane.model.group import ExpressionType
from ariane.model.ids import QueueOffset
from ariane.spark.cluster import Cluster
from ariane.spark.data_loss import report_loss
from ariane.spark.offsets import QueueRange
from ariane.transport.blocking import BlockingConnection, ReceivedFrame, Span
from ariane.wire.codes import ResponseCode
from ariane.wire.exchange import read_response_to
from ariane.wire.frame import encode_frame
from ariane.wire.requests.pull import PullMessage, PullResponse, PullSysFlag

_FLAGS = int(PullSysFlag.SUBSCRIPTION)
_WINDOW_MAX = 128
_AHEAD_BYTES = 4 * 1024 * 1024  # of pending responses: as much as one batch is made of
_STANDSTILLS_MAX = 100
_CAUTIOUS_PULLS, _CAUTIOUS_WINDOW = 32, 16
_LEARN_AGAIN = 1024  # responses: while one pull is sent alone, both sides are idle for a moment


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    group: str
    expression: str = "*"
    expression_type: str = ExpressionType.TAG
    count: int = 256
    """Messages to request. The broker may return fewer."""
    timeout_s: float = 10.0
    patience_s: float = 60.0
    fail_on_data_loss: bool = True

    @property
    def is_filtered(self) -> bool:
        return self.expression != "*"


class _PendingPull(NamedTuple):
    opaque: int
    offset: int
    is_alone: bool
    """Whether no other pull was sent that begins where this one is expected to end."""


class _Received(NamedTuple):
    response: PullResponse
    body: Span


class RangePull:
    """Iterating gives the bodies of the responses, which hold records back to back.

    The last one may hold records behind the end of the range; the decoder leaves those out.
    """

    def __init__(self, cluster: Cluster, offsets: QueueRange, settings: PullSettings) -> None:
        self._cluster = cluster
        self._range = offsets
        self._settings = settings
        self._offset = offsets.start
        self._pending: deque[_PendingPull] = deque()
        self._templates: dict[int, PullTemplate] = {}
        self._connection: BlockingConnection | None = None
        self._ahead = offsets.start
        self._standstills = 0
        self._alone, self._in_step = 1, 0
        self._stride, self._window = settings.count, _WINDOW_MAX

    @property
    def offset(self) -> int:
        """Where the next pull begins: all messages before were returned, or did not pass the filter."""
        return self._offset

    def __iter__(self) -> Iterator[bytes]:
        return (bytes(body.view) for body in self.spans())

    def spans(self) -> Iterator[Span]:
        """The same bodies in their receive buffers. Each keeps a few MiB in memory as long as it is referenced."""
        topic, patience_s, patiently = self._range.queue.topic, self._settings.patience_s, self._cluster.patiently
        try:
            while self._offset < self._range.end:
                for response, body in patiently(self._next_responses, patience_s, topic):
                    began, self._offset = self._offset, self._after(response)
                    is_found = response.code == ResponseCode.SUCCESS
                    is_in_step = self._follow(self._pending.popleft(), began, body if is_found else None)
                    if is_found:
                        yield body
                    if not is_in_step:
                        break
        finally:
            self._drop_pending()

    # --- requests ---------------------------------------------------------------------------------------------------

    def _next_responses(self) -> list[_Received]:
        """The responses to the oldest pending requests, at least one. A request stays pending until its turn."""
        queue = self._range.queue
        connection = self._cluster.calls.connection(self._cluster.address(queue.topic, queue.broker_name))
        if connection is not self._connection:
            self._drop_pending()
            self._connection = connection
        try:
            self._top_up(connection)
            received = self._read(
                connection.receive_available([pull.opaque for pull in self._pending], self._settings.timeout_s)
            )
            self._check_is_not_behind(received[0].response)
        except Exception:
            self._drop_pending()  # the connection is lost, or cannot be read in this order any more
            connection.close()
            raise
        return received

    def _check_is_not_behind(self, response: PullResponse) -> None:
        """A slave that has not got these messages yet asks for another try: a later one, or one at the master."""
        offset = self._offset
        is_retry = response.code == ResponseCode.PULL_RETRY_IMMEDIATELY and response.next_begin_offset == offset
        if is_retry and response.max_offset <= offset:
            raise TransportError(
                f"{self._name} ends at {response.max_offset} there, and {offset} is wanted: this is a slave that is "
                "behind its master. Start the master, or wait for the slave"
            )

    def _read(self, arrived: list[ReceivedFrame]) -> list[_Received]:
        """Up to the first error, which is raised only if it is the first of all: what came before it is used."""
        received: list[_Received] = []
        for command, body in arrived:
            try:
                received.append(_Received(read_response_to(PullMessage, command), body))
            except ArianeError:
                if not received:
                    raise
                self._drop_pending(len(received))
                break
        return received

    def _top_up(self, connection: BlockingConnection) -> None:
        """Not one by one, but when half of them are answered: that is one write, and the broker reads them together."""
        is_alone = self._settings.is_filtered or self._alone > 0
        stride, window = (self._settings.count, 1) if is_alone else (self._stride, self._window)
        room = window - len(self._pending)
        if room < max(1, window // 2):
            return
        pulls: list[tuple[int, int]] = []
        while not (self._pending or pulls) or (len(pulls) < room and self._ahead < self._range.end):
            count = min(stride, self._range.end - self._ahead)
            pulls.append((self._ahead, count))
            self._ahead += count
        if pulls:
            opaques = connection.next_opaques(len(pulls))
            frames = [self._frame(connection, opaque, *pull) for opaque, pull in zip(opaques, pulls, strict=True)]
            connection.send_frames(opaques, frames)
            sent = zip(opaques, pulls, strict=True)
            self._pending.extend(_PendingPull(opaque, offset, is_alone) for opaque, (offset, _) in sent)

    def _frame(self, connection: BlockingConnection, opaque: int, offset: int, count: int) -> bytes:
        """The request, from the template for this count; a signed one is encoded each time."""
        if not self._cluster.calls.signs(connection):
            template = self._templates.get(count)
            if template is None:
                template = self._templates[count] = PullTemplate(self._request(offset, count))
            frame = template.frame(opaque, offset, _FLAGS, 0)
            if frame is not None:
                return frame
        command = self._cluster.calls.command(self._request(offset, count), connection)
        command.opaque = opaque
        return encode_frame(command)

    def _request(self, offset: int, count: int) -> PullMessage:
        settings, queue = self._settings, self._range.queue
        return PullMessage(
            consumer_group=settings.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=QueueOffset(offset),
            max_msg_nums=count,
            sys_flag=_FLAGS,
            commit_offset=QueueOffset(0),
            suspend_timeout_millis=0,
            sub_version=0,
            subscription=settings.expression,
            expression_type=settings.expression_type,
        )

    def _follow(self, pull: _PendingPull, began: int, body: Span | None) -> bool:
        """Whether the pending pulls still begin where this one ended; if not, they are dropped."""
        if pull.is_alone:
            self._ahead = self._offset
            if body is not None:
                self._stride = min(self._stride, self._offset - began)
                self._window = min(self._window, max(2, _AHEAD_BYTES // max(1, body.end - body.begin)))
                self._alone = max(0, self._alone - 1)
            return True
        if self._offset != (self._pending[0].offset if self._pending else self._ahead):
            self._drop_pending()
            self._learn(_CAUTIOUS_PULLS, _CAUTIOUS_WINDOW)
            return False
        self._in_step += 1
        if self._in_step == _LEARN_AGAIN:
            self._learn(1, _WINDOW_MAX)
        return True

    def _learn(self, pulls: int, window: int) -> None:
        """Sends the next `pulls` alone. The smallest response to them is taken as the size of all that follow."""
        self._alone, self._in_step = pulls, 0
        self._stride, self._window = self._settings.count, window

    def _drop_pending(self, keep: int = 0) -> None:
        """Drops all pending requests but the first `keep`."""
        self._ahead = self._pending[keep].offset if len(self._pending) > keep > 0 else self._offset
        dropped = [self._pending.pop().opaque for _ in range(len(self._pending) - keep)]
        if self._connection is not None and dropped:
            self._connection.discard(dropped)

    # --- responses --------------------------------------------------------------------------------------------------

    def _after(self, response: PullResponse) -> int:
        """The offset to continue at. Messages that are missing before it are reported as lost."""
        offset, next_offset = self._offset, response.next_begin_offset
        if response.code == ResponseCode.PULL_OFFSET_MOVED:
            return self._moved(response)
        if response.code == ResponseCode.PULL_NOT_FOUND and response.max_offset < self._range.end:
            self._report_loss(offset, self._range.end, f"the queue ends at {response.max_offset}")
            return self._range.end
        if next_offset <= offset:
            self._standstills += 1
            if response.code == ResponseCode.SUCCESS or self._standstills > _STANDSTILLS_MAX:
                raise RecordError(
                    f"{self._name} answers a pull from {offset} with the next offset {next_offset}: the broker's "
                    "consume queue is damaged"
                )
            return offset
        return next_offset

    def _moved(self, response: PullResponse) -> int:
        end = self._range.end
        next_offset = response.min_offset if self._offset < response.min_offset else end
        next_offset = min(next_offset, end)
        self._report_loss(
            self._offset, next_offset, f"the queue now has {response.min_offset} to {response.max_offset}"
        )
        return next_offset

    def _report_loss(self, start: int, end: int, why: str) -> None:
        what = f"{self._name}: messages {start} to {end - 1} are gone, {end - start} in number ({why})"
        report_loss(what, fail=self._settings.fail_on_data_loss)

    @property
    def _name(self) -> str:
        queue = self._range.queue
        return f"queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name}"
