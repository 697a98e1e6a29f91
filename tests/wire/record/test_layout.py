from ipaddress import IPv6Address
from typing import Any

import pytest
from msgspec.structs import replace

from ariane.errors import RecordError
from ariane.model.message import HostPort
from ariane.wire.record.layout import BLANK_MAGIC, MAGIC_V1, MAGIC_V2, encode, pack_blank, pack_record
from tests.wire.sample_records import MESSAGE, V4, V6

PARTS: dict[str, Any] = {
    "topic": b"T",
    "body": b"hi",
    "properties": b"TAGS\x01TagA\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01U\x02",
    "flag": 5,
    "queue_id": 3,
    "queue_offset": 7,
    "physical_offset": 4096,
    "sys_flag": 0,
    "born_timestamp_ms": 1_600_000_000_000,
    "born_host": bytes.fromhex("0A000001 00001388"),
    "store_timestamp_ms": 1_600_000_000_123,
    "store_host": bytes.fromhex("C0A8010A 00002A9F"),
    "reconsume_times": 2,
    "prepared_transaction_offset": 99,
}

# Written manually from the layout, field by field.
RECORD = (
    bytes.fromhex(
        "0000007E DAA320A7 58932AAC 00000003 00000005"
        "0000000000000007 0000000000001000 00000000"
        "00000174876E8000 0A000001 00001388"
        "00000174876E807B C0A8010A 00002A9F"
        "00000002 0000000000000063"
        "00000002 6869 01 54 0020"
    )
    + PARTS["properties"]
)


def test_a_record_is_laid_out_as_the_drawing_says() -> None:
    assert pack_record(**PARTS) == RECORD


def test_a_message_and_its_parts_give_the_same_record() -> None:
    assert encode(MESSAGE) == RECORD


def test_a_body_may_be_a_view_of_a_frame() -> None:
    assert pack_record(**PARTS | {"body": memoryview(b"..hi..")[2:4]}) == RECORD


def test_an_ipv4_record_has_91_bytes_besides_body_topic_and_properties() -> None:
    assert len(RECORD) == 91 + len(PARTS["body"]) + len(PARTS["topic"]) + len(PARTS["properties"])


@pytest.mark.parametrize(("length", "magic", "prefix"), [(127, MAGIC_V1, "7F"), (128, MAGIC_V2, "0080")])
def test_only_a_topic_of_more_than_127_bytes_makes_a_v2_record(length: int, magic: int, prefix: str) -> None:
    record = encode(replace(MESSAGE, topic="t" * length))
    assert int.from_bytes(record[4:8], "big") == magic
    assert record[90:].startswith(bytes.fromhex(prefix) + b"t" * length)


@pytest.mark.parametrize(
    ("born", "store", "bits", "growth"), [(V4, V4, 0, 0), (V6, V4, 0x10, 12), (V4, V6, 0x20, 12), (V6, V6, 0x30, 24)]
)
def test_the_hosts_decide_the_ipv6_bits_whatever_they_were(
    born: HostPort, store: HostPort, bits: int, growth: int
) -> None:
    for claimed in (0x01, 0x11, 0x21, 0x31):
        record = encode(replace(MESSAGE, born_host=born, store_host=store, sys_flag=claimed))
        assert int.from_bytes(record[36:40], "big") == 0x01 | bits
        assert len(record) == len(RECORD) + growth


def test_trap_15_a_mapped_born_host_makes_an_ipv4_record() -> None:
    mapped = HostPort(IPv6Address(f"::ffff:{MESSAGE.born_host.ip}"), MESSAGE.born_host.port)
    assert encode(replace(MESSAGE, born_host=mapped, sys_flag=0x10)) == RECORD


def test_an_empty_body_has_the_checksum_zero() -> None:
    assert encode(replace(MESSAGE, body=b""))[8:12] == bytes(4)


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("properties", b"x" * 32768, "32768 bytes, at most 32767"),
        ("topic", b"x" * 32768, "the topic takes 32768 bytes"),
        ("queue_id", 2**31, "out of its range"),
        ("physical_offset", 2**63, "out of its range"),
        ("sys_flag", 2**31, "out of its range"),
        ("born_host", b"12345", "use encode_host"),
        ("store_host", b"", "use encode_host"),
    ],
)
def test_a_part_that_does_not_fit_is_refused(part: str, value: object, words: str) -> None:
    with pytest.raises(RecordError, match=words):
        pack_record(**PARTS | {part: value})


def test_a_topic_that_utf8_cannot_express_is_refused() -> None:
    with pytest.raises(RecordError, match="surrogate"):
        encode(replace(MESSAGE, topic="t\ud800"))


def test_a_blank_record_tells_how_much_of_the_file_is_left() -> None:
    assert pack_blank(164) == (164).to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big")


def test_a_file_must_keep_room_for_its_blank_record() -> None:
    with pytest.raises(RecordError, match="needs 8 bytes, 7 are left"):
        pack_blank(7)
