"""All messages of a range of one queue, pulled from its broker, as the bytes of stored records.

Several pulls are on their way at once: a broker gives 32 messages at a time, so waiting for each answer before asking
again would leave both ends idle. Where the next pull begins is only known for sure from the answer before it.

How many a broker gives is its own affair: 32, or what its settings say, 8 of those that left its memory, fewer of
large ones. So the first pull goes alone and asks for many; what it gets is the stride of those that follow, which ask
for no more than that. An answer with fewer makes the offsets of all pulls behind it wrong: these are dropped, and for
a while each goes alone again. From time to time one does so anyway, because a broker may give more by then.

With 32 messages to an answer, what is done for each answer counts: requests are filled into a form, all answers that
have come are taken at once, and their bodies are left where they were received.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ariane.client.consumer.pull_request import PullTemplate
from ariane.errors import ArianeError, RecordError
from ariane.model.group import ExpressionType
from ariane.model.ids import QueueOffset
from ariane.spark.cluster import Cluster
from ariane.spark.data_loss import report_loss
from ariane.spark.offsets import QueueRange
from ariane.transport.blocking import BlockingConnection
from ariane.transport.receive_buffer import ReceivedFrame, Span
from ariane.wire.codes import ResponseCode
from ariane.wire.exchange import read_response_to
from ariane.wire.frame import encode_frame
from ariane.wire.requests.pull import PullMessage, PullResponse, PullSysFlag

_FLAGS = int(PullSysFlag.SUBSCRIPTION)
_WINDOW_MAX = 128
_AHEAD_BYTES = 4 * 1024 * 1024  # of answers on their way: as much as one batch is made of
_STANDSTILLS_MAX = 100
_CAUTIOUS_PULLS, _CAUTIOUS_WINDOW = 32, 16
_LEARN_AGAIN = 1024  # answers: while one pull goes alone, both ends are idle for a moment


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    group: str
    expression: str = "*"
    expression_type: str = ExpressionType.TAG
    count: int = 256
    """Messages to ask for. A broker gives as many as it likes."""
    timeout_s: float = 10.0
    patience_s: float = 60.0
    fail_on_data_loss: bool = True

    @property
    def is_filtered(self) -> bool:
        return self.expression != "*"


class _Posted(NamedTuple):
    opaque: int
    offset: int
    is_alone: bool
    """No other begins where this one is thought to end."""


class _Given(NamedTuple):
    response: PullResponse
    body: Span


class RangePull:
    """One task's way through a range. Iterating gives the bodies of the answers, which hold records back to back.

    The last one may hold records behind the range's end; whoever decodes them leaves those out.
    """

    def __init__(self, cluster: Cluster, wanted: QueueRange, settings: PullSettings) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._settings = settings
        self._offset = wanted.start
        self._posted: deque[_Posted] = deque()
        self._forms: dict[int, PullTemplate] = {}
        self._posted_on: BlockingConnection | None = None
        self._ahead = wanted.start
        self._standstills = 0
        self._alone, self._in_step = 1, 0
        self._stride, self._window = settings.count, _WINDOW_MAX

    @property
    def offset(self) -> int:
        """Where the next pull begins: what the range has before it was given, or did not pass the filter."""
        return self._offset

    def __iter__(self) -> Iterator[bytes]:
        return (bytes(body.view) for body in self.spans())

    def spans(self) -> Iterator[Span]:
        """The same bodies where they were received. Each keeps a few MiB in memory as long as it is held."""
        topic, patience_s, patiently = self._wanted.queue.topic, self._settings.patience_s, self._cluster.patiently
        try:
            while self._offset < self._wanted.end:
                for response, body in patiently(self._next_answers, patience_s, topic):
                    began, self._offset = self._offset, self._after(response)
                    is_found = response.code == ResponseCode.SUCCESS
                    goes_on = self._follow(self._posted.popleft(), began, body if is_found else None)
                    if is_found:
                        yield body
                    if not goes_on:
                        break
        finally:
            self._forget_posted()

    # --- asking -----------------------------------------------------------------------------------------------------

    def _next_answers(self) -> list[_Given]:
        """Those of the first requests that are on their way, one at least. A request stays posted until its turn."""
        queue = self._wanted.queue
        connection = self._cluster.calls.connection(self._cluster.address(queue.topic, queue.broker_name))
        if connection is not self._posted_on:
            self._forget_posted()
            self._posted_on = connection
        try:
            self._top_up(connection)
            return self._read(
                connection.receive_available([one.opaque for one in self._posted], self._settings.timeout_s)
            )
        except Exception:
            self._forget_posted()  # the connection is gone, or will not be read in this order any more
            connection.close()
            raise

    def _read(self, arrived: list[ReceivedFrame]) -> list[_Given]:
        """Up to the first refusal, which raises only as the first: what came before it is not asked for again."""
        given: list[_Given] = []
        for command, body in arrived:
            try:
                given.append(_Given(read_response_to(PullMessage, command), body))
            except ArianeError:
                if not given:
                    raise
                self._forget_posted(len(given))
                break
        return given

    def _top_up(self, connection: BlockingConnection) -> None:
        """Not one by one, but when half of them are answered: one write, and a broker reads what it finds at once."""
        is_alone = self._settings.is_filtered or self._alone > 0
        stride, window = (self._settings.count, 1) if is_alone else (self._stride, self._window)
        room = window - len(self._posted)
        if room < max(1, window // 2):
            return
        asks: list[tuple[int, int]] = []
        while not (self._posted or asks) or (len(asks) < room and self._ahead < self._wanted.end):
            count = min(stride, self._wanted.end - self._ahead)
            asks.append((self._ahead, count))
            self._ahead += count
        if asks:
            opaques = connection.next_opaques(len(asks))
            frames = [self._frame(opaque, *request) for opaque, request in zip(opaques, asks, strict=True)]
            connection.send_frames(opaques, frames)
            posted = zip(opaques, asks, strict=True)
            self._posted.extend(_Posted(opaque, offset, is_alone) for opaque, (offset, _) in posted)

    def _frame(self, opaque: int, offset: int, count: int) -> bytes:
        """The request, filled into the form that all with this count have; a signed one is written anew."""
        if not self._cluster.calls.signs:
            form = self._forms.get(count)
            if form is None:
                form = self._forms[count] = PullTemplate(self._ask(offset, count))
            frame = form.frame(opaque, offset, _FLAGS, 0)
            if frame is not None:
                return frame
        command = self._cluster.calls.command(self._ask(offset, count))
        command.opaque = opaque
        return encode_frame(command)

    def _ask(self, offset: int, count: int) -> PullMessage:
        settings, queue = self._settings, self._wanted.queue
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

    def _follow(self, asked: _Posted, began: int, found: Span | None) -> bool:
        """Whether the pulls that are on their way still begin where this one ended; if not, they are dropped."""
        if asked.is_alone:
            self._ahead = self._offset
            if found is not None:
                self._stride = min(self._stride, self._offset - began)
                self._window = min(self._window, max(2, _AHEAD_BYTES // max(1, found.end - found.begin)))
                self._alone = max(0, self._alone - 1)
            return True
        if self._offset != (self._posted[0].offset if self._posted else self._ahead):
            self._forget_posted()
            self._learn(_CAUTIOUS_PULLS, _CAUTIOUS_WINDOW)
            return False
        self._in_step += 1
        if self._in_step == _LEARN_AGAIN:
            self._learn(1, _WINDOW_MAX)
        return True

    def _learn(self, pulls: int, window: int) -> None:
        """So many pulls go alone. The least that one of them gets is what all will get, or nearly always."""
        self._alone, self._in_step = pulls, 0
        self._stride, self._window = self._settings.count, window

    def _forget_posted(self, but: int = 0) -> None:
        """All requests that are on their way, or all but the first ones."""
        self._ahead = self._posted[but].offset if len(self._posted) > but > 0 else self._offset
        forgotten = [self._posted.pop().opaque for _ in range(len(self._posted) - but)]
        if self._posted_on is not None and forgotten:
            self._posted_on.discard(forgotten)

    # --- answers ----------------------------------------------------------------------------------------------------

    def _after(self, response: PullResponse) -> int:
        """Where to go on. What is missing on the way is a loss."""
        offset, goes_on = self._offset, response.next_begin_offset
        if response.code == ResponseCode.PULL_OFFSET_MOVED:
            return self._moved(response)
        if response.code == ResponseCode.PULL_NOT_FOUND and response.max_offset < self._wanted.end:
            self._lose(offset, self._wanted.end, f"the queue ends at {response.max_offset}")
            return self._wanted.end
        if goes_on <= offset:
            self._standstills += 1
            if response.code == ResponseCode.SUCCESS or self._standstills > _STANDSTILLS_MAX:
                raise RecordError(
                    f"{self._name} answers a pull from {offset} with the advice to go on from {goes_on}: the broker's "
                    "queue index is damaged"
                )
            return offset
        return goes_on

    def _moved(self, response: PullResponse) -> int:
        end = self._wanted.end
        goes_on = response.min_offset if self._offset < response.min_offset else end
        goes_on = min(goes_on, end)
        self._lose(self._offset, goes_on, f"the queue now has {response.min_offset} to {response.max_offset}")
        return goes_on

    def _lose(self, start: int, end: int, why: str) -> None:
        what = f"{self._name}: messages {start} to {end - 1} are gone, {end - start} in number ({why})"
        report_loss(what, fail=self._settings.fail_on_data_loss)

    @property
    def _name(self) -> str:
        queue = self._wanted.queue
        return f"queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name}"
