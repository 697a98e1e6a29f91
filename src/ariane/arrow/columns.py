"""From rows to a batch: how each column is made, and only those that are asked for."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ariane.arrow.bodies import Unpacked, body_column
from ariane.arrow.hosts import born_hosts, offset_ids, store_hosts
from ariane.arrow.property_columns import PropertyColumns
from ariane.arrow.rows import Rows
from ariane.arrow.schema import COLUMNS, TIMESTAMP
from ariane.arrow.source import Bools, Int64s, fixed, is_all

NEEDS_PROPERTIES = frozenset({"msgId", "tags", "keys", "properties", "uniqueKey"})

_YEAR_1_MS = -62_135_596_800_000
_YEAR_10000_MS = 253_402_300_800_000


class Given(NamedTuple):
    """What columns are made from."""

    rows: Rows
    properties: PropertyColumns
    broker_name: str | None
    unpacked: Unpacked | None


Column = Callable[[Given], pa.Array]


def make_batch(schema: pa.Schema, given: Given) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_MAKERS[name](given) for name in schema.names], schema=schema)


def _number(name: str, field: str | None = None) -> Column:
    kind = COLUMNS[name]
    width = kind.to_pandas_dtype()
    return lambda given: fixed(given.rows.field(field or name, width), kind)


def _store_time(given: Given) -> pa.Array:
    time_ms = given.rows.field("storeTimestamp", np.int64)
    return fixed(time_ms * 1000, TIMESTAMP, _in_calendar(time_ms))


def _born_time(given: Given) -> pa.Array:
    """A producer may have sent any number. One that is no time would be null in every query, and far in the future it
    would be worse: so it counts as born when it was stored."""
    time_ms = given.rows.field("bornTimestamp", np.int64)
    valid = _in_calendar(time_ms)
    if valid is not None:
        time_ms = np.where(valid, time_ms, given.rows.field("storeTimestamp", np.int64))
        valid = _in_calendar(time_ms)
    return fixed(time_ms * 1000, TIMESTAMP, valid)


def _in_calendar(time_ms: Int64s) -> Bools | None:
    """Which of them are times of the years 1 to 9999, that Python and Spark can show; None when all are."""
    if 0 <= np.bitwise_or.reduce(time_ms) < _YEAR_10000_MS:  # has every bit that some time has
        return None
    valid = (time_ms >= _YEAR_1_MS) & (time_ms < _YEAR_10000_MS)
    return None if is_all(valid) else valid


def _broker_name(given: Given) -> pa.Array:
    count = len(given.rows)
    if given.broker_name is None:
        return pa.nulls(count, pa.string())
    name = given.broker_name.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * len(name)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(name * count)])


def _message_ids(given: Given) -> pa.Array:
    unique = given.properties.unique_keys
    return unique if not unique.null_count else pc.coalesce(unique, offset_ids(given.rows))


_MAKERS: Mapping[str, Column] = {
    "topic": lambda given: given.rows.topic_column(),
    "brokerName": _broker_name,
    "queueId": _number("queueId"),
    "queueOffset": _number("queueOffset"),
    "msgId": _message_ids,
    "tags": lambda given: given.properties.tags,
    "keys": lambda given: given.properties.keys,
    "body": lambda given: body_column(given.rows, given.unpacked),
    "bornTimestamp": _born_time,
    "storeTimestamp": _store_time,
    "properties": lambda given: given.properties.map,
    "physicalOffset": lambda given: fixed(given.rows.physical, pa.int64()),
    "sysFlag": _number("sysFlag"),
    "flag": _number("flag"),
    "reconsumeTimes": _number("reconsumeTimes"),
    "bornHost": lambda given: born_hosts(given.rows),
    "storeHost": lambda given: store_hosts(given.rows),
    "preparedTransactionOffset": _number("preparedTransactionOffset"),
    "bodyCRC": _number("bodyCRC"),
    "uniqueKey": lambda given: given.properties.unique_keys,
    "offsetMsgId": lambda given: offset_ids(given.rows),
    "storeSize": _number("storeSize", "size"),
}
assert _MAKERS.keys() == COLUMNS.keys(), "every column can be made"
