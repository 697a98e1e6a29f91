"""The expected row of a message, from the row decoder."""

from typing import Any

import pyarrow as pa

from ariane.model.message import StoredMessage
from ariane.wire.compression import decompress
from ariane.wire.host import encode_host
from ariane.wire.message_id import offset_message_id

UNPACKED_MAX = 1 << 20
YEAR_1_MS, YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000


def expected_row(message: StoredMessage, broker_name: str | None = None) -> dict[str, Any]:
    offset_id = offset_message_id(encode_host(message.store_host), message.physical_offset)
    born, stored = _time(message.born_timestamp_ms), _time(message.store_timestamp_ms)
    return {
        "topic": message.topic,
        "brokerName": broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.unique_key or offset_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "body": decompress(message.body, message.sys_flag, UNPACKED_MAX),
        "bornTimestamp": stored if born is None else born,
        "storeTimestamp": stored,
        "properties": list(message.properties.items()),
        "physicalOffset": message.physical_offset,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "reconsumeTimes": message.reconsume_times,
        "bornHost": str(message.born_host),
        "storeHost": str(message.store_host),
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCRC": message.body_crc,
        "uniqueKey": message.unique_key,
        "offsetMsgId": offset_id,
        "storeSize": message.stored_size,
    }


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch, with times in microseconds since 1970."""
    batch.validate(full=True)
    columns = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist()  # type: ignore[no-any-return]


def _time(time_ms: int) -> int | None:
    return time_ms * 1000 if YEAR_1_MS <= time_ms < YEAR_10000_MS else None
