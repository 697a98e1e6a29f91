"""Messages to send, made from a template (the options) and bodies, lines, or JSON lines.

    {"body": "...", "tags": "paid", "keys": ["o-1"], "properties": {"region": "eu"}, "shardingKey": "o-1"}

JSON lines have the fields that `ariane tail -o jsonl` prints, so one topic can be piped into another.
"""

import asyncio
import base64
import binascii
import json
import os
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import CancelledError
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ariane.client.producer.request import BATCH_COUNT_MAX
from ariane.clock import Clock
from ariane.errors import MessageRejected
from ariane.model.message import RESERVED_PROPERTIES, Message, Property

_IGNORED_FIELDS = frozenset(
    {"topic", "brokerName", "queueId", "queueOffset", "storeTime", "storeTimestamp", "bornTimestamp"}
    | {"msgId", "offsetMsgId", "reconsumeTimes", "fault", "originTopic"}
    | {"queueTopic", "bornTime", "bornHost", "storeHost", "physicalOffset", "storedSize", "sysFlag", "bodyCrc"}
)
"""Fields that `tail`, `msg` and `dlq` print about a stored message: a new message does not use them."""
_FIELDS = frozenset({"body", "bodyEncoding", "tags", "keys", "properties", "shardingKey", "delayLevel", "deliverAt"})
_NUMBER = "{n}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTemplate:
    topic: str
    tags: str | None = None
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    sharding_key: str | None = None
    delay_level: int = 0
    deliver_at: int | None = None

    def message(self, body: bytes) -> Message:
        return Message(
            topic=self.topic,
            body=body,
            tags=self.tags,
            keys=self.keys,
            properties=self.properties,
            sharding_key=self.sharding_key,
            delay_level=self.delay_level,
            deliver_at=self.deliver_at,
        )

    def numbered(self, body: bytes, number: int) -> Message:
        """Replaces `{n}` in the body, the keys and the sharding key by the message's number."""
        text = str(number)
        message = self.message(body.replace(_NUMBER.encode(), text.encode()))
        keys = tuple(key.replace(_NUMBER, text) for key in self.keys)
        sharding_key = self.sharding_key.replace(_NUMBER, text) if self.sharding_key is not None else None
        return replace(message, keys=keys, sharding_key=sharding_key)

    def from_json(self, line: bytes, number: int) -> Message:
        """Fields that the line lacks come from the template. MessageRejected names the line."""
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise MessageRejected("it is not a JSON object")
            return self._from_row(row)
        except json.JSONDecodeError as error:
            raise MessageRejected(f"line {number}: it is not JSON: {error.msg} at character {error.colno}") from None
        except (ValueError, RecursionError, MessageRejected) as error:
            raise MessageRejected(f"line {number}: {error}") from error

    def _from_row(self, row: dict[str, Any]) -> Message:
        unknown = row.keys() - _FIELDS - _IGNORED_FIELDS
        if unknown:
            raise MessageRejected(f"unknown field {sorted(unknown)[0]!r}: fields are {', '.join(sorted(_FIELDS))}")
        if "body" not in row:
            raise MessageRejected('it has no field "body"')
        if row.get("fault"):
            raise MessageRejected(f"its body differs from what was sent: {row['fault']}")
        properties = _texts(row.get("properties") or {})
        sharding_key = row.get("shardingKey") or properties.get(Property.SHARDING_KEY) or self.sharding_key
        own = {name: value for name, value in properties.items() if name not in RESERVED_PROPERTIES}
        return Message(
            topic=self.topic,
            body=_body(row["body"], row.get("bodyEncoding", "utf-8")),
            tags=_text("tags", row.get("tags")) or self.tags,
            keys=_keys(row.get("keys")) or self.keys,
            properties={**self.properties, **own},
            sharding_key=_text("shardingKey", sharding_key),
            delay_level=_number("delayLevel", row.get("delayLevel")) or self.delay_level,
            deliver_at=_number("deliverAt", row.get("deliverAt")) or self.deliver_at,
        )


def _body(body: object, encoding: object) -> bytes:
    if not isinstance(body, str):
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    if encoding == "utf-8":
        return body.encode()
    if encoding != "base64":
        raise MessageRejected(f"unknown bodyEncoding {encoding!r}: use utf-8 or base64")
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise MessageRejected(f"the body is not base64: {error}") from None


def _keys(keys: object) -> tuple[str, ...]:
    if keys is None or isinstance(keys, str):
        return tuple((keys or "").split())
    if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
        return tuple(keys)
    raise MessageRejected(f"keys must be a string or a list of strings, not {keys!r}")


def _texts(properties: object) -> dict[str, str]:
    if isinstance(properties, dict) and all(isinstance(value, str) for value in properties.values()):
        return properties
    raise MessageRejected("properties must be an object whose values are strings")


def _text(name: str, value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise MessageRejected(f"{name} must be a string, not {value!r}")


def _number(name: str, value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise MessageRejected(f"{name} must be an integer, not {value!r}")


# --- lines of stdin or of a file ---

_CHUNK_BYTES = 64 * 1024
_AHEAD_MAX = 8
LINE_BYTES_MAX = 16 * 1024 * 1024


async def lines_of(descriptor: int) -> AsyncGenerator[list[bytes], None]:
    """Complete lines without line ends, as many as have arrived; the last one may lack its line end.

    A thread reads, so that a terminal or a slow pipe does not block sends in progress. It is a daemon thread: a read
    that never returns does not keep the process from exiting.
    """
    chunks: asyncio.Queue[bytes] = asyncio.Queue(_AHEAD_MAX)
    reader = threading.Thread(target=_read, args=(descriptor, asyncio.get_running_loop(), chunks), daemon=True)
    reader.start()
    rest = b""
    while chunk := await chunks.get():
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise MessageRejected(f"a line is longer than {LINE_BYTES_MAX} bytes: send it with --file, or split it")
        yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest]


def _read(descriptor: int, loop: asyncio.AbstractEventLoop, chunks: "asyncio.Queue[bytes]") -> None:
    """Puts an empty chunk at the end of the file."""
    chunk = b"begin"
    while chunk:
        try:
            chunk = os.read(descriptor, _CHUNK_BYTES)
        except OSError:  # a terminal that was hung up
            chunk = b""
        try:
            asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
        except (RuntimeError, CancelledError):  # the event loop has ended
            return


# --- rate limit ---

_BEHIND_MAX_S = 0.1
"""A longer delay is not made up for: a slow phase must not be followed by a burst."""


class RateLimiter:
    """Spreads messages evenly over time."""

    def __init__(self, rate: float, clock: Clock) -> None:
        self._gap_s = 1.0 / rate
        self._clock = clock
        self._next = clock.monotonic()

    async def wait(self) -> None:
        """Returns when the next message may be sent."""
        now = self._clock.monotonic()
        if self._next > now:
            await self._clock.sleep(self._next - now)
        self._next = max(self._next, now - _BEHIND_MAX_S) + self._gap_s


# --- source of messages ---


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSource:
    """The messages of one `ariane send`: given bodies, or lines of files."""

    template: MessageTemplate
    bodies: tuple[bytes, ...] = ()
    """Each is sent `count` times."""
    files: tuple[Path | int, ...] = ()
    """Paths or open descriptors; each line is a message."""
    is_json: bool = False
    count: int = 1

    @property
    def total(self) -> int | None:
        """None: not known before the end of the input."""
        return None if self.files else len(self.bodies) * self.count

    async def messages(self, rate: float | None) -> AsyncGenerator[list[Message], None]:
        """As many as are available at a time, up to the size of one request; with a rate one by one."""
        limiter = RateLimiter(rate, Clock()) if rate is not None else None
        step = BATCH_COUNT_MAX if limiter is None else 1
        async with aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                for begin in range(0, len(chunk), step):
                    if limiter is not None:
                        await limiter.wait()
                    yield chunk[begin : begin + step]

    async def _chunks(self) -> AsyncGenerator[list[Message], None]:
        for begin in range(0, self.count, BATCH_COUNT_MAX):
            numbers = range(begin, min(begin + BATCH_COUNT_MAX, self.count))
            yield [self._from_body(body, number) for number in numbers for body in self.bodies]
        for file in self.files:
            async with aclosing(self._lines(file)) as chunks:
                async for chunk in chunks:
                    yield chunk

    def _from_body(self, body: bytes, number: int) -> Message:
        return self.template.numbered(body, number) if self.count > 1 else self.template.message(body)

    async def _lines(self, file: Path | int) -> AsyncGenerator[list[Message], None]:
        """Skips empty lines: a message has a body."""
        descriptor = file if isinstance(file, int) else os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        seen = 0
        async with aclosing(lines_of(descriptor)) as chunks:
            async for lines in chunks:
                yield [self._from_line(line, number) for number, line in enumerate(lines, seen + 1) if line]
                seen += len(lines)

    def _from_line(self, line: bytes, number: int) -> Message:
        return self.template.from_json(line, number) if self.is_json else self.template.message(line)
