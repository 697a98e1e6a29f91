"""Ordered consumption: one handler at a time per queue, and a message that fails holds back those behind it."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from ariane.client.consumer.invocation import HandlerCalls, Verdict, batch_key
from ariane.client.consumer.message import Received, next_attempt
from ariane.client.consumer.offsets import OffsetTable
from ariane.client.consumer.queues import HeldQueue
from ariane.client.consumer.retry import DEAD_LETTER, SendBacks
from ariane.client.core.instance import Instance

log = logging.getLogger(__name__)

_SUSPEND_MIN_S, _SUSPEND_MAX_S = 0.01, 30.0  # Apache's bounds


@dataclass(slots=True, kw_only=True)
class Orderly:
    instance: Instance
    calls: HandlerCalls
    offsets: OffsetTable
    send_backs: SendBacks | None
    suspend_s: float
    attempts_max: int | None
    """None: for ever."""
    places: asyncio.Semaphore
    """How many queues are worked on at a time."""
    needs_lock: bool

    def arrived(self, held: HeldQueue) -> None:
        self.offsets.advance(held.queue, held.process.commit_offset)

    async def run(self, held: HeldQueue) -> None:
        while True:
            await held.wait_until(lambda: held.process.waiting > 0 and self._is_locked(held))
            async with self.places, held.consuming:
                # Both may have kept us waiting for long.
                if not self._is_locked(held):
                    continue
                pause_s = await self._consume(held)
            await self.instance.clock.sleep(pause_s)

    def _is_locked(self, held: HeldQueue) -> bool:
        return not self.needs_lock or held.locked_until > self.instance.clock.monotonic()

    async def _consume(self, held: HeldQueue) -> float:
        """How long the queue must rest now."""
        process = held.process
        batch = self._next_batch(held)
        held.last_consume_ms = self.instance.clock.now_ms()
        verdict = await self.calls.run(batch)
        if process.dropped:
            log.info("result discarded: the queue is not ours any more", extra={"queue": held.queue})
            return 0.0
        failed = batch[verdict.done :]
        given_up = await self._give_up_on(failed, verdict)
        finished = [*batch[: verdict.done], *failed[:given_up]]
        kept = [next_attempt(message) for message in failed[given_up:]]
        process.put_back(kept)
        process.finish(finished)
        if not process.dropped:
            self.offsets.advance(held.queue, process.commit_offset)
        held.tell()
        return self._pause_s(verdict) if kept else 0.0

    def _next_batch(self, held: HeldQueue) -> list[Received]:
        taken = held.process.take(self.calls.batch)
        batch = list(takewhile(lambda message: batch_key(message) == batch_key(taken[0]), taken))
        held.process.put_back(taken[len(batch) :])
        return batch

    async def _give_up_on(self, failed: Sequence[Received], verdict: Verdict) -> int:
        """How many of `failed`, from the front, are filed as dead letters: those that had all their attempts."""
        count = 0
        for message in failed:
            if self.send_backs is None or not self._is_hopeless(message, verdict):
                break
            if not await self.send_backs.send_copy(message, DEAD_LETTER):
                break
            count += 1
        return count

    def _is_hopeless(self, message: Received, verdict: Verdict) -> bool:
        if message.fault is not None or verdict.delay_level < 0:
            return True
        return self.attempts_max is not None and message.reconsume_times >= self.attempts_max

    def _pause_s(self, verdict: Verdict) -> float:
        wanted = self.suspend_s if verdict.suspend_s is None else verdict.suspend_s
        return min(max(wanted, _SUSPEND_MIN_S), _SUSPEND_MAX_S)
