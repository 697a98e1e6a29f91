"""The pull loop: fetches messages of an assigned queue ahead, for push and lite pull consumers, within flow limits."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ariane.client.consumer.offsets import OffsetTable
from ariane.client.consumer.pull_request import Puller, PullRequest, PullResult, PullStatus
from ariane.client.consumer.queues import AssignedQueue, ProcessQueue
from ariane.client.core.instance import Instance
from ariane.client.core.raw_call import PipelinedCall
from ariane.errors import ArianeError, RequestFailed
from ariane.lifecycle import Backoff
from ariane.model.group import Subscription
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.pull import PullResponse

MiB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """How many unfinished messages a consumer holds before it stops pulling. Per queue, with Apache's defaults."""

    count: int = 1000
    bytes: int = 100 * MiB
    span: int = 2000
    """Distance between the first and the last unfinished offset. Without this limit, one stuck message would make a
    crash repeat thousands of finished ones. Ordered consumption finishes in order, so the limit does not apply."""

    def exceeded_by(self, process: ProcessQueue, *, ordered: bool = False) -> str | None:
        """The limit that `process` exceeds, or None: then pull."""
        if len(process) > self.count:
            return "count"
        if process.bytes > self.bytes:
            return "bytes"
        return "span" if process.span > self.span and not ordered else None

    def exceeded_with(
        self, process: ProcessQueue, count: int, size: int, next_offset: int, *, ordered: bool = False
    ) -> bool:
        """Whether `process` would exceed a limit with a response that is not decoded yet: up to `count` messages in
        `size` bytes before `next_offset`. (Compressed bodies may be larger, by one response at most.)"""
        if len(process) + count > self.count or process.bytes + size > self.bytes:
            return True
        return next_offset - 1 - process.commit_offset > self.span and not ordered


log = logging.getLogger(__name__)

PULL_WAIT_S = 15.0
# A broker that responds "nothing new" immediately, instead of holding the request, must not cause a busy loop.
_IDLE_PAUSE_S = 0.1

# A plain int: comparing enum members takes longer.
_FOUND = int(ResponseCode.SUCCESS)

# The broker does not know the subscription: it was restarted, or the heartbeat has not arrived yet.
_UNKNOWN_TO_BROKER = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    }
)


@dataclass(frozen=True, slots=True)
class _Pull:
    request: PullRequest
    call: PipelinedCall | None = None
    """Set if the request was sent ahead: before the response to the previous pull was decoded."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, error: type[BaseException] | None, *_more: object) -> None:
        """Forgets the call if the body fails (an undecodable response, or cancellation): it will not be awaited."""
        if error is not None and self.call is not None:
            self.call.forget()


@dataclass(frozen=True, slots=True, kw_only=True)
class PullLoop:
    """Pulls for each assigned queue; one `run` per queue."""

    instance: Instance
    puller: Puller
    offsets: OffsetTable
    subscriptions: Mapping[str, Subscription]
    arrived: Callable[[AssignedQueue], None]
    """Called after every pull, also without messages: the pull may have moved the commit offset."""
    limits: FlowLimits
    batch: int = 32
    ordered: bool = False
    carries_subscription: bool = False
    commits: bool = False
    """Whether a pull also commits if there are no unfinished messages: that shortens what a crash repeats. With
    unfinished messages, an offset may be saved during the pull, and a broker may handle the two in any order."""

    saves_corrections: bool = True
    """False where only the application may commit."""

    async def run(self, assigned: AssignedQueue) -> None:
        backoff = Backoff(first_s=0.2, longest_s=5.0)
        failed = False
        ahead: _Pull | None = None
        while True:
            if ahead is None and not self._may_pull(assigned):
                await assigned.wait_until(lambda: self._may_pull(assigned))
            try:
                ahead = await self._pull_once(assigned, ahead, backoff)
            except ArianeError as error:
                ahead, failed = None, True
                await self._after_failure(assigned, error, backoff)
            else:
                backoff.reset()
                if failed:
                    failed = False
                    log.info("pulling again", extra={"queue": assigned.queue, "offset": assigned.process.next_offset})

    def _is_active(self, assigned: AssignedQueue) -> bool:
        return assigned.queue.topic in self.subscriptions and not assigned.paused

    def _may_pull(self, assigned: AssignedQueue) -> bool:
        return self._is_active(assigned) and self.limits.exceeded_by(assigned.process, ordered=self.ordered) is None

    async def _pull_once(self, assigned: AssignedQueue, pull: _Pull | None, backoff: Backoff) -> _Pull | None:
        """Completes `pull` if it was sent ahead, or makes a new one. Returns the next one if that is sent ahead."""
        process, clock = assigned.process, self.instance.clock
        began_s, assigned.last_pull_ms = clock.monotonic(), clock.now_ms()
        if pull is None:
            pull = _Pull(self._next_request(assigned))
        response = await self.puller.response(pull.request, pull.call)
        if process.dropped:
            return None
        next_pull = self._pull_ahead(assigned, response)
        if next_pull is None:
            await self._take(assigned, self.puller.result(pull.request, response), began_s, backoff)
            return None
        with next_pull:
            await asyncio.sleep(
                0
            )  # it is sent now, with those of other queues, and then all their responses are decoded
            await self._take(assigned, self.puller.result(pull.request, response), began_s, backoff)
        return next_pull

    async def _take(self, assigned: AssignedQueue, result: PullResult, began_s: float, backoff: Backoff) -> None:
        process, clock = assigned.process, self.instance.clock
        requested = process.next_offset
        if result.status is PullStatus.OFFSET_ILLEGAL:
            await self._correct(assigned, result)
            await clock.sleep(backoff.next_s())
            return
        process.put(result.messages, result.next_offset)
        self.arrived(assigned)
        assigned.notify()
        if process.next_offset == requested and clock.monotonic() - began_s < _IDLE_PAUSE_S:
            await clock.sleep(_IDLE_PAUSE_S)

    def _pull_ahead(self, assigned: AssignedQueue, response: PullResponse) -> _Pull | None:
        """The next pull, sent before `response` is decoded, so that broker and client work at the same time.

        Only while the broker has more messages. At the end of a queue a pull waits at the broker anyway, and can then
        commit the offset that the current messages are about to reach.
        """
        process, end = assigned.process, response.next_begin_offset
        has_more = response.code == _FOUND and process.next_offset < end < response.max_offset
        if not has_more or not self._is_active(assigned):
            return None
        count = min(self.batch, end - process.next_offset)
        if self.limits.exceeded_with(process, count, len(response.body), end, ordered=self.ordered):
            return None
        request = self._request_at(assigned, end)
        call = self.puller.send_ahead(request)
        return None if call is None else _Pull(request, call)

    def _next_request(self, assigned: AssignedQueue) -> PullRequest:
        committed = self.offsets.get(assigned.queue) if self.commits and not len(assigned.process) else None
        return self._request_at(assigned, assigned.process.next_offset, committed or None)

    def _request_at(self, assigned: AssignedQueue, offset: int, commit_offset: int | None = None) -> PullRequest:
        return PullRequest(
            queue=assigned.queue,
            offset=offset,
            subscription=self.subscriptions[assigned.queue.topic],
            count=self.batch,
            wait_s=PULL_WAIT_S,
            commit_offset=commit_offset,
            carries_subscription=self.carries_subscription,
        )

    async def _correct(self, assigned: AssignedQueue, result: PullResult) -> None:
        """The requested offset is outside the queue. Pending messages are finished first, so that none is lost."""
        process, requested = assigned.process, assigned.process.next_offset
        await assigned.wait_until(lambda: len(process) == 0)
        log.warning(
            "offset corrected by the broker",
            extra={
                "queue": assigned.queue,
                "from": requested,
                "to": result.next_offset,
                "min": result.min_offset,
                "max": result.max_offset,
            },
        )
        assigned.replace(result.next_offset)
        if self.saves_corrections:
            self.offsets.correct(assigned.queue, result.next_offset)
            await self.offsets.save([assigned.queue])

    async def _after_failure(self, assigned: AssignedQueue, error: ArianeError, backoff: Backoff) -> None:
        pause_s = backoff.next_s()
        extra = {
            "queue": assigned.queue,
            "offset": assigned.process.next_offset,
            "reason": str(error),
            "again_in_s": pause_s,
        }
        log.warning("pull failed", extra=extra)
        if isinstance(error, RequestFailed) and error.code in _UNKNOWN_TO_BROKER:
            await self.instance.heartbeat_now()
        elif error.retriable:
            await self._refresh_route(assigned)
        await self.instance.clock.sleep(pause_s)

    async def _refresh_route(self, assigned: AssignedQueue) -> None:
        """A broker that failed may be back at another address."""
        try:
            await self.instance.routes.find(assigned.queue.topic, fresh=True)
        except ArianeError as error:
            log.debug("route not refreshed", extra={"topic": assigned.queue.topic, "reason": str(error)})
