"""Rows of a DataFrame as messages: the columns of the sink, their checks, and two ways to encode them.

The general path makes a message of each row (`messages_of`). The fast path encodes a whole batch of rows as the body of
a batch send (`encode_rows`), without Python code for each row:

    4 size | 4 magic 0 | 4 crc 0 | 4 flag 0 | 4 body length | body | 2 properties length | properties

It is for rows that have only a body, tags and keys, which most have. The data buffer of the joined Arrow column is sent
as it is; each message ends where the column's offsets say. A row that needs more makes the batch take the general path,
which also has the error messages.

Unique keys are deterministic, so that a repeated task produces the same ones and duplicates can be recognised:

    10 bytes  hash of query, micro-batch, partition and row number / 65536
     4 bytes  0, where a producer's key has the time since the month began
     2 bytes  row number modulo 65536

The layout is that of a producer's unique key: tools search for a key from the time in it on, and 0 is before every
message of the month. This requires that the rows of a partition come in the same order each time.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from ariane.client.producer.message import check_message, check_topic
from ariane.errors import MessageRejected, RecordError, SettingsError
from ariane.model.message import Message, Property
from ariane.wire.properties import (
    NAME_END,
    PAIR_END,
    PROPERTIES_BYTES_MAX,
    UNIQUE_KEY_START,
    WAIT_TRUE,
    encode_properties,
)

# --- unique keys ---

KEYS_PER_PREFIX = 1 << 16


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    query: str
    batch: str
    partition: int


class TaskKeys:
    def __init__(self, identity: TaskIdentity) -> None:
        self._identity = identity
        self._row = 0
        self._prefix = ""

    def next(self) -> str:
        low = self._row % KEYS_PER_PREFIX
        if low == 0:
            self._prefix = self._prefix_for(self._row // KEYS_PER_PREFIX)
        self._row += 1
        return f"{self._prefix}{low:04X}"

    def take(self, count: int) -> Iterator[tuple[str, int, int]]:
        """The next keys as (prefix, first number, count): a key is the prefix and its number in hex."""
        while count > 0:
            block, low = divmod(self._row, KEYS_PER_PREFIX)
            some = min(count, KEYS_PER_PREFIX - low)
            self._prefix = self._prefix_for(block)
            self._row += some
            count -= some
            yield self._prefix, low, some

    def _prefix_for(self, block: int) -> str:
        task = self._identity
        text = "\x00".join((task.query, task.batch, str(task.partition), str(block)))
        return hashlib.sha256(text.encode()).hexdigest()[:20].upper() + "00000000"


# --- messages, row by row ---

_TEXT = (StringType,)
_WHOLE = (IntegerType, LongType, ShortType)
COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "body": (BinaryType, StringType),
    "topic": _TEXT,
    "tags": _TEXT,
    "keys": (StringType, ArrayType),
    "shardingKey": _TEXT,
    "brokerName": _TEXT,
    "queueId": _WHOLE,
    "delayLevel": _WHOLE,
    "deliverTimestamp": (TimestampType,),
    "properties": (MapType,),
}


class OutboundMessage(NamedTuple):
    topic: str
    body: bytes
    properties: bytes
    sharding_key: str | None
    queue_id: int | None
    broker_name: str | None
    is_unbatched: bool
    """A delayed message cannot be part of a batch."""

    @property
    def size(self) -> int:
        return len(self.body) + len(self.properties) + 22


def check_schema(schema: StructType, topic: str | None) -> None:
    """SettingsError, before anything is sent, when rows of this schema cannot be messages."""
    for field in schema.fields:
        types = COLUMNS.get(field.name)
        if types is None:
            raise SettingsError(
                f"a message has no column {field.name}: leave it out with .drop({field.name!r}), or put it "
                f"into body or properties. There are {', '.join(COLUMNS)}"
            )
        if not isinstance(field.dataType, types):
            names = " or ".join(_type_name(type_) for type_ in types)
            raise SettingsError(f"column {field.name} is {field.dataType.simpleString()}, but must be {names}")
    columns = set(schema.names)
    if "body" not in columns:
        raise SettingsError(
            "the data frame has no column body, which every message needs: make one, for example with "
            "to_json(struct(*)) AS body"
        )
    if topic is None and "topic" not in columns:
        raise SettingsError("no topic is given: add the option topic, or a column topic")
    if topic is not None:
        check_topic(topic)
    for first, second in (("shardingKey", "queueId"), ("delayLevel", "deliverTimestamp")):
        if {first, second} <= columns:
            raise SettingsError(f"columns {first} and {second} exclude each other: leave one out")


def _type_name(type_: type[DataType]) -> str:
    return {MapType: "map", ArrayType: "array"}.get(type_) or type_().simpleString()


def messages_of(batch: pa.RecordBatch, topic: str | None, keys: TaskKeys) -> Iterator[OutboundMessage]:
    """MessageRejected names the first row that can never be sent."""
    columns = {name: _values(batch.column(name)) for name in batch.schema.names}
    nothing = [None] * batch.num_rows
    get: Callable[[str], list[Any]] = lambda name: columns.get(name, nothing)  # noqa: E731
    rows = zip(
        get("body"),
        get("topic"),
        get("tags"),
        get("keys"),
        get("shardingKey"),
        get("queueId"),
        get("brokerName"),
        get("delayLevel"),
        get("deliverTimestamp"),
        get("properties"),
        strict=True,
    )
    for row in rows:
        yield _message(row, topic, keys.next())


def _message(row: tuple[Any, ...], default_topic: str | None, unique_key: str) -> OutboundMessage:
    body, topic, tags, words, sharding_key, queue_id, broker, level, deliver_at, properties = row
    topic = topic or default_topic
    if topic is None or body is None:
        raise MessageRejected(
            f"a row has no {'body' if body is None else 'topic'}: fill the column, or filter such rows"
        )
    message = Message(
        topic=topic,
        body=body.encode() if isinstance(body, str) else body,
        tags=tags or None,
        keys=words or (),
        properties=dict(properties) if properties else {},
        sharding_key=sharding_key or None,
        delay_level=level or 0,
        deliver_at=deliver_at,
    )
    check_message(message)
    return OutboundMessage(
        topic,
        message.body,
        _property_bytes(message, unique_key),
        message.sharding_key,
        queue_id,
        broker,
        bool(message.delay_level) or message.deliver_at is not None,
    )


def _property_bytes(message: Message, unique_key: str) -> bytes:
    properties = dict(message.properties)
    if message.key_list:
        properties[Property.KEYS] = " ".join(message.key_list)
    if message.tags is not None:
        properties[Property.TAGS] = message.tags
    if message.sharding_key is not None:
        properties[Property.SHARDING_KEY] = message.sharding_key
    if message.delay_level:
        properties[Property.DELAY] = str(message.delay_level)
    if message.deliver_at is not None:
        assert isinstance(message.deliver_at, int)
        properties[Property.TIMER_DELIVER_MS] = str(message.deliver_at)
    properties[Property.WAIT] = "true"
    properties[Property.UNIQUE_KEY] = unique_key
    try:
        return encode_properties(properties)
    except RecordError as error:
        raise MessageRejected(str(error)) from None


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


# --- the fast path: a batch of rows at a time ---

_PREFIX = np.dtype([("size", ">i4"), ("zeros", "V12"), ("body", ">i4")])
_FIXED_BYTES = _PREFIX.itemsize + 2
_COLUMNS = frozenset({"body", "tags", "keys"})
_IRREGULAR_TEXT = f"[{NAME_END}{PAIR_END}]" + r"|\|\||^\s+$|^ | $|  "
_BODY_BYTES_MAX = 1024 * 1024  # larger ones are sent alone


class EncodedRows(NamedTuple):
    data: memoryview
    ends: np.ndarray[Any, Any]
    """Where each message begins in `data`, and where the last one ends."""

    def batches(self, count_max: int, bytes_max: int) -> Iterator[tuple[int, bytes]]:
        """How many messages, and their bytes; a message larger than `bytes_max` is alone."""
        ends, start, count = self.ends, 0, len(self.ends) - 1
        while start < count:
            fit = int(np.searchsorted(ends, ends[start] + bytes_max, "right")) - 1
            end = min(max(fit, start + 1), start + count_max, count)
            yield end - start, bytes(self.data[ends[start] : ends[end]])
            start = end


def can_encode(schema: pa.Schema) -> bool:
    """Not for arrays of keys, maps, queues and delays: these take the general path."""
    text = (pa.types.is_string, pa.types.is_large_string)
    return set(schema.names) <= _COLUMNS and all(
        any(is_text(field.type) for is_text in text) for field in schema if field.name != "body"
    )


def encode_rows(batch: pa.RecordBatch, keys: TaskKeys) -> EncodedRows | None:
    """None when some row needs the general path; no unique key is used up then."""
    body = batch.column("body").cast(pa.binary())
    if body.null_count or not _are_sendable(body):
        return None
    texts = [(name.upper(), batch.column(name)) for name in ("keys", "tags") if name in batch.schema.names]
    if any(_is_irregular(column) for _, column in texts):
        return None
    texts_encoded = [_property(name, column) for name, column in texts]
    unique = _unique_keys(keys, batch.num_rows)
    properties = pc.binary_join_element_wise(*texts_encoded, WAIT_TRUE + UNIQUE_KEY_START, unique, PAIR_END, "")
    properties = properties.cast(pa.binary())
    lengths, bodies = _lengths(properties), _lengths(body)
    if lengths.size and lengths.max() > PROPERTIES_BYTES_MAX:
        return None
    joined = pc.binary_join_element_wise(_prefixes(bodies, lengths), body, _shorts(lengths), properties, b"")
    ends = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + len(joined) + 1]
    return EncodedRows(memoryview(joined.buffers()[2]), ends)


def _are_sendable(body: pa.BinaryArray) -> bool:
    lengths = _lengths(body)
    return not lengths.size or (lengths.min() > 0 and int(lengths.max()) <= _BODY_BYTES_MAX)


def _is_irregular(column: pa.StringArray) -> bool:
    return bool(pc.any(pc.match_substring_regex(column, _IRREGULAR_TEXT)).as_py())


def _property(name: str, column: pa.StringArray) -> pa.StringArray:
    """`NAME 0x01 value 0x02`, or nothing where the column has no value."""
    column = column.cast(pa.string())
    text = pc.binary_join_element_wise(name + NAME_END, column, PAIR_END, "")
    has_none = pc.or_kleene(pc.is_null(column), pc.equal(column, ""))
    return pc.if_else(has_none, "", text)


def _unique_keys(keys: TaskKeys, count: int) -> pa.StringArray:
    blocks = [
        pc.binary_join_element_wise(prefix, _low_parts().slice(low, some), "") for prefix, low, some in keys.take(count)
    ]
    return pa.concat_arrays(blocks) if blocks else pa.array([], pa.string())


@cache
def _low_parts() -> pa.StringArray:
    """0000 to FFFF. Built from bytes, because pyarrow imports pandas to convert a list."""
    text = "".join([f"{low:04X}" for low in range(KEYS_PER_PREFIX)]).encode()
    offsets = np.arange(0, len(text) + 1, 4, dtype=np.int32)
    return pa.StringArray.from_buffers(KEYS_PER_PREFIX, pa.py_buffer(offsets.tobytes()), pa.py_buffer(text))


def _lengths(column: pa.BinaryArray) -> np.ndarray[Any, Any]:
    return np.diff(np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1])


def _prefixes(bodies: np.ndarray[Any, Any], properties: np.ndarray[Any, Any]) -> pa.BinaryArray:
    prefixes = np.zeros(len(bodies), _PREFIX)
    prefixes["size"] = bodies + properties + _FIXED_BYTES
    prefixes["body"] = bodies
    return _fixed(prefixes)


def _shorts(lengths: np.ndarray[Any, Any]) -> pa.BinaryArray:
    return _fixed(lengths.astype(">i2"))


def _fixed(values: np.ndarray[Any, Any]) -> pa.BinaryArray:
    kind = pa.binary(values.dtype.itemsize)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values.tobytes())]).cast(pa.binary())
