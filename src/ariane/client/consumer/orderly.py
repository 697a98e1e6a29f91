"""Ordered consumption: one handler at a time per queue; a message that fails blocks those after it."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from ariane.client.consumer.invocation import HandlerCalls, HandlerOutcome, batch_key
from ariane.client.consumer.message import Received, next_attempt
from ariane.client.consumer.offsets import OffsetTable
from ariane.client.consumer.queues import AssignedQueue
from ariane.client.consumer.retry import DEAD_LETTER, SendBacks
from ariane.client.core.instance import Instance

log = logging.getLogger(__name__)

_SUSPEND_MIN_S, _SUSPEND_MAX_S = 0.01, 30.0  # Apache's bounds


@dataclass(slots=True, kw_only=True)
class OrderedConsumption:
    instance: Instance
    calls: HandlerCalls
    offsets: OffsetTable
    send_backs: SendBacks | None
    suspend_s: float
    attempts_max: int | None
    """None: no limit."""
    slots: asyncio.Semaphore
    """Limits the number of queues that are consumed at a time."""
    needs_lock: bool

    def arrived(self, assigned: AssignedQueue) -> None:
        self.offsets.advance(assigned.queue, assigned.process.commit_offset)

    async def run(self, assigned: AssignedQueue) -> None:
        while True:
            await assigned.wait_until(lambda: assigned.process.waiting > 0 and self._is_locked(assigned))
            async with self.slots, assigned.consuming:
                # Waiting for both may have taken long: check again.
                if not self._is_locked(assigned):
                    continue
                pause_s = await self._consume(assigned)
            await self.instance.clock.sleep(pause_s)

    def _is_locked(self, assigned: AssignedQueue) -> bool:
        return not self.needs_lock or assigned.locked_until > self.instance.clock.monotonic()

    async def _consume(self, assigned: AssignedQueue) -> float:
        """Returns how long the queue is suspended."""
        process = assigned.process
        batch = self._next_batch(assigned)
        assigned.last_consume_ms = self.instance.clock.now_ms()
        outcome = await self.calls.run(batch)
        if process.dropped:
            log.info("result discarded: the queue is no longer assigned", extra={"queue": assigned.queue})
            return 0.0
        failed = batch[outcome.done :]
        dead = await self._send_dead_letters(failed, outcome)
        finished = [*batch[: outcome.done], *failed[:dead]]
        kept = [next_attempt(message) for message in failed[dead:]]
        process.put_back(kept)
        process.finish(finished)
        if not process.dropped:
            self.offsets.advance(assigned.queue, process.commit_offset)
        assigned.notify()
        return self._pause_s(outcome) if kept else 0.0

    def _next_batch(self, assigned: AssignedQueue) -> list[Received]:
        taken = assigned.process.take(self.calls.batch)
        batch = list(takewhile(lambda message: batch_key(message) == batch_key(taken[0]), taken))
        assigned.process.put_back(taken[len(batch) :])
        return batch

    async def _send_dead_letters(self, failed: Sequence[Received], outcome: HandlerOutcome) -> int:
        """Makes messages without attempts left dead letters; returns how many of `failed`, from the front."""
        count = 0
        for message in failed:
            if self.send_backs is None or not self._is_dead_letter(message, outcome):
                break
            if not await self.send_backs.send_copy(message, DEAD_LETTER):
                break
            count += 1
        return count

    def _is_dead_letter(self, message: Received, outcome: HandlerOutcome) -> bool:
        if message.fault is not None or outcome.delay_level < 0:
            return True
        return self.attempts_max is not None and message.reconsume_times >= self.attempts_max

    def _pause_s(self, outcome: HandlerOutcome) -> float:
        suspend_s = self.suspend_s if outcome.suspend_s is None else outcome.suspend_s
        return min(max(suspend_s, _SUSPEND_MIN_S), _SUSPEND_MAX_S)
