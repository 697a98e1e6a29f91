r"""Structured logging: a constant event and its fields, as text for people or JSON for machines.

    log.info("broker registered", extra={"broker": "b1", "topics": 12})

    2026-03-01T09:30:00.125Z INFO    ariane.broker: broker registered peer=10.0.0.7:50122 code=103 broker=b1 topics=12
    {"time": "2026-03-01T09:30:00.125Z", "level": "INFO", "logger": "ariane.broker", "event": "broker registered", ...}

Names and remarks in the fields come from peers. Every character that is not printable is escaped, so no peer can forge
a log line, colour a terminal or change the text direction. Every value is truncated to a bounded length.

A program that uses Ariane as a library keeps its own logging: only `configure`, which Ariane's commands call, adds a
handler that writes.
"""

import json
import logging
import math
import re
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import TextIO

VALUE_LENGTH_MAX = 1_000
_HANDLER = "ariane"
_BARE = re.compile(r"[^\s\"=\\]+")
# taskName came with Python 3.12; message and asctime are set by other formatters.
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}

logging.getLogger("ariane").addHandler(logging.NullHandler())


class LogForm(StrEnum):
    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The request that is being handled. While it is set, its fields are part of every log line."""

    peer: str
    code: int


request_context: ContextVar[RequestContext | None] = ContextVar("request_context", default=None)


def configure(level: str | int, form: LogForm, stream: TextIO) -> None:
    """Sends the log of the whole process to `stream`. A second call replaces the first."""
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if handler.name == _HANDLER]:
        root.removeHandler(handler)
    handler = logging.StreamHandler(stream)
    handler.name = _HANDLER
    handler.setFormatter(JsonFormatter() if form is LogForm.JSON else TextFormatter())
    root.addHandler(handler)
    root.setLevel(level.upper() if isinstance(level, str) else level)


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {escaped(key)}={_quoted(value)}" for key, value in _fields(record))
        event = escaped(record.getMessage())
        line = f"{_utc(record)} {record.levelname:7} {record.name}: {event}{fields}"
        return "\n    ".join([line, *(escaped(part) for part in _traceback(record).splitlines())])


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _utc(record),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
        }
        for key, value in _fields(record):
            line[f"{key}_" if key in line else key] = _plain(value)
        if traceback := _traceback(record):
            line["traceback"] = traceback
        return json.dumps(line)  # ASCII only: everything else is escaped


def escaped(text: str) -> str:
    """`text` with non-printable characters and backslashes as escapes."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(_escape(character) for character in text)


def _escape(character: str) -> str:
    if character.isprintable() and character != "\\":
        return character
    return character.encode("unicode_escape").decode("ascii")


def _quoted(value: object) -> str:
    text = str(_plain(value))
    if _BARE.fullmatch(text) and text.isprintable():
        return text
    return '"' + escaped(text).replace('"', '\\"') + '"'


def _plain(value: object) -> object:
    """A value that JSON supports, truncated to VALUE_LENGTH_MAX."""
    if value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    text = str(value)
    return text if len(text) <= VALUE_LENGTH_MAX else f"{text[:VALUE_LENGTH_MAX]}... ({len(text)} characters)"


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """The fields of the request, then those of the line, which take precedence."""
    own = {key: value for key, value in record.__dict__.items() if key not in _STANDARD}
    request = request_context.get()
    context = {} if request is None else {"peer": request.peer, "code": request.code}
    yield from (context | own).items()


def _traceback(record: logging.LogRecord) -> str:
    if record.exc_info and not record.exc_text:
        record.exc_text = logging.Formatter().formatException(record.exc_info)
    return record.exc_text or ""


def _utc(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z"
