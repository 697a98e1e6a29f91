"""What `ariane send` prints: a line for each message, or for many in a table one for each queue."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import click

from ariane.cli.render import Form, Row, render
from ariane.cli.tail_stream import RowStream
from ariane.client.send_result import SendResult
from ariane.errors import ClientError
from ariane.model.route import MessageQueue

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
