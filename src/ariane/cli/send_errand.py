"""One run of `ariane send`: how its messages leave."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

import click

from ariane.cli.send_progress import LateProgress
from ariane.cli.send_results import Results
from ariane.cli.send_source import Source
from ariane.client.batching import can_be_batched
from ariane.client.producer import Producer
from ariane.client.send_result import SendResult
from ariane.client.settings import ClientSettings
from ariane.client.transactional import COMMIT, ROLLBACK, TransactionProducer
from ariane.errors import MessageRejected, RequestFailed, SendFailed, SettingsError, sole_cause
from ariane.model.message import Message
from ariane.model.route import MessageQueue

_LINGER_MS = 2.0
_DECISIONS = {"commit": COMMIT, "rollback": ROLLBACK}


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    source: Source
    rate: float | None = None
    queue: str | None = None
    outcome: str | None = None
    """Of a transaction: commit or rollback."""
    oneway: bool = False
    group: str = "ariane-cli"
    timeout_s: float = 3.0

    async def run(self, settings: ClientSettings, results: Results, progress: LateProgress) -> None:
        if self.outcome is not None:
            await self._run_transactions(settings, results, progress)
            return
        linger_ms = 0.0 if self.source.total == 1 or self.oneway else _LINGER_MS
        async with Producer(
            settings=settings, group=self.group, send_timeout_s=self.timeout_s, batch_linger_ms=linger_ms
        ) as producer:
            queue = await self._queue(producer)
            await (self._run_oneway if self.oneway else self._run_stored)(producer, queue, results, progress)

    # --- three ways to leave ----------------------------------------------------------------------------------------

    async def _run_stored(
        self, producer: Producer, queue: MessageQueue | None, results: Results, progress: LateProgress
    ) -> None:
        """One request for many messages where that can be; their results are told in order."""
        async with aclosing(self.source.messages(self.rate)) as chunks:
            async for messages in chunks:
                for outcome in await _send_together(producer, messages, queue):
                    if isinstance(outcome, BaseException):
                        raise outcome
                    results.add(outcome)
                    progress.step()
                sys.stdout.flush()

    async def _run_oneway(
        self, producer: Producer, queue: MessageQueue | None, results: Results, progress: LateProgress
    ) -> None:
        async with aclosing(self.source.messages(self.rate)) as chunks:
            async for messages in chunks:
                for message in messages:
                    await producer.send_oneway(message, queue=queue)
                    progress.step()
        click.echo(f"{progress.done:,} messages sent one-way: nobody knows whether they were stored", err=True)

    async def _run_transactions(self, settings: ClientSettings, results: Results, progress: LateProgress) -> None:
        assert self.outcome is not None
        decision = _DECISIONS[self.outcome]
        async with TransactionProducer(
            settings=settings,
            group=self.group,
            send_timeout_s=self.timeout_s,
            execute=lambda *_: decision,
            check=lambda _: decision,
        ) as producer:
            queue = await self._queue(producer)
            async with aclosing(self.source.messages(self.rate)) as chunks:
                async for messages in chunks:
                    for message in messages:
                        done = await producer.send_in_transaction(message, queue=queue)
                        results.add(done.sent, transaction=done.decision.name.lower())
                        progress.step()

    async def _queue(self, producer: Producer) -> MessageQueue | None:
        if self.queue is None:
            return None
        broker, _, number = self.queue.rpartition(":")
        queues = await producer.queues(self.source.shape.topic)
        found = [one for one in queues if str(one.queue_id) == number and broker in ("", one.broker_name)]
        if len(found) == 1:
            return found[0]
        known = ", ".join(f"{one.broker_name}:{one.queue_id}" for one in found or queues)
        what = "is on several brokers" if found else "takes no messages of this topic"
        raise SettingsError(f"queue {self.queue} {what}: choose one of {known}")


async def _send_together(
    producer: Producer, messages: list[Message], queue: MessageQueue | None
) -> Sequence[SendResult | BaseException]:
    """An outcome for each message, in order."""
    if len(messages) > 1 and all(message.sharding_key is None and can_be_batched(message) for message in messages):
        return await producer.send_batch(messages, queue=queue)
    # They may go to different queues: those for the same one are gathered on their way (batch_linger_ms).
    return await asyncio.gather(*(producer.send(message, queue=queue) for message in messages), return_exceptions=True)


def reason_of(error: Exception) -> Exception:
    """The failure that the exit code is for: a broker that refused is another matter than one that was not reached."""
    cause = sole_cause(error)
    if isinstance(cause, SendFailed) and isinstance(cause.__cause__, RequestFailed):
        return RequestFailed(cause.__cause__.code, str(cause))
    if isinstance(cause, SendFailed) and isinstance(cause.__cause__, MessageRejected):
        return cause.__cause__
    return cause
