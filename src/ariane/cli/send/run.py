"""One run of `ariane send`: how its messages leave."""

import asyncio
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import click

from ariane.cli.common.output import Form, LateProgress, Row, RowStream, render
from ariane.cli.send.input import MessageSource
from ariane.client.producer.producer import Producer
from ariane.client.producer.request import can_be_batched
from ariane.client.producer.result import SendResult
from ariane.client.producer.transactional import COMMIT, ROLLBACK, TransactionProducer
from ariane.client.settings import ClientSettings
from ariane.errors import ClientError, MessageRejected, RequestFailed, SendFailed, SettingsError, sole_cause
from ariane.model.message import Message
from ariane.model.route import MessageQueue

# --- send_results ---
#
# What `ariane send` prints: a line for each message, or for many in a table one for each queue.

_SHOWN_MAX = 20
_COLUMNS = ("msgId", "sendStatus", "brokerName", "queueId", "queueOffset")


@dataclass(slots=True)
class _InQueue:
    messages: int = 0
    first: int = 0
    last: int = 0


@dataclass(slots=True)
class Results:
    """A table of more than a few messages is one of queues. The other forms print each message as it is stored."""

    form: Form
    count: int = 0
    unsafe: int = 0
    """Stored, though not as safely as the broker was told to store."""
    _began: float = field(default_factory=time.monotonic)
    _rows: list[Row] = field(default_factory=list)
    _queues: dict[MessageQueue, _InQueue] = field(default_factory=dict)
    _stream: RowStream | None = None

    def __post_init__(self) -> None:
        if self.form is not Form.TABLE:
            self._stream = RowStream(self.form, {})

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
        queue = self._queues.setdefault(result.queue, _InQueue(first=result.queue_offset))
        queue.messages += 1
        queue.first, queue.last = min(queue.first, result.queue_offset), max(queue.last, result.queue_offset)

    def finish(self) -> None:
        """Also after a failure: what is told was stored."""
        if self._stream is not None:
            self._stream.__exit__(None, None, None)
        elif self.count <= _SHOWN_MAX or not self._queues:
            extra = [name for row in self._rows[:1] for name in row if name == "transaction"]
            render(self._rows, Form.TABLE, [*_COLUMNS, *extra])
        else:
            render(self._queue_rows(), Form.TABLE)
        if self.count > 1:
            click.echo(f"{self.count:,} messages stored, {self._speed()}", err=True)

    def check(self) -> None:
        if self.unsafe:
            raise ClientError(
                f"{self.unsafe} of {self.count} messages are stored, but not as safely as the broker was told to: see "
                "sendStatus, and the broker's disk"
            )

    def _queue_rows(self) -> Iterable[Row]:
        for queue, seen in sorted(self._queues.items()):
            yield {
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "messages": seen.messages,
                "firstOffset": seen.first,
                "lastOffset": seen.last,
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
    """What the broker told is the place of the half message. That of the message itself nobody has told us."""
    return _row(result) | {"offsetMsgId": None, "queueOffset": None, "transaction": transaction}


# ---

_LINGER_MS = 2.0
_DECISIONS = {"commit": COMMIT, "rollback": ROLLBACK}


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSession:
    source: MessageSource
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
