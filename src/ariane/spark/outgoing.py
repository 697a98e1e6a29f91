"""Rows as messages: each column of the sink's schema checked and put where brokers and consumers look for it."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
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

from ariane.client.message_checks import check_message, check_topic
from ariane.errors import MessageRejected, RecordError, SettingsError
from ariane.model.message import Message, Property
from ariane.spark.unique_keys import TaskKeys
from ariane.wire.properties import encode_properties

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


class Outgoing(NamedTuple):
    topic: str
    body: bytes
    properties: bytes
    sharding_key: str | None
    queue_id: int | None
    broker_name: str | None
    travels_alone: bool
    """A delayed message cannot be part of a batch."""

    @property
    def size(self) -> int:
        return len(self.body) + len(self.properties) + 22


def check_schema(schema: StructType, topic: str | None) -> None:
    """SettingsError, before anything is sent, when rows of this schema cannot be messages."""
    for field in schema.fields:
        wanted = COLUMNS.get(field.name)
        if wanted is None:
            raise SettingsError(
                f"column {field.name} is none that a message has: leave it out with .drop({field.name!r}), or put it "
                f"into body or properties. There are {', '.join(COLUMNS)}"
            )
        if not isinstance(field.dataType, wanted):
            kinds = " or ".join(_kind_name(kind) for kind in wanted)
            raise SettingsError(f"column {field.name} is {field.dataType.simpleString()}, but must be {kinds}")
    names = set(schema.names)
    if "body" not in names:
        raise SettingsError(
            "the data frame has no column body, which every message needs: make one, for example with "
            "to_json(struct(*)) AS body"
        )
    if topic is None and "topic" not in names:
        raise SettingsError("no topic is given: add the option topic, or a column topic")
    if topic is not None:
        check_topic(topic)
    for one, other in (("shardingKey", "queueId"), ("delayLevel", "deliverTimestamp")):
        if {one, other} <= names:
            raise SettingsError(f"columns {one} and {other} exclude each other: leave one out")


def _kind_name(kind: type[DataType]) -> str:
    return {MapType: "map", ArrayType: "array"}.get(kind) or kind().simpleString()


def messages_of(batch: pa.RecordBatch, topic: str | None, keys: TaskKeys) -> Iterator[Outgoing]:
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


def _message(row: tuple[Any, ...], default_topic: str | None, unique_key: str) -> Outgoing:
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
    return Outgoing(
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
