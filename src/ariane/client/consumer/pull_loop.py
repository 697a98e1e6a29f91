"""The one loop that keeps a queue's messages coming, for every kind of consumer that does not pull by hand."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ariane.client.consumer.offsets import OffsetTable
from ariane.client.consumer.pull_request import Puller, PullRequest, PullResult, PullStatus
from ariane.client.consumer.queues import HeldQueue, ProcessQueue
from ariane.client.core.instance import Instance
from ariane.client.core.raw_call import PipelinedCall
from ariane.errors import ArianeError, RequestFailed
from ariane.lifecycle import Backoff
from ariane.model.group import Subscription
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.pull import PullResponse

# --- flow_limits ---
#
# How much a consumer takes in hand before it stops pulling.

MiB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """Per queue, with Apache's defaults."""

    count: int = 1000
    bytes: int = 100 * MiB
    span: int = 2000
    """Distance between the first and the last offset in hand. Beyond it a stuck message would make a crash repeat
    thousands of finished ones. Ordered consumption finishes in order, so it does not look at this."""

    def exceeded_by(self, held: ProcessQueue, *, ordered: bool = False) -> str | None:
        """Which limit `held` is over, or None: then pull."""
        if len(held) > self.count:
            return "count"
        if held.bytes > self.bytes:
            return "bytes"
        return "span" if held.span > self.span and not ordered else None

    def exceeded_with(
        self, held: ProcessQueue, count: int, size: int, next_offset: int, *, ordered: bool = False
    ) -> bool:
        """Whether `held` is over a limit once it has an answer, not read yet, of up to `count` messages in `size` bytes
        before `next_offset`. (Compressed bodies may turn out larger, by one answer at most.)"""
        if len(held) + count > self.count or held.bytes + size > self.bytes:
            return True
        return next_offset - 1 - held.commit_offset > self.span and not ordered


# ---

log = logging.getLogger(__name__)

PULL_WAIT_S = 15.0
# A broker that answers "nothing new" at once, instead of holding the request, must not make us spin.
_IDLE_PAUSE_S = 0.1

# A plain int: to compare members of an enum takes longer.
_FOUND = int(ResponseCode.SUCCESS)

# The broker does not know our subscription: it has been restarted, or our heartbeat is still on its way.
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
    """Where it was asked ahead: before the answer to the pull before it was read."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, error: type[BaseException] | None, *_more: object) -> None:
        """What fails in between is an answer that cannot be read, or the end: nobody will await this one."""
        if error is not None and self.call is not None:
            self.call.forget()


@dataclass(frozen=True, slots=True, kw_only=True)
class PullLoop:
    instance: Instance
    puller: Puller
    offsets: OffsetTable
    subscriptions: Mapping[str, Subscription]
    arrived: Callable[[HeldQueue], None]
    """Called after every pull, also one without messages: it may have moved the commit offset."""
    limits: FlowLimits
    batch: int = 32
    ordered: bool = False
    carries_subscription: bool = False
    commits: bool = False
    """Whether a pull that finds nothing in hand also commits: that shortens what a crash repeats. With messages in hand
    the offset may be saved anew while the pull is under way, and a broker may take the two in any order."""

    saves_corrections: bool = True
    """False where only the application may commit."""

    async def run(self, held: HeldQueue) -> None:
        backoff = Backoff(first_s=0.2, longest_s=5.0)
        failed = False
        ahead: _Pull | None = None
        while True:
            if ahead is None and not self._may_pull(held):
                await held.wait_until(lambda: self._may_pull(held))
            try:
                ahead = await self._pull_once(held, ahead, backoff)
            except ArianeError as error:
                ahead, failed = None, True
                await self._after_failure(held, error, backoff)
            else:
                backoff.reset()
                if failed:
                    failed = False
                    log.info("pulling again", extra={"queue": held.queue, "offset": held.process.next_offset})

    def _is_wanted(self, held: HeldQueue) -> bool:
        return held.queue.topic in self.subscriptions and not held.paused

    def _may_pull(self, held: HeldQueue) -> bool:
        return self._is_wanted(held) and self.limits.exceeded_by(held.process, ordered=self.ordered) is None

    async def _pull_once(self, held: HeldQueue, pull: _Pull | None, backoff: Backoff) -> _Pull | None:
        """`pull`, if that was asked ahead, or a new one. Returns the next one, if that is asked ahead in turn."""
        process, clock = held.process, self.instance.clock
        began_s, held.last_pull_ms = clock.monotonic(), clock.now_ms()
        if pull is None:
            pull = _Pull(self._ask(held))
        response = await self.puller.answer(pull.request, pull.call)
        if process.dropped:
            return None
        following = self._ask_ahead(held, response)
        if following is None:
            await self._take(held, self.puller.result(pull.request, response), began_s, backoff)
            return None
        with following:
            await asyncio.sleep(0)  # it leaves now, with those of other queues, and then all their answers are read
            await self._take(held, self.puller.result(pull.request, response), began_s, backoff)
        return following

    async def _take(self, held: HeldQueue, result: PullResult, began_s: float, backoff: Backoff) -> None:
        process, clock = held.process, self.instance.clock
        asked = process.next_offset
        if result.status is PullStatus.OFFSET_ILLEGAL:
            await self._correct(held, result)
            await clock.sleep(backoff.next_s())
            return
        process.put(result.messages, result.next_offset)
        self.arrived(held)
        held.tell()
        if process.next_offset == asked and clock.monotonic() - began_s < _IDLE_PAUSE_S:
            await clock.sleep(_IDLE_PAUSE_S)

    def _ask_ahead(self, held: HeldQueue, response: PullResponse) -> _Pull | None:
        """The pull behind `answer`, asked before that is read: so the broker works while we do.

        Only while there is more at the broker. At the end of a queue a pull waits there anyway, and it may take the
        offset along that the messages in hand are about to reach.
        """
        process, end = held.process, response.next_begin_offset
        has_more = response.code == _FOUND and process.next_offset < end < response.max_offset
        if not has_more or not self._is_wanted(held):
            return None
        count = min(self.batch, end - process.next_offset)
        if self.limits.exceeded_with(process, count, len(response.body), end, ordered=self.ordered):
            return None
        request = self._ask_at(held, end)
        call = self.puller.ask_ahead(request)
        return None if call is None else _Pull(request, call)

    def _ask(self, held: HeldQueue) -> PullRequest:
        committed = self.offsets.get(held.queue) if self.commits and not len(held.process) else None
        return self._ask_at(held, held.process.next_offset, committed or None)

    def _ask_at(self, held: HeldQueue, offset: int, commit_offset: int | None = None) -> PullRequest:
        return PullRequest(
            queue=held.queue,
            offset=offset,
            subscription=self.subscriptions[held.queue.topic],
            count=self.batch,
            wait_s=PULL_WAIT_S,
            commit_offset=commit_offset,
            carries_subscription=self.carries_subscription,
        )

    async def _correct(self, held: HeldQueue, result: PullResult) -> None:
        """The messages we wanted are gone, or never were. What is in hand is finished first, so that none is lost."""
        process, wanted = held.process, held.process.next_offset
        await held.wait_until(lambda: len(process) == 0)
        log.warning(
            "offset corrected by the broker",
            extra={
                "queue": held.queue,
                "from": wanted,
                "to": result.next_offset,
                "min": result.min_offset,
                "max": result.max_offset,
            },
        )
        held.replace(result.next_offset)
        if self.saves_corrections:
            self.offsets.move(held.queue, result.next_offset)
            await self.offsets.save([held.queue])

    async def _after_failure(self, held: HeldQueue, error: ArianeError, backoff: Backoff) -> None:
        pause_s = backoff.next_s()
        extra = {"queue": held.queue, "offset": held.process.next_offset, "reason": str(error), "again_in_s": pause_s}
        log.warning("pull failed", extra=extra)
        if isinstance(error, RequestFailed) and error.code in _UNKNOWN_TO_BROKER:
            await self.instance.heartbeat_now()
        elif error.retriable:
            await self._look_again(held)
        await self.instance.clock.sleep(pause_s)

    async def _look_again(self, held: HeldQueue) -> None:
        """A broker that is lost may be back at another address."""
        try:
            await self.instance.routes.find(held.queue.topic, fresh=True)
        except ArianeError as error:
            log.debug("route not refreshed", extra={"topic": held.queue.topic, "reason": str(error)})
