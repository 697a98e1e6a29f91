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
from ariane.arrow.source import Bools, fixed

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


def _time(name: str) -> Column:
    def column(given: Given) -> pa.Array:
        time_ms = given.rows.field(name, np.int64)
        valid: Bools | None = None
        if not 0 <= np.bitwise_or.reduce(time_ms) < _YEAR_10000_MS:  # has every bit that some time has
            valid = (time_ms >= _YEAR_1_MS) & (time_ms < _YEAR_10000_MS)
        return fixed(time_ms * 1000, TIMESTAMP, valid)

    return column


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
    "bornTimestamp": _time("bornTimestamp"),
    "storeTimestamp": _time("storeTimestamp"),
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
