"""Handler invocation: calls the user's handlers, and turns results, exceptions and timeouts into a `HandlerOutcome`.

A handler that returns has consumed its message, whatever it returns, unless that is `False` or a `Retry`. A handler
that raises has not. A coroutine function runs on the event loop, any other function in the consumer's thread pool.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any
from uuid import uuid4

from ariane.client.consumer.message import Received
from ariane.client.consumer.retry import DEAD_LETTER
from ariane.client.core.trace_format import ContextCode, after_consumption, before_consumption
from ariane.client.core.user_calls import UserCalls, is_async, resume
from ariane.client.producer.tracing import Tracer
from ariane.clock import Clock
from ariane.errors import RecordError
from ariane.model.message import Property

# --- traces ---

_NO_REGION = "DefaultRegion"


@dataclass(frozen=True, slots=True)
class ConsumeTrace:
    """Traces of consumption: one record before a handler runs, one after."""

    tracer: Tracer
    group: str
    clock: Clock

    def before(self, messages: Sequence[Received]) -> str:
        """The id that links the two records."""
        request_id = uuid4().hex.upper()
        for message in filter(_wants_trace, messages):
            self.tracer.add(
                before_consumption(
                    timestamp_ms=self.clock.now_ms(),
                    region=message.properties.get(Property.MSG_REGION, _NO_REGION),
                    group=self.group,
                    request_id=request_id,
                    message_id=message.message_id,
                    retries=message.reconsume_times,
                    keys=message.keys,
                )
            )
        return request_id

    def after(self, request_id: str, messages: Sequence[Received], done: int, code: ContextCode, cost_ms: int) -> None:
        for index, message in enumerate(messages):
            if _wants_trace(message):
                self.tracer.add(
                    after_consumption(
                        timestamp_ms=self.clock.now_ms(),
                        group=self.group,
                        request_id=request_id,
                        message_id=message.message_id,
                        cost_ms=cost_ms,
                        success=index < done,
                        keys=message.keys,
                        context_code=ContextCode.SUCCESS if index < done else code,
                    )
                )


def _wants_trace(message: Received) -> bool:
    return message.properties.get(Property.TRACE_SWITCH) != "false"


# --- handlers ---

log = logging.getLogger(__name__)

Handler = Callable[[Any], Any]
"""Called with one `Received`, or with a list of them if the consumer's `batch` is above 1; sync or async."""
OnError = Callable[[Received, BaseException], Awaitable[None] | None]

batch_key = attrgetter("topic", "fault")
"""What the messages of a batch share: the topic, because a retry queue mixes topics, and whether they are readable."""

_TIMED_OUT_LEVEL = 3  # as in Apache's clients


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Returned by a handler to have the message redelivered."""

    delay_level: int = 0
    """0: the broker chooses by the number of attempts. -1: no further attempt, a dead letter. Not in ordered mode."""
    done: int = 0
    """How many messages of the batch, from the front, are consumed nevertheless."""
    suspend_s: float | None = None
    """Ordered mode: how long the queue is suspended before the next attempt."""


@dataclass(frozen=True, slots=True)
class HandlerOutcome:
    """The outcome of a batch: its first `done` messages are consumed."""

    done: int
    delay_level: int = 0
    suspend_s: float | None = None
    error: BaseException | None = None


@dataclass(slots=True)
class TopicCounts:
    consumed: int = 0
    failed: int = 0
    busy_s: float = 0.0


@dataclass(slots=True)
class HandlerCalls:
    batch: int
    timeout_s: float
    user: UserCalls
    on_error: OnError | None = None
    default: Handler | None = None
    by_topic: dict[str, Handler] = field(default_factory=dict)
    counts: dict[str, TopicCounts] = field(default_factory=dict)
    trace: ConsumeTrace | None = None

    async def run(self, messages: Sequence[Received]) -> HandlerOutcome:
        """At most `batch` messages with one `batch_key`."""
        done, rest = self.start(messages)
        return HandlerOutcome(done) if rest is None else await rest

    def start(self, messages: Sequence[Received]) -> tuple[int, Coroutine[Any, Any, HandlerOutcome] | None]:
        """Calls the handler for any number of messages with one `batch_key`, a batch at a time, until it waits.

        Returns how many messages are consumed, and the remaining work for the batch after them, to be awaited in this
        task. So a handler that returns without waiting costs no timer, no task and no event-loop iteration.
        """
        fault, handler = messages[0].fault, self.by_topic.get(messages[0].topic, self.default)
        if fault is not None:
            return 0, self._measure(messages[: self.batch], _unreadable(fault))
        if handler is None or self.trace is not None or not is_async(handler):
            return 0, self._finish(messages[: self.batch], self._call(handler, messages[: self.batch]))
        began_s = asyncio.get_running_loop().time()
        done, rest = self._run_until_wait(handler, messages)
        self._count(messages[0].topic, done, 0, asyncio.get_running_loop().time() - began_s)
        return done, None if rest is None else self._finish(messages[done : done + self.batch], rest)

    def _run_until_wait(self, handler: Handler, messages: Sequence[Received]) -> tuple[int, Awaitable[object] | None]:
        """Runs handlers up to the first that waits, fails or does not consume its message."""
        sequence = _HandlerSequence()
        work = sequence.run(handler, messages if self.batch == 1 else _batches(messages, self.batch))
        try:
            waits_for = work.send(None)
        except StopIteration as end:
            rest = None if end.value is None else _returning(end.value)
        except Exception as error:
            rest = _raising(error)
        else:
            sequence.has_waited, rest = True, resume(work, waits_for)
        return (len(messages), None) if rest is None else (sequence.done * self.batch, rest)

    async def _call(self, handler: Handler | None, messages: Sequence[Received]) -> object:
        if handler is None:
            raise LookupError(f"no handler for topic {messages[0].topic}: give one with subscribe() or on()")
        return await self.user.call(handler, messages[0] if self.batch == 1 else list(messages))

    def _finish(self, messages: Sequence[Received], work: Awaitable[object]) -> Coroutine[Any, Any, HandlerOutcome]:
        return self._measure(messages, self._attempt(work, len(messages)))

    async def _measure(self, messages: Sequence[Received], attempt: Awaitable[HandlerOutcome]) -> HandlerOutcome:
        request_id = self.trace.before(messages) if self.trace is not None else ""
        began_s = asyncio.get_running_loop().time()
        outcome = await attempt
        cost_s = asyncio.get_running_loop().time() - began_s
        self._count(messages[0].topic, outcome.done, len(messages) - outcome.done, cost_s)
        if self.trace is not None:
            self.trace.after(request_id, messages, outcome.done, _context_code(outcome), round(cost_s * 1000))
        if outcome.error is not None:
            await self._report(messages[outcome.done :], outcome.error)
        return outcome

    async def _attempt(self, work: Awaitable[object], count: int) -> HandlerOutcome:
        limit = asyncio.timeout(self.timeout_s)
        try:
            async with limit:
                return _outcome_of(await work, count)
        except TimeoutError as error:  # this timeout, or one that the handler raised itself
            return HandlerOutcome(0, _TIMED_OUT_LEVEL if limit.expired() else 0, error=error)
        except Exception as error:
            return HandlerOutcome(0, error=error)

    def _count(self, topic: str, consumed: int, failed: int, cost_s: float) -> None:
        counts = self.counts.get(topic) or self.counts.setdefault(topic, TopicCounts())
        counts.busy_s += cost_s
        counts.consumed += consumed
        counts.failed += failed

    async def _report(self, messages: Sequence[Received], error: BaseException) -> None:
        for message in messages:
            extra = {"message_id": message.message_id, "attempt": message.attempt, "topic": message.topic}
            log.error("message not consumed", extra=extra | {"queue": message.queue}, exc_info=error)
            if self.on_error is not None:
                await self._call_on_error(self.on_error, message, error)

    async def _call_on_error(self, on_error: OnError, message: Received, error: BaseException) -> None:
        try:
            returned = on_error(message, error)
            if returned is not None:
                await returned
        except Exception:
            log.exception("on_error itself failed", extra={"message_id": message.message_id})


class _HandlerSequence:
    """Handlers called one after the other in one coroutine, which is run until the first of them waits.

    An `await` that does not wait costs nothing. To make the first step of each handler separately would cost an
    exception for each message, because a coroutine returns to its driver with StopIteration.
    """

    __slots__ = ("done", "has_waited")

    def __init__(self) -> None:
        self.done = 0
        """How many calls have returned and consumed their messages."""
        self.has_waited = False
        """Whether a handler waited. Then its call is the last: other workers take the messages after it."""

    async def run(self, handler: Handler, arguments: Iterable[object]) -> object:
        """None if all are done, or what the last handler returned."""
        for argument in arguments:
            returned = await handler(argument)
            if self.has_waited or (returned is not None and (returned is False or isinstance(returned, Retry))):
                return returned
            self.done += 1
        return None


def _batches(messages: Sequence[Received], size: int) -> Iterator[list[Received]]:
    for begin in range(0, len(messages), size):
        yield list(messages[begin : begin + size])


async def _unreadable(fault: str) -> HandlerOutcome:
    """A dead letter: another attempt would read the same bytes."""
    return HandlerOutcome(0, DEAD_LETTER, error=RecordError(fault))


async def _returning(value: object) -> object:
    return value


async def _raising(error: Exception) -> object:
    raise error


def _context_code(outcome: HandlerOutcome) -> ContextCode:
    if outcome.error is None:
        return ContextCode.FAILED
    return ContextCode.TIME_OUT if isinstance(outcome.error, TimeoutError) else ContextCode.EXCEPTION


def _outcome_of(returned: object, count: int) -> HandlerOutcome:
    if isinstance(returned, Retry):
        return HandlerOutcome(max(0, min(returned.done, count)), returned.delay_level, returned.suspend_s)
    return HandlerOutcome(0 if returned is False else count)
