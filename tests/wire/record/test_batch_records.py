"""Records packed together are those that would be packed one by one."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import RecordError
from ariane.wire.record.batch import RecordBatch, RecordColumns, SharedFields
from ariane.wire.record.layout import pack_record

V4, V6 = b"\x7f\0\0\1\0\0\x2a\x9f", bytes(15) + b"\1\0\0\x2a\x9f"
hosts = st.sampled_from([V4, V6])
longs = st.integers(0, 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
messages = st.lists(st.tuples(st.binary(max_size=60), st.binary(max_size=60), ints), min_size=1, max_size=8)
shared_fields = st.builds(
    SharedFields,
    topic=st.binary(min_size=1, max_size=20) | st.just(b"t" * 127) | st.just(b"t" * 128),
    queue_id=ints,
    sys_flag=st.integers(0, 0xFF),
    born_timestamp_ms=longs,
    born_host=hosts,
    store_host=hosts,
    reconsume_times=ints,
    properties_end=st.sampled_from([b"", b"\x02"]),
)


def columns(batch: list[tuple[bytes, bytes, int]]) -> RecordColumns:
    return RecordColumns(*map(list, zip(*batch, strict=True)))


def one_by_one(
    batch: list[tuple[bytes, bytes, int]], shared: SharedFields, begin: int, queue_offset: int
) -> list[bytes]:
    common = {name: value for name, value in shared._asdict().items() if name != "properties_end"}
    records: list[bytes] = []
    for body, text, flag in batch:
        records.append(
            pack_record(
                **common,
                body=body,
                properties=text + shared.properties_end,
                flag=flag,
                queue_offset=queue_offset + len(records),
                physical_offset=begin + sum(map(len, records)),
                store_timestamp_ms=1_700_000_000_000,
            )
        )
    return records


@settings(deadline=None)
@given(messages, shared_fields, st.integers(0, 2**40), st.integers(0, 2**40))
def test_records_packed_together_are_those_packed_one_by_one(
    batch: list[tuple[bytes, bytes, int]], shared: SharedFields, begin: int, queue_offset: int
) -> None:
    expected = one_by_one(batch, shared, begin, queue_offset)
    together = RecordBatch(columns(batch), shared)
    data, offsets = together.pack(begin, queue_offset, 1_700_000_000_000)
    assert data == b"".join(expected)
    assert together.sizes == [len(record) for record in expected]
    assert together.size == len(data)
    assert offsets == [begin + sum(map(len, expected[:number])) for number in range(len(expected))]


def plain(**changes: Any) -> SharedFields:
    return SharedFields(b"orders", 0, 0, 1, V4, V4)._replace(**changes)


@pytest.mark.parametrize(
    ("batch", "shared", "reason"),
    [
        ((b"x", b"", 2**31), plain(), "out of its range"),
        ((b"x", b"", 0), plain(queue_id=2**31), "out of its range"),
        ((b"x", b"", 0), plain(born_timestamp_ms=2**63), "out of its range"),
        ((b"x", bytes(32768), 0), plain(), "32768 bytes, at most 32767"),
        ((b"x", bytes(32767), 0), plain(properties_end=b"\x02"), "32768 bytes, at most 32767"),
    ],
)
def test_a_field_out_of_its_range_is_refused(
    batch: tuple[bytes, bytes, int], shared: SharedFields, reason: str
) -> None:
    with pytest.raises(RecordError, match=reason):
        RecordBatch(columns([(b"good", b"", 0), batch]), shared).pack(0, 0, 1)


@pytest.mark.parametrize(
    ("shared", "reason"),
    [(plain(born_host=b"123"), "use encode_host"), (plain(topic=bytes(32768)), "topic takes 32768 bytes")],
)
def test_a_host_or_topic_of_no_legal_length_is_refused(shared: SharedFields, reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        RecordBatch(columns([(b"x", b"", 0)]), shared)
