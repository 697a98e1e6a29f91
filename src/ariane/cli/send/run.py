"""Runs `ariane send`: sends the messages and prints the results."""

import asyncio
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import click

from ariane.cli.common.output import LateProgress, OutputFormat, Row, RowStream, render
from ariane.cli.common.parameters import queue_named
from ariane.cli.send.input import MessageSource
from ariane.client.producer.producer import Producer
from ariane.client.producer.request import can_be_batched
from ariane.client.producer.result import SendResult
from ariane.client.producer.transactional import COMMIT, ROLLBACK, TransactionProducer
from ariane.client.settings import ClientSettings
from ariane.errors import ClientError, MessageRejected, RequestFailed, SendFailed, SettingsError, sole_cause
from ariane.model.message import Message
from ariane.model.route import MessageQueue

_SHOWN_MAX = 20
_COLUMNS = ("msgId", "sendStatus", "brokerName", "queueId", "queueOffset")


@dataclass(slots=True)
class _QueueTotals:
    messages: int = 0
    first: int = 0
    last: int = 0


@dataclass(slots=True)
class Results:
    """A table has a line for each message, or for each queue if there are more than 20 messages.

    The other formats print each message as it is stored.
    """

    output: OutputFormat
    count: int = 0
    unsafe: int = 0
    """Stored, but without the flush to disk or to a replica that the broker is configured for."""
    _began: float = field(default_factory=time.monotonic)
    _rows: list[Row] = field(default_factory=list)
    _queues: dict[MessageQueue, _QueueTotals] = field(default_factory=dict)
    _stream: RowStream | None = None

    def __post_init__(self) -> None:
        if self.output is not OutputFormat.TABLE:
            self._stream = RowStream(self.output, {})

    def add(self, result: SendResult, *, transaction: str | None = None) -> None:
        self.count += 1
        self.unsafe += not result.is_ok
        row = _row(result) if transaction is None else _half_row(result, transaction)
        if self._stream is not None:
            self._stream.add(row)
        elif transaction is not None:
            self._rows.append(row)
        else:
            self._rows += [row] if len(self._rows) <= _SHOWN_MAX else []
            self._note(result)

    def _note(self, result: SendResult) -> None:
        queue = self._queues.setdefault(result.queue, _QueueTotals(first=result.queue_offset))
        queue.messages += 1
        queue.first, queue.last = min(queue.first, result.queue_offset), max(queue.last, result.queue_offset)

    def finish(self) -> None:
        """Also after an error: the messages printed here were stored."""
        if self._stream is not None:
            self._stream.__exit__(None, None, None)
        elif self.count <= _SHOWN_MAX or not self._queues:
            extra = [name for row in self._rows[:1] for name in row if name == "transaction"]
            render(self._rows, OutputFormat.TABLE, [*_COLUMNS, *extra])
        else:
            render(self._queue_rows(), OutputFormat.TABLE)
        if self.count > 1:
            click.echo(f"{self.count:,} messages stored in {self._speed()}", err=True)

    def check(self) -> None:
        if self.unsafe:
            raise ClientError(
                f"{self.unsafe} of {self.count} messages are stored but not flushed to disk or to a replica as the "
                "broker's settings require: see sendStatus and the broker's log"
            )

    def _queue_rows(self) -> Iterable[Row]:
        for queue, totals in sorted(self._queues.items()):
            yield {
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "messages": totals.messages,
                "firstOffset": totals.first,
                "lastOffset": totals.last,
            }

    def _speed(self) -> str:
        seconds = time.monotonic() - self._began
        return f"{seconds:.2f} s, {self.count / max(seconds, 1e-6):,.0f} a second"


def _row(result: SendResult) -> dict[str, object]:
    return {
        "msgId": result.message_id,
        "offsetMsgId": result.offset_message_id or None,
        "sendStatus": str(result.status),
        "brokerName": result.queue.broker_name,
        "queueId": result.queue.queue_id,
        "queueOffset": result.queue_offset,
    }


def _half_row(result: SendResult, transaction: str) -> dict[str, object]:
    """The broker reports the offset of the half message; the offset of the message itself is unknown."""
    return _row(result) | {"offsetMsgId": None, "queueOffset": None, "transaction": transaction}


# --- sending ---

_LINGER_MS = 2.0
_DECISIONS = {"commit": COMMIT, "rollback": ROLLBACK}


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSession:
    source: MessageSource
    rate: float | None = None
    queue: str | None = None
    outcome: str | None = None
    """Of the transactions: commit or rollback."""
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

    async def _run_stored(
        self, producer: Producer, queue: MessageQueue | None, results: Results, progress: LateProgress
    ) -> None:
        """Many messages in one request where possible; results are in the order of the messages."""
        async with aclosing(self.source.messages(self.rate)) as chunks:
            async for messages in chunks:
                for result in await _send_together(producer, messages, queue):
                    if isinstance(result, BaseException):
                        raise result
                    results.add(result)
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
        click.echo(f"{progress.done:,} messages sent one-way: whether they were stored is unknown", err=True)

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
        return queue_named(self.queue, await producer.queues(self.source.template.topic), SettingsError)


async def _send_together(
    producer: Producer, messages: list[Message], queue: MessageQueue | None
) -> Sequence[SendResult | BaseException]:
    """A result or an error for each message, in order."""
    if len(messages) > 1 and all(message.sharding_key is None and can_be_batched(message) for message in messages):
        return await producer.send_batch(messages, queue=queue)
    # They may go to different queues: the producer batches those for the same queue (batch_linger_ms).
    return await asyncio.gather(*(producer.send(message, queue=queue) for message in messages), return_exceptions=True)


def reason_of(error: Exception) -> Exception:
    """The error that decides the exit status: a refusal by the broker differs from an unreachable broker."""
    cause = sole_cause(error)
    if isinstance(cause, SendFailed) and isinstance(cause.__cause__, RequestFailed):
        return RequestFailed(cause.__cause__.code, str(cause))
    if isinstance(cause, SendFailed) and isinstance(cause.__cause__, MessageRejected):
        return cause.__cause__
    return cause
