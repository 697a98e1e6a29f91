"""RocketMQ's requests, byte for byte as Apache's Java client writes them (compare tests/golden)."""

import struct
import time
from collections.abc import Iterator

from ariane.wire.record.batch import BatchItem, encode_batch
from bench.load.names import BROKER, CONSUMER_GROUP, PRODUCER_GROUP, topic_name
from bench.load.plan import Kind, LoadPlan, Serialization
from bench.load.ring import ROUND, Ring

OPAQUE_FIRST, OPAQUE_DIGITS = 100_000, 6
"""The opaque number of the first row: all opaques have six digits."""
OFFSET_FIRST = 1_000
"""Pulls begin here: all offsets have four digits."""
ROWS_MIN = 4_096
RING_BYTES_MAX = 64 * 1024 * 1024
"""Total size of the bodies: large batches have fewer rows."""

SEND, SEND_BATCH, PULL = 310, 320, 11
SUSPEND, SUBSCRIPTION = 2, 4
VERSION = 409
"""The version number of Apache 4.9.8."""

_IN_PAIR, _BETWEEN_PAIRS = b"\x01", b"\x02"
"""Between name and value, and between properties."""
_BINARY_TYPE = 1 << 24
"""In the length of the header: that it is binary."""
_JAVA = 0


def ring_of(plan: LoadPlan) -> Ring:
    rows = {Kind.SEND: _sends, Kind.BATCH: _batches, Kind.FILL: _sends, Kind.PULL: _pulls}[plan.kind]
    return Ring(list(rows(plan)))


def _row_count(plan: LoadPlan) -> int:
    """At least `ROWS_MIN` unless they are large, and each queue of each topic as often as any other."""
    targets = plan.topics * plan.queues
    rows = min(ROWS_MIN, RING_BYTES_MAX // (plan.messages_a_request * max(plan.body_bytes, 1)))
    return targets * max(1, -(-rows // targets))


def _targets(plan: LoadPlan) -> Iterator[tuple[int, bytes, int]]:
    """Row number, topic and queue: neighbours go to different topics first, then to different queues."""
    for row in range(_row_count(plan)):
        yield row, topic_name(plan.topic_first + row % plan.topics).encode(), row // plan.topics % plan.queues


# --- sends ----------------------------------------------------------------------------------------------------------


def _sends(plan: LoadPlan) -> Iterator[bytes]:
    body = body_of(plan.body_bytes)
    for row, topic, queue in _targets(plan):
        fields = _send_fields(topic, queue, _properties(row, plan.delay_level), batch=False)
        yield frame(SEND, OPAQUE_FIRST + row, fields, body, plan.serialization)


def _batches(plan: LoadPlan) -> Iterator[bytes]:
    size = plan.messages_a_request
    for row, topic, queue in _targets(plan):
        items = [_item(row * size + index, plan.body_bytes) for index in range(size)]
        fields = _send_fields(topic, queue, _text(WAIT=b"true"), batch=True)
        yield frame(SEND_BATCH, OPAQUE_FIRST + row, fields, encode_batch(items), plan.serialization)


def _item(number: int, body_bytes: int) -> BatchItem:
    return BatchItem(body_of(body_bytes), _properties(number, 0))


def _send_fields(topic: bytes, queue: int, properties: bytes, *, batch: bool) -> dict[bytes, bytes]:
    born_ms = b"%d" % (time.time() * 1000)
    values = (PRODUCER_GROUP.encode(), topic, b"TBW102", b"4", b"%d" % queue, b"0", born_ms, b"0", properties)
    fields = dict(zip((b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"i"), values, strict=True))
    return fields | {b"j": b"0", b"k": b"false", b"m": b"true" if batch else b"false", b"n": BROKER.encode()}


def _properties(number: int, delay_level: int) -> bytes:
    """A key, a tag and the unique key that every client adds: two entries in the broker's index."""
    delay = {"DELAY": b"%d" % delay_level} if delay_level else {}
    return _text(KEYS=b"order-%06d" % number + ROUND, UNIQ_KEY=_unique_key(number), WAIT=b"true", TAGS=b"paid", **delay)


def _unique_key(number: int) -> bytes:
    return b"7F00000100A118B4AAC2%08d" % number + ROUND


def _text(**pairs: bytes) -> bytes:
    return _BETWEEN_PAIRS.join(name.encode() + _IN_PAIR + value for name, value in pairs.items())


def body_of(size: int) -> bytes:
    """Text that compresses badly and does not contain the placeholders of a ring."""
    return (b"%064x" % 0x9E3779B97F4A7C15F39CC0605CEDC8341082276BF3A27251F86C6A11D0C18E95 * (size // 64 + 1))[:size]


# --- pulls ----------------------------------------------------------------------------------------------------------


def _pulls(plan: LoadPlan) -> Iterator[bytes]:
    """All queues in turn, from `OFFSET_FIRST` to the last message that was filled in."""
    steps = (plan.filled - OFFSET_FIRST) // plan.messages_a_request
    for row in range(steps * plan.queues):
        offset = OFFSET_FIRST + row // plan.queues * plan.messages_a_request
        target = topic_name(0), row % plan.queues, offset, plan.messages_a_request
        yield pull(OPAQUE_FIRST + row, *target, serialization=plan.serialization)


def pull(
    opaque: int,
    topic: str,
    queue: int,
    offset: int,
    count: int,
    suspend_ms: int = 0,
    serialization: Serialization = Serialization.JSON,
) -> bytes:
    """One pull, which waits for a message when there is none if `suspend_ms` is above 0."""
    fields = {
        b"commitOffset": b"0",
        b"consumerGroup": CONSUMER_GROUP.encode(),
        b"expressionType": b"TAG",
        b"maxMsgNums": b"%d" % count,
        b"queueId": b"%d" % queue,
        b"queueOffset": b"%d" % offset,
        b"subVersion": b"0",
        b"subscription": b"*",
        b"suspendTimeoutMillis": b"%d" % (suspend_ms or 15_000),
        b"sysFlag": b"%d" % (SUBSCRIPTION | (SUSPEND if suspend_ms else 0)),
        b"topic": topic.encode(),
    }
    return frame(PULL, opaque, fields, b"", serialization)


# --- frames ---------------------------------------------------------------------------------------------------------


def frame(
    code: int,
    opaque: int,
    fields: dict[bytes, bytes],
    body: bytes,
    serialization: Serialization = Serialization.JSON,
) -> bytes:
    """Length, header length with the serialisation in its top byte, header, body."""
    is_binary = serialization is Serialization.BINARY
    header = (_binary_header if is_binary else _json_header)(code, opaque, fields)
    header_length = len(header) | (_BINARY_TYPE if is_binary else 0)
    return struct.pack(">ii", 4 + len(header) + len(body), header_length) + header + body


def _json_header(code: int, opaque: int, fields: dict[bytes, bytes]) -> bytes:
    """JSON must escape the separators of properties."""
    pairs = b",".join(b'"%s":"%s"' % pair for pair in fields.items())
    pairs = pairs.replace(_IN_PAIR, b"\\u0001").replace(_BETWEEN_PAIRS, b"\\u0002")
    return (
        b'{"code":%d,"extFields":{%s},"flag":0,"language":"JAVA","opaque":%d,'
        b'"serializeTypeCurrentRPC":"JSON","version":%d}' % (code, pairs, opaque, VERSION)
    )


def _binary_header(code: int, opaque: int, fields: dict[bytes, bytes]) -> bytes:
    """Code, language, version, opaque, flag, no remark, and the fields with their lengths."""
    pairs = b"".join(
        struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value for name, value in fields.items()
    )
    return struct.pack(">hBhiiii", code, _JAVA, VERSION, opaque, 0, 0, len(pairs)) + pairs
