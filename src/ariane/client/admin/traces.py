"""The trace of a message, from the records that clients sent to the trace topic.

Records come from any client of any release, so no field is trusted: a record that cannot be read is counted and left
out. Releases add fields at the end; unknown fields are ignored.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from ariane.client.admin.requests import Failure
from ariane.client.core.trace_format import ContextCode, TraceKind

if TYPE_CHECKING:
    from ariane.client.admin.messages import FoundMessages

_RECORD_END = "\x02"
_FIELD_END = "\x01"


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    timestamp_ms: int
    group: str
    topic: str
    tags: str | None
    keys: str | None
    store_host: str
    body_length: int
    cost_ms: int
    kind: TraceKind | int
    offset_message_id: str | None
    success: bool


class Consumption(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt. `success` is None without a record of its end: it still runs, or its client died."""

    request_id: str
    group: str | None = None
    began_ms: int | None = None
    retries: int | None = None
    cost_ms: int | None = None
    success: bool | None = None
    context: ContextCode | int | None = None


class TransactionEnd(msgspec.Struct, frozen=True, kw_only=True):
    timestamp_ms: int
    group: str
    topic: str
    transaction_id: str | None
    state: str
    from_check: bool


class MessageTrace(msgspec.Struct, frozen=True, kw_only=True):
    message_id: str
    published: tuple[Publication, ...] = ()
    consumed: tuple[Consumption, ...] = ()
    transactions: tuple[TransactionEnd, ...] = ()
    unreadable: int = 0
    """Records that could not be read."""
    is_cut: bool = False
    failures: tuple[Failure, ...] = ()

    @property
    def is_complete(self) -> bool:
        return not self.failures and not self.is_cut and not self.unreadable


def trace_of(message_id: str, found: "FoundMessages") -> MessageTrace:
    """The records about one message, from trace messages that may have records about a hundred."""
    reader = _Reader(message_id)
    for text in (message.body.decode(errors="replace") for message in found.messages if message.fault is None):
        for record in filter(None, text.split(_RECORD_END)):
            reader.read(record.split(_FIELD_END))
    return MessageTrace(
        message_id=message_id,
        published=tuple(reader.published),
        consumed=tuple(sorted(reader.consumed.values(), key=lambda attempt: attempt.began_ms or 0)),
        transactions=tuple(reader.transactions),
        unreadable=reader.unreadable,
        is_cut=found.is_cut,
        failures=found.failures,
    )


class _Reader:
    def __init__(self, message_id: str) -> None:
        self._message_id = message_id
        self.published: list[Publication] = []
        self.consumed: dict[str, Consumption] = {}
        self.transactions: list[TransactionEnd] = []
        self.unreadable = 0

    def read(self, fields: list[str]) -> None:
        try:
            self._read(iter(fields[1:]), fields[0])
        except (StopIteration, ValueError):
            self.unreadable += 1

    def _read(self, fields: Iterator[str], kind: str) -> None:
        match kind:
            case "Pub":
                self._published(*_common(fields), fields)
            case "SubBefore":
                self._before(fields)
            case "SubAfter":
                self._after(fields)
            case "EndTransaction":
                self._ended(*_common(fields), fields)
            case _:
                self.unreadable += 1

    def _published(self, timestamp_ms: int, group: str, topic: str, message_id: str, fields: Iterator[str]) -> None:
        tags, keys, store_host = _text(next(fields)), _text(next(fields)), next(fields)
        body_length, cost_ms, kind = int(next(fields)), int(next(fields)), _trace_kind(int(next(fields)))
        rest = list(fields)  # before 4.4: success alone; then the offset id before it
        if message_id != self._message_id:
            return
        self.published.append(
            Publication(
                timestamp_ms=timestamp_ms,
                group=group,
                topic=topic,
                tags=tags,
                keys=keys,
                store_host=store_host,
                body_length=body_length,
                cost_ms=cost_ms,
                kind=kind,
                offset_message_id=rest[0] if len(rest) > 1 else None,
                success=_flag(rest[1] if len(rest) > 1 else rest[0]) if rest else True,
            )
        )

    def _before(self, fields: Iterator[str]) -> None:
        timestamp_ms, _region, group = int(next(fields)), next(fields), next(fields)
        request_id, message_id, retries = next(fields), next(fields), int(next(fields))
        if message_id == self._message_id:
            self._update(request_id, group=group, began_ms=timestamp_ms, retries=retries)

    def _after(self, fields: Iterator[str]) -> None:
        request_id, message_id = next(fields), next(fields)
        cost_ms, success = int(next(fields)), _flag(next(fields))
        _keys, context = next(fields, None), next(fields, None)
        code = _context(int(context)) if context else None
        if message_id == self._message_id:
            self._update(request_id, cost_ms=cost_ms, success=success, context=code)

    def _ended(self, timestamp_ms: int, group: str, topic: str, message_id: str, fields: Iterator[str]) -> None:
        for _ in ("tags", "keys", "store host", "kind"):
            next(fields)
        transaction_id, state, from_check = _text(next(fields)), next(fields), _flag(next(fields))
        if message_id == self._message_id:
            self.transactions.append(
                TransactionEnd(
                    timestamp_ms=timestamp_ms,
                    group=group,
                    topic=topic,
                    transaction_id=transaction_id,
                    state=state,
                    from_check=from_check,
                )
            )

    def _update(self, request_id: str, **fields: object) -> None:
        attempt = self.consumed.get(request_id, Consumption(request_id=request_id))
        self.consumed[request_id] = msgspec.structs.replace(attempt, **fields)


def _common(fields: Iterator[str]) -> tuple[int, str, str, str]:
    """Time, group, topic and message id; skips the region between them."""
    timestamp_ms, _region = int(next(fields)), next(fields)
    return timestamp_ms, next(fields), next(fields), next(fields)


def _text(text: str) -> str | None:
    return None if text in ("null", "") else text


def _flag(text: str) -> bool:
    return text == "true"


def _trace_kind(number: int) -> TraceKind | int:
    return TraceKind(number) if number in set(TraceKind) else number


def _context(number: int) -> ContextCode | int:
    return ContextCode(number) if number in set(ContextCode) else number
