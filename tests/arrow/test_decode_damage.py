"""Damaged logs: rows and bad records together cover the whole log."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ariane.arrow.decode import decode_records
from ariane.model.ids import PhysicalOffset
from ariane.wire.record.layout import add_checksum, encode, pack_blank
from ariane.wire.record.read import RecordView, verify
from tests.wire.sample_records import MESSAGE, V6

BASE = 1 << 20
COLUMNS = ["physicalOffset", "storeSize"]


def log_of(sizes: list[int]) -> tuple[bytes, list[int]]:
    """A log from BASE on, and where its records begin in it."""
    records: list[bytes] = []
    for number, size in enumerate(sizes):
        physical = PhysicalOffset(BASE + sum(map(len, records)))
        message = replace(MESSAGE, body=bytes([number % 256]) * size, physical_offset=physical)
        records.append(encode(replace(message, born_host=V6) if number % 3 == 1 else message))
    return b"".join(records), [0, *accumulate(map(len, records))]


def rows_and_bad(log: bytes, *, check_crc: bool = False) -> tuple[list[tuple[int, int]], list[tuple[int, int, str]]]:
    result = decode_records(log, columns=COLUMNS, base=BASE, check_crc=check_crc)
    assert result.end == len(log)
    rows = [(row["physicalOffset"] - BASE, row["storeSize"]) for row in result.batch.to_pylist()]
    return rows, [(bad.position - BASE, bad.size, bad.reason) for bad in result.bad]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 200), min_size=1, max_size=30), st.data())
def test_undamaged_records_are_rows_and_the_rest_is_reported(sizes: list[int], data: st.DataObject) -> None:
    log, edges = log_of(sizes)
    damaged = bytearray(log)
    nasty = st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(log) - 1), nasty), max_size=6)):
        damaged[at] = byte
    rows, bad = rows_and_bad(bytes(damaged))
    whole = {start for start, end in pairwise(edges) if damaged[start:end] == log[start:end]}
    assert whole <= {start for start, _ in rows}
    covered = sorted([*rows, *((start, size) for start, size, _ in bad)])
    assert [start for start, _ in covered] == list(accumulate([size for _, size in covered], initial=0))[:-1]
    assert sum(size for _, size in covered) == len(log)


@settings(deadline=None)
@given(st.integers(0, 2), st.integers(0, 400), st.binary(max_size=300))
def test_garbage_hides_no_record(count: int, at: int, garbage: bytes) -> None:
    log, edges = log_of([10, 300, 20])
    record = encode(replace(MESSAGE, physical_offset=PhysicalOffset(BASE + len(log) + len(garbage))))
    rows, bad = rows_and_bad(log + garbage + record)
    assert [start for start, _ in rows] == [*edges[:-1], len(log) + len(garbage)]
    assert sum(size for _, size, _ in bad) == len(garbage)


def test_a_damaged_size_that_covers_the_next_record_does_not_lose_it() -> None:
    log, edges = log_of([10] * 2000)
    damaged = bytearray(log)
    damaged[edges[5] : edges[5] + 4] = (edges[7] - edges[5]).to_bytes(4, "big")
    rows, bad = rows_and_bad(bytes(damaged))
    assert [start for start, _ in rows] == [start for start in edges[:-1] if start != edges[5]]
    assert bad == [(edges[5], edges[6] - edges[5], f"properties of 32 bytes in a record of {edges[7] - edges[5]}")]


def test_a_log_that_is_damaged_everywhere_is_reported_record_by_record() -> None:
    log, edges = log_of([50] * 1000)
    damaged = bytearray(log)
    for start in edges[:-1:2]:
        damaged[start + 4] ^= 0xFF
    rows, bad = rows_and_bad(bytes(damaged))
    assert [start for start, _ in rows] == edges[1:-1:2]
    assert [start for start, _, _ in bad] == edges[:-1:2]


def test_a_record_with_another_physical_offset_is_bad() -> None:
    log, edges = log_of([10, 20, 30])
    rows, bad = rows_and_bad(log[: edges[1]] + log)
    assert rows == [(0, edges[1])]
    assert bad == [(edges[1], len(log), f"a record that belongs at {BASE}: an older or a copied one")]


def test_zeros_in_the_place_of_records_are_reported() -> None:
    log, edges = log_of([10, 20])
    rows, bad = rows_and_bad(log + bytes(1000))
    assert len(rows) == 2
    assert bad == [(edges[2], 1000, "zeros: nothing was written here")]


def test_a_topic_that_is_not_utf8_is_bad_and_the_next_record_is_not() -> None:
    log, edges = log_of([10, 10, 10])
    record = bytearray(log[edges[1] : edges[2]])
    record[record.index(b"\x01T", 100) + 1] = 0xFF
    rows, bad = rows_and_bad(log[: edges[1]] + bytes(record) + log[edges[2] :])
    assert [start for start, _ in rows] == [edges[0], edges[2]]
    assert bad == [(edges[1], edges[2] - edges[1], "a topic that is not UTF-8")]


def test_checksums_are_compared_on_request() -> None:
    log, edges = log_of([100] * 20)
    damaged = bytearray(log)
    damaged[edges[4] + 120] ^= 1
    assert len(rows_and_bad(bytes(damaged))[0]) == 20
    rows, bad = rows_and_bad(bytes(damaged), check_crc=True)
    assert len(rows) == 19
    assert [(start, size) for start, size, _ in bad] == [(edges[4], edges[5] - edges[4])]
    assert "a body whose checksum is" in bad[0][2]


@pytest.mark.parametrize("at", [20, 40])  # a queue offset and a time: the body's checksum does not cover them
def test_the_checksum_of_a_whole_record_is_compared_too(at: int) -> None:
    properties = {"TAGS": "a", "__CRC32#": "0" * 10}
    record = add_checksum(encode(replace(MESSAGE, properties=properties)))
    assert isinstance(verify(record), RecordView)
    damaged = bytearray(record)
    damaged[at] ^= 1
    result = decode_records(record + bytes(damaged) + record, columns=COLUMNS, check_crc=True)
    assert result.batch.num_rows == 2
    assert "a record whose checksum is" in result.bad[0].reason


def test_a_blank_with_too_large_a_size_ends_with_the_buffer() -> None:
    log, edges = log_of([10])
    result = decode_records(log + pack_blank(10_000), columns=COLUMNS, base=BASE)
    assert (result.batch.num_rows, result.bad, result.end) == (1, [], edges[1] + 8)


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_decoded_without_an_exception(garbage: bytes) -> None:
    result = decode_records(garbage, columns=COLUMNS)
    assert result.end == len(garbage)
    assert sum(bad.size for bad in result.bad) <= len(garbage)
