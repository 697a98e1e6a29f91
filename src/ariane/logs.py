r"""Structured logging: a constant event and its fields, as text for people or JSON for machines.

    log.info("broker registered", extra={"broker": "b1", "topics": 12})

    2026-03-01T09:30:00.125Z INFO    ariane.broker: broker registered peer=10.0.0.7:50122 code=103 broker=b1 topics=12
    {"time": "2026-03-01T09:30:00.125Z", "level": "INFO", "logger": "ariane.broker", "event": "broker registered", ...}

Names and remarks in the fields come from peers. Every character that is not printable is escaped, so no peer can forge
a log line, colour a terminal or change the text direction. Every value is truncated to a bounded length.

A peer can cause some warnings as often as it likes. Those go through `RepeatedWarnings`: a line at once, then one a
minute with the number of the others, `repeated=59`.

A program that uses Ariane as a library keeps its own logging: only `configure`, which Ariane's commands call, adds a
handler that writes.
"""

import json
import logging
import math
import re
import time
from collections.abc import Hashable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

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


REPEAT_INTERVAL_S = 60.0
_SUBJECTS_MAX = 1_000
_OTHERS: Hashable = object()


@dataclass(slots=True)
class _Repeated:
    logged_at: float
    fields: Mapping[str, object]
    """Of the last one."""
    left_out: int = 0


class RepeatedWarnings:
    """Warnings that peers can cause at will: of each event and subject one line at once, then one a minute at most.

    The later lines have the fields of the last warning, and `repeated`, the number of warnings since the line before.
    Use on an event loop, whose timer writes them; a timer runs only while there is something to report.
    """

    def __init__(self, logger: logging.Logger, interval_s: float = REPEAT_INTERVAL_S) -> None:
        self._logger = logger
        self._interval_s = interval_s
        self._repeated: dict[tuple[str, Hashable], _Repeated] = {}

    def warning(self, event: str, subject: Hashable, fields: Mapping[str, object]) -> None:
        """`subject` is what the warning is about, such as a group: each subject has its own lines."""
        import asyncio  # here, for commands that only configure their log

        loop = asyncio.get_running_loop()
        key = event, subject
        known = self._repeated.get(key)
        if known is None and len(self._repeated) >= _SUBJECTS_MAX:
            self._forget_quiet(loop.time())
            if len(self._repeated) >= _SUBJECTS_MAX:  # peers invent subjects: all others are one
                key = event, _OTHERS
                known = self._repeated.get(key)
        if known is None or (not known.left_out and loop.time() - known.logged_at >= self._interval_s):
            self._repeated[key] = _Repeated(loop.time(), fields)
            self._logger.warning(event, extra=dict(fields))
            return
        if not known.left_out:
            loop.call_at(known.logged_at + self._interval_s, self._report, key, loop)
        known.fields = fields
        known.left_out += 1

    def _report(self, key: tuple[str, Hashable], loop: "AbstractEventLoop") -> None:
        known = self._repeated[key]
        self._logger.warning(key[0], extra={**known.fields, "repeated": known.left_out})
        known.logged_at, known.left_out = loop.time(), 0

    def _forget_quiet(self, now: float) -> None:
        quiet = [
            key
            for key, known in self._repeated.items()
            if not known.left_out and now - known.logged_at >= self._interval_s
        ]
        for key in quiet:
            del self._repeated[key]


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
