"""The columns of a message and their types, which Spark has too, so that a batch passes through unchanged.

| column | type | |
|---|---|---|
| topic, brokerName | string | brokerName is null when the caller does not give it: records do not hold it |
| queueId, queueOffset | int, long | |
| msgId | string | the unique key that the producer gave, else the offset id: what consumers print |
| tags | string | null when there is none |
| keys | list of strings | empty when there are none |
| body | binary | decompressed, unless decompression is off |
| bornTimestamp | timestamp in UTC | storeTimestamp, if a producer sent what is outside the years 1 to 9999 |
| storeTimestamp | timestamp in UTC | null outside those years, which no broker writes |
| properties | map of strings | |
| all others | | as in the record; hosts as `address:port` |
"""

from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache

import pyarrow as pa

from ariane.errors import SettingsError

TIMESTAMP = pa.timestamp("us", tz="UTC")
KEYS = pa.list_(pa.field("element", pa.string()))
PROPERTIES = pa.map_(pa.string(), pa.string())

COLUMNS: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "brokerName": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "msgId": pa.string(),
    "tags": pa.string(),
    "keys": KEYS,
    "body": pa.binary(),
    "bornTimestamp": TIMESTAMP,
    "storeTimestamp": TIMESTAMP,
    "properties": PROPERTIES,
    "physicalOffset": pa.int64(),
    "sysFlag": pa.int32(),
    "flag": pa.int32(),
    "reconsumeTimes": pa.int32(),
    "bornHost": pa.string(),
    "storeHost": pa.string(),
    "preparedTransactionOffset": pa.int64(),
    "bodyCRC": pa.int32(),
    "uniqueKey": pa.string(),
    "offsetMsgId": pa.string(),
    "storeSize": pa.int32(),
}
"""Every column that can be selected."""

MAY_BE_NULL = frozenset({"brokerName", "tags", "uniqueKey"})
"""Every other column has a value for every message that a broker has stored; these schemas do not guarantee it."""

PROPERTIES_COLUMN = "properties"

DEFAULT_COLUMNS = (
    "topic",
    "brokerName",
    "queueId",
    "queueOffset",
    "msgId",
    "tags",
    "keys",
    "body",
    "bornTimestamp",
    "storeTimestamp",
)
"""The columns without a selection. Not the properties: they halve the speed."""


def message_schema(columns: Sequence[str] | None = None, *, include_properties: bool = False) -> pa.Schema:
    """The schema of batches with these columns, in this order; SettingsError for an unknown column."""
    return _schema(None if columns is None else tuple(columns), include_properties)


@lru_cache(maxsize=256)
def _schema(columns: tuple[str, ...] | None, include_properties: bool) -> pa.Schema:
    names = DEFAULT_COLUMNS if columns is None else columns
    if include_properties and PROPERTIES_COLUMN not in names:
        names = (*names, PROPERTIES_COLUMN)
    _check(names)
    return pa.schema([pa.field(name, COLUMNS[name]) for name in names])


def _check(names: tuple[str, ...]) -> None:
    if not names:
        raise SettingsError("no column is selected: name at least one, for example queueOffset to count messages")
    for number, name in enumerate(names):
        if name not in COLUMNS:
            near = get_close_matches(name, COLUMNS, n=1, cutoff=0.0)[0]
            raise SettingsError(f"there is no column {name!r}: did you mean {near!r}? All: {', '.join(COLUMNS)}")
        if name in names[:number]:
            raise SettingsError(f"column {name!r} is selected twice: name it once")
