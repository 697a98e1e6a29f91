"""The fast packer of plain records writes the bytes of `pack_record`."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.store.append.draft import Draft
from ariane.wire.record.layout import PLAIN_BYTES, pack_plain_record, pack_record, pack_stored

int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
drafts = st.builds(
    Draft,
    topic=st.just("orders"),
    queue_id=int32,
    body=st.binary(max_size=40),
    properties=st.binary(max_size=40),
    born_timestamp_ms=int64,
    born_host=st.binary(min_size=8, max_size=8),
    flag=int32,
    sys_flag=st.sampled_from([0, 1, 2, 8]),
    reconsume_times=int32,
    prepared_transaction_offset=int64,
)


def plain(draft: Draft, topic: bytes, offsets: tuple[int, int], timestamp_ms: int, host: bytes) -> bytes:
    part = bytes([len(topic)]) + topic
    size = PLAIN_BYTES + len(part) + len(draft.body) + len(draft.properties)
    stored = pack_stored(timestamp_ms, host, 0, 0)
    return b"".join(pack_plain_record(draft, size, draft.body, part, draft.properties, *offsets, stored))


@given(drafts, st.binary(max_size=127), st.tuples(int64, int64), int64, st.binary(min_size=8, max_size=8))
def test_it_writes_the_bytes_of_the_general_packer(
    draft: Draft, topic: bytes, offsets: tuple[int, int], timestamp_ms: int, host: bytes
) -> None:
    queue_offset, physical_offset = offsets
    general = pack_record(
        topic=topic,
        body=draft.body,
        properties=draft.properties,
        queue_id=draft.queue_id,
        flag=draft.flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=draft.sys_flag,
        born_timestamp_ms=draft.born_timestamp_ms,
        born_host=draft.born_host,
        store_timestamp_ms=timestamp_ms,
        store_host=host,
        reconsume_times=draft.reconsume_times,
        prepared_transaction_offset=draft.prepared_transaction_offset,
    )
    assert plain(draft, topic, offsets, timestamp_ms, host) == general


def test_a_field_out_of_its_range_is_a_struct_error() -> None:
    draft = Draft(topic="orders", queue_id=2**31, body=b"", properties=b"", born_timestamp_ms=0, born_host=bytes(8))
    with pytest.raises(struct.error):
        plain(draft, b"orders", (0, 0), 0, bytes(8))
