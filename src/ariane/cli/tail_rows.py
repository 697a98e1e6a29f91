"""A message as `ariane tail` prints it: a row, or a line in a form of the user's own."""

import base64
import string
from collections.abc import Callable, Mapping
from typing import Any

from ariane.cli.render import Row
from ariane.client.received import Received
from ariane.errors import SettingsError
from ariane.store.annotate import time_text

COLUMNS: Mapping[str, int] = {"storeTime": 24, "queue": 10, "queueOffset": 11, "tags": 9, "keys": 10, "text": 0}
"""Of a table, each with its usual width."""

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
    """With two columns that only people need: where it is, in one word, and a body that says so if it is no text."""
    text = row["body"] if row["bodyEncoding"] == "utf-8" else f"base64:{row['body']}"
    text = text if row["fault"] is None else f"({row['fault']}) {text}"
    return {**row, "queue": f"{row['brokerName']}:{row['queueId']}", "text": text}


def body_text(body: bytes) -> tuple[str, str]:
    """The body and how it is written: as it is when it is UTF-8, else in base64."""
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def line_format(template: str) -> Callable[[Mapping[str, object]], str]:
    r"""`{queueOffset} {keys}\t{body}`: names of a row's fields in braces, and `{property.NAME}`.

    Only whole fields: what stands behind the name in Python's own formats would reach into objects.
    """
    pieces = [_piece(*part) for part in _parsed(template)]
    return lambda row: "".join(piece(row) for piece in pieces)


def _parsed(template: str) -> list[tuple[str, str | None, str | None, str | None]]:
    unescaped = template.replace("\\t", "\t").replace("\\n", "\n")
    try:
        return list(string.Formatter().parse(unescaped))
    except ValueError as error:
        raise SettingsError(f"--format {template!r}: {error}; a brace itself is written twice") from None


def _piece(
    text: str, name: str | None, spec: str | None, conversion: str | None
) -> Callable[[Mapping[str, object]], str]:
    if name is None:
        return lambda row: text
    if spec or conversion or not (name in FIELDS or name.startswith(_PROPERTY)):
        shown = name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
        raise SettingsError(f"--format: {{{shown}}} is no field; fields are {', '.join(FIELDS)} and property.NAME")
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
