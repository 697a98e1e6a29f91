"""Text format of message traces, exactly as Apache's 4.9 clients write it, so that every trace tool can read it.

    Pub 1 timestamp 1 region 1 group 1 topic 1 msgId 1 tags 1 keys 1 storeHost 1 bodyLength 1 costMs 1 type
        1 offsetMsgId 1 success 2
    SubBefore 1 timestamp 1 region 1 group 1 requestId 1 msgId 1 retries 1 keys 2
    SubAfter 1 requestId 1 msgId 1 costMs 1 success 1 keys 1 contextCode 1 timestamp 1 group 2
    EndTransaction 1 timestamp 1 region 1 group 1 topic 1 msgId 1 tags 1 keys 1 storeHost 1 type
        1 transactionId 1 state 1 fromCheck 2

1 and 2 stand for the bytes 0x01 and 0x02. A missing value is the word `null`.
"""

from collections.abc import Sequence
from enum import IntEnum

import msgspec


class TraceKind(IntEnum):
    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3


class ContextCode(IntEnum):
    """The outcome of a consumer's handler."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4


class Trace(msgspec.Struct, frozen=True):
    """One record, and the keys that it is indexed by."""

    text: str
    keys: frozenset[str]


def published(
    *,
    timestamp_ms: int,
    region: str,
    group: str,
    topic: str,
    message_id: str,
    tags: str | None,
    keys: Sequence[str],
    store_host: str,
    body_length: int,
    cost_ms: int,
    kind: TraceKind,
    offset_message_id: str,
    success: bool,
) -> Trace:
    return _trace(
        [message_id, *keys],
        *("Pub", timestamp_ms, region, group, topic, message_id, tags, _joined(keys), store_host, body_length),
        *(cost_ms, int(kind), offset_message_id, success),
    )


def before_consumption(
    *,
    timestamp_ms: int,
    region: str,
    group: str,
    request_id: str,
    message_id: str,
    retries: int,
    keys: Sequence[str],
) -> Trace:
    return _trace(
        [message_id, *keys],
        *("SubBefore", timestamp_ms, region, group, request_id, message_id, retries, _joined(keys)),
    )


def after_consumption(
    *,
    timestamp_ms: int,
    group: str,
    request_id: str,
    message_id: str,
    cost_ms: int,
    success: bool,
    keys: Sequence[str],
    context_code: ContextCode,
) -> Trace:
    return _trace(
        [message_id, *keys],
        *("SubAfter", request_id, message_id, cost_ms, success, _joined(keys), int(context_code), timestamp_ms, group),
    )


def transaction_ended(
    *,
    timestamp_ms: int,
    region: str,
    group: str,
    topic: str,
    message_id: str,
    tags: str | None,
    keys: Sequence[str],
    store_host: str,
    transaction_id: str | None,
    state: str,
    from_check: bool,
) -> Trace:
    kind = int(TraceKind.TRANSACTION_COMMIT)
    return _trace(
        [message_id, *keys],
        *("EndTransaction", timestamp_ms, region, group, topic, message_id, tags, _joined(keys), store_host, kind),
        *(transaction_id, state, from_check),
    )


def _trace(keys: Sequence[str], *values: object) -> Trace:
    return Trace("\x01".join(map(_field, values)) + "\x02", frozenset(keys))


def _joined(keys: Sequence[str]) -> str | None:
    return " ".join(keys) or None


def _field(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)
