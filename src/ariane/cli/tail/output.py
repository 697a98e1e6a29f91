"""Output of messages for `ariane tail`: rows, or lines in a format that the user gives."""

import base64
import string
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ariane.cli.common.output import OutputFormat, Row, RowStream
from ariane.client.consumer.message import Received
from ariane.errors import SettingsError
from ariane.store.offline.annotate import time_text

COLUMNS: Mapping[str, int] = {"storeTime": 24, "queue": 10, "queueOffset": 11, "tags": 9, "keys": 10, "text": 0}
"""Columns of a table and their minimum widths."""

_PROPERTY = "property."


def row_of(message: Received) -> dict[str, object]:
    body, encoding = body_text(message.body)
    return {
        "topic": message.topic,
        "brokerName": message.queue.broker_name,
        "queueId": message.queue.queue_id,
        "queueOffset": message.queue_offset,
        "storeTime": time_text(message.store_timestamp_ms),
        "storeTimestamp": message.store_timestamp_ms,
        "bornTimestamp": message.born_timestamp_ms,
        "msgId": message.message_id,
        "offsetMsgId": message.offset_message_id,
        "reconsumeTimes": message.reconsume_times,
        "tags": message.tags,
        "keys": list(message.keys),
        "properties": message.properties,
        "body": body,
        "bodyEncoding": encoding,
        "fault": message.fault,
    }


def table_row(row: Row) -> Row:
    """With two columns for people: the queue as BROKER:ID, and a body that is marked if it is not text or damaged."""
    text = row["body"] if row["bodyEncoding"] == "utf-8" else f"base64:{row['body']}"
    text = text if row["fault"] is None else f"({row['fault']}) {text}"
    return {**row, "queue": f"{row['brokerName']}:{row['queueId']}", "text": text}


def body_text(body: bytes) -> tuple[str, str]:
    """The body and its encoding: as it is if it is UTF-8, else base64."""
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def line_format(template: str) -> Callable[[Mapping[str, object]], str]:
    r"""`{queueOffset} {keys}\t{body}`: names of a row's fields in braces, and `{property.NAME}`.

    Only plain field names: Python's attribute access and conversions in format strings would expose objects.
    """
    pieces = [_piece(*part) for part in _parsed(template)]
    return lambda row: "".join(piece(row) for piece in pieces)


def _parsed(template: str) -> list[tuple[str, str | None, str | None, str | None]]:
    unescaped = template.replace("\\t", "\t").replace("\\n", "\n")
    try:
        return list(string.Formatter().parse(unescaped))
    except ValueError as error:
        raise SettingsError(f"--format {template!r}: {error}; write a literal brace twice") from None


def _piece(
    text: str, name: str | None, spec: str | None, conversion: str | None
) -> Callable[[Mapping[str, object]], str]:
    if name is None:
        return lambda row: text
    if spec or conversion or not (name in FIELDS or name.startswith(_PROPERTY)):
        shown = name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
        raise SettingsError(f"--format: {{{shown}}} is not a field; fields are {', '.join(FIELDS)} and property.NAME")
    return lambda row: text + _value(row, name)


def _value(row: Mapping[str, Any], name: str) -> str:
    if name.startswith(_PROPERTY):
        return str(row["properties"].get(name.removeprefix(_PROPERTY), ""))
    value = row.get(name)
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "" if value is None else str(value)


FIELDS = (
    "topic", "brokerName", "queueId", "queueOffset", "storeTime", "storeTimestamp", "bornTimestamp", "msgId",
    "offsetMsgId", "reconsumeTimes", "tags", "keys", "properties", "body", "bodyEncoding", "fault",
)  # fmt: skip


Show = Callable[[Received], None]


@contextmanager
def printing(output: OutputFormat, template: str | None) -> Iterator[Show]:
    """A function that prints a message to stdout."""
    if template is not None:
        line_of = line_format(template)
        yield lambda message: _write(_safe(line_of(row_of(message))))
        return
    with RowStream(output, COLUMNS) as stream:
        if output is OutputFormat.TABLE:
            yield lambda message: stream.add(table_row(row_of(message)))
        else:
            yield lambda message: stream.add(row_of(message))


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")


def _safe(line: str) -> str:
    """On a terminal, control characters are escaped: otherwise a message could control the terminal."""
    if not sys.stdout.isatty() or line.isprintable():
        return line
    return "".join(char if char.isprintable() or char in "\t\n" else ascii(char)[1:-1] for char in line)
