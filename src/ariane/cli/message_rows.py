"""Messages, their traces and the like, as `ariane msg` and `ariane dlq` tell them."""

from collections.abc import Iterable, Sequence

from ariane.cli.render import Form, Row, render
from ariane.cli.tail_rows import row_of, table_row
from ariane.client.admin.traces import MessageTrace
from ariane.client.received import Received
from ariane.client.send_result import SendResult
from ariane.store.annotate import time_text

MESSAGE_COLUMNS = ("storeTime", "queue", "queueOffset", "tags", "keys", "msgId", "text")


def show_messages(messages: Sequence[Received], form: Form) -> None:
    """A table has a line for each; the other forms have everything."""
    rows = map(row_of, messages)
    render(map(table_row, rows) if form is Form.TABLE else rows, form, MESSAGE_COLUMNS)


def show_whole(messages: Sequence[Received], form: Form) -> None:
    """With every field: in a table a line for each of them, uncut, and a table for each message."""
    rows = map(full_row, messages)
    if form is not Form.TABLE:
        render(rows, form)
        return
    for row in rows:
        render([{"field": name, "value": value} for name, value in row.items()], form, is_whole=True)


def full_row(message: Received) -> dict[str, object]:
    return row_of(message) | {
        "queueTopic": message.queue.topic,
        "bornTime": time_text(message.born_timestamp_ms),
        "bornHost": str(message.born_host),
        "storeHost": str(message.store_host),
        "physicalOffset": message.physical_offset,
        "storedSize": message.stored_size,
        "sysFlag": message.sys_flag,
        "bodyCrc": message.body_crc,
    }


def sent_row(original: Received, result: SendResult) -> Row:
    return {
        "msgId": original.message_id,
        "newMsgId": result.message_id,
        "sendStatus": str(result.status),
        "topic": result.queue.topic,
        "brokerName": result.queue.broker_name,
        "queueId": result.queue.queue_id,
        "queueOffset": result.queue_offset,
    }


def trace_rows(trace: MessageTrace) -> Iterable[Row]:
    """In the order of events."""
    return sorted(_trace_rows(trace), key=lambda row: str(row["time"]))


def _trace_rows(trace: MessageTrace) -> Iterable[Row]:
    for sent in trace.published:
        yield _event(
            "sent", sent.timestamp_ms, sent.group, sent.success, sent.cost_ms, f"{sent.topic} at {sent.store_host}"
        )
    for read in trace.consumed:
        detail = None if read.retries is None else f"attempt {read.retries + 1}"
        yield _event("consumed", read.began_ms, read.group, read.success, read.cost_ms, detail)
    for end in trace.transactions:
        yield _event("transaction ended", end.timestamp_ms, end.group, None, None, end.state)


def _event(
    event: str, at_ms: int | None, group: str | None, success: bool | None, cost_ms: int | None, detail: str | None
) -> Row:
    """What a client did not tell is None: nobody knows how an attempt ended whose client died."""
    return {
        "event": event,
        "time": None if at_ms is None else time_text(at_ms),
        "group": group,
        "success": success,
        "costMs": cost_ms,
        "detail": detail,
    }
