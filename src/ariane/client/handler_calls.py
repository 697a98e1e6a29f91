"""Calls of the user's handlers: the edge at which their exceptions end.

A handler that returns has consumed its message, whatever it returns, unless that is `False` or a `Retry`. A handler
that raises has not. A coroutine function runs on the event loop, any other function in a thread of its own pool.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ariane.client.consume_trace import ConsumeTrace
from ariane.client.received import Received
from ariane.client.send_back import DEAD_LETTER
from ariane.client.trace_text import ContextCode
from ariane.client.user_calls import UserCalls
from ariane.errors import RecordError

log = logging.getLogger(__name__)

Handler = Callable[[Any], Any]
"""Given one `Received`, or a list of them when the consumer's `batch` is above 1; sync or async."""
OnError = Callable[[Received, BaseException], Awaitable[None] | None]

_TIMED_OUT_LEVEL = 3  # as in Apache's clients


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Returned by a handler that wants the message again."""

    delay_level: int = 0
    """0: the broker chooses by the number of attempts. -1: no further attempt, a dead letter. Not in ordered mode."""
    done: int = 0
    """How many of the batch, from the front, are consumed all the same."""
    suspend_s: float | None = None
    """Ordered mode: how long the queue rests before the next attempt."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a batch: its first `done` messages are consumed."""

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

    async def run(self, messages: Sequence[Received]) -> Verdict:
        """At most `batch` messages with one `batch_key`."""
        request_id = self.trace.before(messages) if self.trace is not None else ""
        began_s = asyncio.get_running_loop().time()
        verdict = await self._attempt(messages)
        cost_s = asyncio.get_running_loop().time() - began_s
        self._count(messages, verdict, cost_s)
        if self.trace is not None:
            self.trace.after(request_id, messages, verdict.done, _context_code(verdict), round(cost_s * 1000))
        if verdict.error is not None:
            await self._report(messages[verdict.done :], verdict.error)
        return verdict

    async def _attempt(self, messages: Sequence[Received]) -> Verdict:
        if messages[0].fault is not None:
            # Another attempt would find the same bytes.
            return Verdict(0, DEAD_LETTER, error=RecordError(messages[0].fault))
        limit = asyncio.timeout(self.timeout_s)
        try:
            async with limit:
                return _verdict(await self._call(messages), len(messages))
        except TimeoutError as error:  # ours, or one that the handler met itself
            return Verdict(0, _TIMED_OUT_LEVEL if limit.expired() else 0, error=error)
        except Exception as error:
            return Verdict(0, error=error)

    async def _call(self, messages: Sequence[Received]) -> object:
        handler = self.by_topic.get(messages[0].topic, self.default)
        if handler is None:
            raise LookupError(f"no handler for topic {messages[0].topic}: give one with subscribe() or on()")
        argument = messages[0] if self.batch == 1 else list(messages)
        return await self.user.call(handler, argument)

    def _count(self, messages: Sequence[Received], verdict: Verdict, cost_s: float) -> None:
        counts = self.counts.setdefault(messages[0].topic, TopicCounts())
        counts.busy_s += cost_s
        counts.consumed += verdict.done
        counts.failed += len(messages) - verdict.done

    async def _report(self, messages: Sequence[Received], error: BaseException) -> None:
        for message in messages:
            extra = {"message_id": message.message_id, "attempt": message.attempt, "topic": message.topic}
            log.error("message not consumed", extra=extra | {"queue": message.queue}, exc_info=error)
            if self.on_error is not None:
                await self._tell(self.on_error, message, error)

    async def _tell(self, on_error: OnError, message: Received, error: BaseException) -> None:
        try:
            outcome = on_error(message, error)
            if outcome is not None:
                await outcome
        except Exception:
            log.exception("on_error itself failed", extra={"message_id": message.message_id})


def batch_key(message: Received) -> tuple[str, bool]:
    """What the messages of a batch share: the topic, for a retry queue mixes them, and whether they can be read."""
    return message.topic, message.fault is not None


def _context_code(verdict: Verdict) -> ContextCode:
    if verdict.error is None:
        return ContextCode.FAILED
    return ContextCode.TIME_OUT if isinstance(verdict.error, TimeoutError) else ContextCode.EXCEPTION


def _verdict(returned: object, count: int) -> Verdict:
    if isinstance(returned, Retry):
        return Verdict(max(0, min(returned.done, count)), returned.delay_level, returned.suspend_s)
    return Verdict(0 if returned is False else count)
