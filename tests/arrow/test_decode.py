"""The batch decoder compared with the row decoder: the same messages, whatever the records look like."""

from itertools import accumulate

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ariane.arrow.decode import Decoded, decode_records
from ariane.arrow.schema import COLUMNS, DEFAULT_COLUMNS, MAY_BE_NULL, message_schema
from ariane.errors import SettingsError
from ariane.model.ids import PhysicalOffset
from ariane.model.message import StoredMessage
from ariane.wire.compression import compress
from ariane.wire.properties import encode_properties
from ariane.wire.record.batch import BatchItem, encode_batch
from ariane.wire.record.layout import RECORD_BYTES_MIN, encode, pack_blank
from ariane.wire.record.read import decode_all
from ariane.wire.sys_flag import Compression, SysFlag, with_compression
from tests.arrow.expected_rows import expected_row, rows_of
from tests.wire.sample_records import MESSAGE, V6, messages

ALL = tuple(COLUMNS)
TIMES = {"bornTimestamp", "storeTimestamp"}
"""Null where both are invalid, which no broker writes."""
INNER_BATCH = int(SysFlag.INNER_BATCH | SysFlag.NEEDS_UNWRAP)


def ordinary(message: StoredMessage) -> StoredMessage:
    """Any message except one that holds a batch or has a negative offset."""
    physical = PhysicalOffset(message.physical_offset & (1 << 63) - 1)
    return replace(message, sys_flag=message.sys_flag & ~INNER_BATCH, physical_offset=physical)


LISTS = st.lists(messages.map(ordinary), max_size=12)


def decoded(*parts: bytes, **options: object) -> Decoded:
    return decode_records(b"".join(parts), columns=ALL, **options)  # type: ignore[arg-type]


def log_of(sent: list[StoredMessage]) -> bytes:
    """A commit log that begins at 0."""
    records, position = [], 0
    for message in sent:
        records.append(encode(replace(message, physical_offset=PhysicalOffset(position))))
        position += len(records[-1])
    return b"".join(records)


@settings(deadline=None)
@given(LISTS)
def test_every_column_equals_that_of_the_row_decoder(sent: list[StoredMessage]) -> None:
    response = b"".join(map(encode, sent))
    result = decoded(response, broker_name="broker-a")
    assert rows_of(result.batch) == [expected_row(message, "broker-a") for message in decode_all(response)]
    assert result.batch.schema.equals(message_schema(ALL))
    assert {name for name in ALL if result.batch.column(name).null_count} <= MAY_BE_NULL | TIMES
    assert (result.bad, result.end) == ([], len(response))


@settings(deadline=None)
@given(LISTS, st.lists(st.sampled_from(ALL), min_size=1, unique=True))
def test_any_selection_of_columns_equals_that_part_of_all_columns(
    sent: list[StoredMessage], columns: list[str]
) -> None:
    response = b"".join(map(encode, sent))
    result = decode_records(response, columns=columns).batch
    assert result.schema.equals(message_schema(columns))
    expected = [expected_row(message) for message in decode_all(response)]
    assert rows_of(result) == [{name: row[name] for name in columns} for row in expected]


def test_a_log_of_many_records_is_followed_in_parallel_segments() -> None:
    sent = [replace(MESSAGE, body=bytes(number * 7919 % 700), queue_id=number % 4) for number in range(5000)]
    log = log_of(sent)
    result = decoded(log, base=0)
    assert rows_of(result.batch) == [expected_row(message) for message in decode_all(log)]


@pytest.mark.parametrize("fake", [encode(MESSAGE), encode(MESSAGE)[4:8] * 200])
def test_bodies_that_look_like_records_are_not_decoded_as_records(fake: bytes) -> None:
    log = log_of([replace(MESSAGE, body=fake) for _ in range(3000)])
    result = decoded(log, base=0)
    assert result.batch.num_rows == 3000
    assert rows_of(result.batch) == [expected_row(message) for message in decode_all(log)]


def test_blank_records_are_skipped() -> None:
    blank = pack_blank(100) + bytes(92)
    record = encode(MESSAGE)
    result = decoded(record, blank, record, pack_blank(8))
    assert (result.batch.num_rows, result.bad) == (2, [])


def test_an_empty_buffer_is_an_empty_batch_with_all_columns() -> None:
    result = decoded(b"")
    assert (result.batch.num_rows, result.bad, result.end) == (0, [], 0)
    assert result.batch.schema.equals(message_schema(ALL))


def test_a_buffer_may_be_anything_that_holds_bytes() -> None:
    record = encode(MESSAGE)
    for buffer in (record, bytearray(record), memoryview(record), pa.py_buffer(record)):
        assert decode_records(buffer, columns=["body"]).batch.to_pylist() == [{"body": b"hi"}]


def test_bodies_are_not_decompressed_if_decompression_is_off() -> None:
    compressed = compress(b"x" * 500, Compression.ZSTD)
    message = replace(MESSAGE, body=compressed, sys_flag=with_compression(0, Compression.ZSTD))
    response = encode(MESSAGE) + encode(message) + encode(MESSAGE)
    bodies = decode_records(response, columns=["body"]).batch.column("body").to_pylist()
    assert bodies == [b"hi", b"x" * 500, b"hi"]
    raw = decode_records(response, columns=["body"], decompress=False).batch.column("body").to_pylist()
    assert raw == [b"hi", compressed, b"hi"]


def test_a_body_that_cannot_be_decompressed_is_bad_and_the_others_are_rows() -> None:
    damaged = replace(MESSAGE, body=b"no zlib", sys_flag=with_compression(0, Compression.ZLIB))
    first, second = encode(MESSAGE), encode(damaged)
    result = decode_records(first + second + first, columns=["tags", "body"])
    assert result.batch.num_rows == 2
    assert [(bad.position, bad.size) for bad in result.bad] == [(len(first), len(second))]
    assert "zlib body of 7 bytes is damaged" in result.bad[0].reason
    assert decode_records(first + second + first, columns=["tags"]).batch.num_rows == 3  # the body is not selected


def test_a_batch_ends_before_its_decompressed_bodies_get_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ariane.arrow.body_columns.DECOMPRESSED_BYTES_MAX", 2500)
    monkeypatch.setattr("ariane.arrow.decode._BATCH_BYTES_MAX", 5000)
    body = compress(bytes(1000), Compression.ZLIB)
    record = encode(replace(MESSAGE, body=body, sys_flag=with_compression(0, Compression.ZLIB)))
    response, counts, start = record * 10, [], 0
    while start < len(response):
        result = decode_records(response, columns=["body"], start=start)
        counts.append(result.batch.num_rows)
        start = result.end
    assert counts == [4, 4, 2]


def test_a_record_that_holds_a_batch_becomes_its_messages() -> None:
    items = [BatchItem(f"body {n}".encode(), encode_properties({"TAGS": f"t{n}"}), flag=n) for n in range(3)]
    outer = replace(MESSAGE, body=encode_batch(items), sys_flag=INNER_BATCH, born_host=V6)
    plain = encode(MESSAGE)
    result = decode_records(
        plain + encode(outer) + plain, columns=["queueOffset", "body", "tags", "flag", "sysFlag", "physicalOffset"]
    )
    inner = [(7 + n, f"body {n}".encode(), f"t{n}", n, 16, 4096) for n in range(3)]
    first = (7, b"hi", "TagA", 5, 0, 4096)
    assert [tuple(row.values()) for row in result.batch.to_pylist()] == [first, *inner, first]
    assert result.bad == []


def test_a_batch_that_is_broken_inside_is_one_bad_record() -> None:
    plain = encode(MESSAGE)
    result = decode_records(plain + encode(replace(MESSAGE, sys_flag=INNER_BATCH)) + plain, columns=["body"])
    assert result.batch.num_rows == 2
    assert [bad.position for bad in result.bad] == [len(plain)]
    assert "the batch is broken at byte 0" in result.bad[0].reason


@settings(deadline=None)
@given(st.integers(0, 5), st.data())
def test_a_buffer_truncated_inside_a_record_is_decoded_up_to_it(count: int, data: st.DataObject) -> None:
    record = encode(MESSAGE)
    cut = data.draw(st.integers(0, len(record) - 1))
    result = decode_records(record * count + record[:cut], columns=["body"], partial=True)
    assert (result.batch.num_rows, result.bad, result.end) == (count, [], count * len(record))


def test_without_partial_a_truncated_record_is_bad() -> None:
    record = encode(MESSAGE)
    result = decode_records(record + record[:50], columns=["body"])
    assert (result.batch.num_rows, result.end) == (1, len(record) + 50)
    assert [(bad.position, bad.size) for bad in result.bad] == [(len(record), 50)]
    assert result.bad[0].reason == f"50 bytes of a record of at least {len(record)}"


def test_without_a_selection_a_batch_has_the_default_columns() -> None:
    assert decode_records(encode(MESSAGE)).batch.schema.names == list(DEFAULT_COLUMNS)
    with_map = decode_records(encode(MESSAGE), include_properties=True).batch
    assert with_map.schema.names == [*DEFAULT_COLUMNS, "properties"]


def test_an_unknown_column_is_rejected_with_the_nearest_name() -> None:
    with pytest.raises(SettingsError, match="did you mean 'storeTimestamp'"):
        message_schema(["storeTimestmp"])
    with pytest.raises(SettingsError, match="selected twice"):
        message_schema(["body", "body"])
    with pytest.raises(SettingsError, match="no column is selected"):
        message_schema([])


def test_every_record_is_longer_than_what_is_gathered_of_it() -> None:
    """So a gather never leaves the buffer, however near to its end a record is."""
    smallest = encode(replace(MESSAGE, topic="", body=b"", properties={}))
    assert len(smallest) == RECORD_BYTES_MIN
    assert decode_records(smallest).batch.num_rows == 1
    positions = list(accumulate([len(smallest)] * 3))
    assert decode_records(smallest * 3).end == positions[-1]
