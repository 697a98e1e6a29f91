"""The checksum over a whole record: whatever bit flips, it is seen."""

import pytest

from ariane.wire.hashes import crc32
from ariane.wire.record.layout import CHECKSUM_BYTES, add_checksum, has_checksum, pack_record, with_checksum_room
from ariane.wire.record.read import BrokenRecord, RecordView, verify


def with_checksum(properties: bytes = b"TAGS\x01a\x02", body: bytes = b"body") -> bytes:
    host = bytes([127, 0, 0, 1, 0, 0, 0, 1])
    return add_checksum(
        pack_record(
            topic=b"orders", body=body, properties=with_checksum_room(properties), queue_id=1, flag=7, queue_offset=3,
            physical_offset=4, sys_flag=0, born_timestamp_ms=5, born_host=host, store_timestamp_ms=6, store_host=host,
        )
    )  # fmt: skip


def test_every_flipped_bit_of_a_record_with_a_checksum_is_seen() -> None:
    record = bytearray(with_checksum())
    assert isinstance(verify(record), RecordView)
    for position in range(len(record)):
        for bit in range(8):
            record[position] ^= 1 << bit
            name_is_hit = len(record) - CHECKSUM_BYTES <= position < len(record) - CHECKSUM_BYTES + len(b"__CRC32#\x01")
            found = verify(record)
            if not name_is_hit:  # a checksum whose own name is gone is a property; everything else is still as written
                assert isinstance(found, BrokenRecord), (position, bit)
            record[position] ^= 1 << bit


@pytest.mark.parametrize("properties", [b"", b"TAGS\x01a", b"TAGS\x01a\x02"], ids=["none", "open end", "closed end"])
def test_the_other_properties_are_read_as_before(properties: bytes) -> None:
    view = verify(with_checksum(properties))
    assert isinstance(view, RecordView)
    properties_read = view.properties()
    assert len(properties_read.pop("__CRC32#")) == 10
    assert properties_read == ({"TAGS": "a"} if properties else {})


def test_the_digits_stand_lowest_first_as_apache_writes_them() -> None:
    record = with_checksum()
    number = crc32(record[:-CHECKSUM_BYTES])
    assert record[-11:-1].decode()[::-1] == f"{number:010d}"


def test_a_body_of_no_bytes_is_covered_too() -> None:
    record = bytearray(with_checksum(body=b""))
    record[16] ^= 1  # the user's flag
    assert isinstance(verify(record), BrokenRecord)


def test_a_record_without_a_checksum_is_left_alone() -> None:
    assert not has_checksum(b"TAGS\x01a\x02")
