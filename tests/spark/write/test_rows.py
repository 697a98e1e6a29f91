"""The fast path of the sink encodes rows to the same bytes as the general path."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import MessageRejected
from ariane.spark.write.rows import (
    KEYS_PER_PREFIX,
    EncodedRows,
    TaskIdentity,
    TaskKeys,
    can_encode,
    encode_rows,
    messages_of,
)
from ariane.wire.record.batch import BatchItem, encode_batch

_WORDS = st.none() | st.text(st.sampled_from("aä€ \x02|"), max_size=4)


def keys() -> TaskKeys:
    return TaskKeys(TaskIdentity("query", "7", 3))


def one_by_one(batch: pa.RecordBatch, task: TaskKeys) -> bytes:
    return encode_batch(BatchItem(message.body, message.properties) for message in messages_of(batch, "topic", task))


def whole(rows: EncodedRows) -> bytes:
    return b"".join(data for _, data in rows.batches(500, 1000))


@settings(deadline=None)  # the first example pays for imports
@given(st.lists(st.tuples(st.binary(max_size=20), _WORDS, _WORDS), min_size=1, max_size=20))
def test_the_fast_path_gives_the_same_bytes_or_leaves_the_rows_to_the_general_path(
    rows: list[tuple[bytes, str | None, str | None]],
) -> None:
    bodies, tags, words = zip(*rows, strict=True)
    batch = pa.record_batch(
        {
            "body": pa.array(bodies, pa.binary()),
            "tags": pa.array(tags, pa.string()),
            "keys": pa.array(words, pa.string()),
        }
    )
    encoded = encode_rows(batch, keys())
    try:
        expected = one_by_one(batch, keys())
    except MessageRejected:
        assert encoded is None
    else:
        assert encoded is None or whole(encoded) == expected


def test_a_slice_of_a_batch_of_texts_is_encoded_as_well() -> None:
    batch = pa.record_batch({"body": pa.array([f"ä{number}" for number in range(100)])}).slice(10, 30)
    encoded = encode_rows(batch, keys())
    assert encoded is not None
    assert whole(encoded) == one_by_one(batch, keys())


def test_unique_keys_continue_over_batches_and_blocks() -> None:
    batch = pa.record_batch({"body": pa.array([b"x"] * 1000)})
    fast, slow = keys(), keys()
    for _ in range(KEYS_PER_PREFIX // 1000 + 2):
        encoded = encode_rows(batch, fast)
        assert encoded is not None
        assert whole(encoded) == one_by_one(batch, slow)


def test_batches_are_as_large_as_allowed() -> None:
    encoded = encode_rows(pa.record_batch({"body": pa.array([b"x" * 100] * 10)}), keys())
    assert encoded is not None
    each = len(encoded.data) // 10
    assert [count for count, _ in encoded.batches(4, 1_000_000)] == [4, 4, 2]
    assert [count for count, _ in encoded.batches(500, each * 3)] == [3, 3, 3, 1]
    assert [count for count, _ in encoded.batches(500, 1)] == [1] * 10


@pytest.mark.parametrize("column", ["shardingKey", "queueId", "properties", "topic"])
def test_other_columns_take_the_general_path(column: str) -> None:
    assert not can_encode(pa.schema([("body", pa.binary()), (column, pa.string())]))


def test_an_array_of_keys_takes_the_general_path() -> None:
    assert not can_encode(pa.schema([("body", pa.binary()), ("keys", pa.list_(pa.string()))]))
