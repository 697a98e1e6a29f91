"""The types of the columns: users and Spark rely on them, so they are repeated here."""

import pyarrow as pa
import pytest
from msgspec.structs import replace

from ariane.arrow.decode import decode_records
from ariane.arrow.schema import COLUMNS, DEFAULT_COLUMNS, MAY_BE_NULL, message_schema
from ariane.wire.record.layout import encode
from tests.wire.sample_records import MESSAGE

TYPES = {
    "topic": "string",
    "brokerName": "string",
    "queueId": "int32",
    "queueOffset": "int64",
    "msgId": "string",
    "tags": "string",
    "keys": "list<element: string>",
    "body": "binary",
    "bornTimestamp": "timestamp[us, tz=UTC]",
    "storeTimestamp": "timestamp[us, tz=UTC]",
    "properties": "map<string, string>",
    "physicalOffset": "int64",
    "sysFlag": "int32",
    "flag": "int32",
    "reconsumeTimes": "int32",
    "bornHost": "string",
    "storeHost": "string",
    "preparedTransactionOffset": "int64",
    "bodyCRC": "int32",
    "uniqueKey": "string",
    "offsetMsgId": "string",
    "storeSize": "int32",
}


def test_every_column_has_its_type() -> None:
    assert {name: str(kind) for name, kind in COLUMNS.items()} == TYPES


def test_the_default_columns_are_those_of_a_message_without_its_properties() -> None:
    assert message_schema(None, include_properties=False).names == list(DEFAULT_COLUMNS) == list(TYPES)[:10]
    assert message_schema(None, include_properties=True).names == list(TYPES)[:11]
    assert message_schema(["properties"], include_properties=True).names == ["properties"]


@pytest.mark.parametrize("column", TYPES)
@pytest.mark.parametrize("response", [b"", encode(MESSAGE)], ids=["empty", "one"])
def test_a_batch_has_exactly_the_declared_schema(column: str, response: bytes) -> None:
    batch = decode_records(response, columns=[column]).batch
    assert batch.schema.equals(message_schema([column]), check_metadata=True)
    assert batch.column(0).type == pa.schema([pa.field(column, COLUMNS[column])]).field(0).type
    assert batch.schema.field(0).nullable


def test_only_these_columns_can_be_null() -> None:
    assert {"brokerName", "tags", "uniqueKey"} == MAY_BE_NULL
    bare = replace(MESSAGE, properties={}, born_timestamp_ms=2**62)
    batch = decode_records(encode(bare), columns=list(TYPES)).batch
    assert {name for name in TYPES if batch.column(name).null_count} == MAY_BE_NULL
    assert batch.column("bornTimestamp") == batch.column("storeTimestamp")


def test_a_store_time_that_no_broker_writes_is_null() -> None:
    damaged = replace(MESSAGE, store_timestamp_ms=-(2**62))
    batch = decode_records(encode(damaged), columns=["bornTimestamp", "storeTimestamp"]).batch
    assert [batch.column(name).null_count for name in batch.schema.names] == [0, 1]
