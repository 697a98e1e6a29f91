import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ariane.errors import RecordError
from ariane.model.message import StoredMessage
from ariane.wire.record.layout import BLANK_MAGIC, encode, pack_blank
from ariane.wire.record.read import BlankRecord, BrokenRecord, DispatchFacts, Fault, RecordView, Verdict, verify
from tests.wire.sample_records import MESSAGE, V6, damaged_records, messages

RECORD = encode(MESSAGE)
BODY_LENGTH_AT = 84
TOPIC_LENGTH_AT = 90
PROPERTIES_LENGTH_AT = 92


def with_bytes(record: bytes, position: int, data: bytes) -> bytes:
    return record[:position] + data + record[position + len(data) :]


def int32(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def problem_of(verdict: Verdict) -> tuple[Fault, int]:
    assert isinstance(verdict, BrokenRecord)
    return verdict.fault, verdict.size


@settings(deadline=None)
@given(messages, st.binary(max_size=10), st.binary(max_size=10))
def test_a_view_tells_what_was_stored_without_decoding_the_body(
    message: StoredMessage, before: bytes, behind: bytes
) -> None:
    record = encode(message)
    view = verify(before + record + behind, len(before))
    assert isinstance(view, RecordView)
    assert (view.position, view.size) == (len(before), len(record))
    assert (view.topic, view.queue_id, view.queue_offset) == (message.topic, message.queue_id, message.queue_offset)
    assert view.physical_offset == message.physical_offset
    assert view.store_timestamp_ms == message.store_timestamp_ms
    assert view.sys_flag & ~0x30 == message.sys_flag & ~0x30
    assert view.properties() == message.properties
    assert view.body(before + record + behind) == message.body


def test_a_view_gives_the_facts_that_queues_and_index_keep() -> None:
    view = verify(RECORD)
    assert isinstance(view, RecordView)
    assert view.dispatch_facts() == DispatchFacts(2598919, "U", ["k1", "k2"])


def test_a_message_without_properties_has_no_facts() -> None:
    view = verify(encode(replace(MESSAGE, properties={})))
    assert isinstance(view, RecordView)
    assert view.dispatch_facts() == DispatchFacts(0, None, ())


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_type_can_be_verified(kind: type[bytes] | type[bytearray] | type[memoryview]) -> None:
    assert verify(kind(RECORD)) == verify(RECORD)


def test_a_blank_record_is_the_end_of_its_file() -> None:
    assert verify(pack_blank(500) + b"old bytes") == BlankRecord(0, 500)


def test_a_blank_record_may_be_all_that_is_left() -> None:
    assert verify(RECORD + pack_blank(8), len(RECORD)) == BlankRecord(len(RECORD), 8)


def test_a_blank_record_that_leads_nowhere_is_broken() -> None:
    assert problem_of(verify(int32(7) + BLANK_MAGIC.to_bytes(4, "big"))) == (Fault.BAD_SIZE, 0)


def test_zeros_are_distinguished_from_damage() -> None:
    assert problem_of(verify(bytes(500))) == (Fault.EMPTY, 0)


def test_an_unknown_magic_is_no_record() -> None:
    assert problem_of(verify(with_bytes(RECORD, 4, b"\xda\xa3\x20\xa8"))) == (Fault.BAD_MAGIC, 0)


@pytest.mark.parametrize("length", range(len(RECORD)))
def test_a_record_cut_at_any_byte_is_torn(length: int) -> None:
    assert problem_of(verify(RECORD[:length])) == (Fault.TORN, 0)
    assert problem_of(verify(RECORD, end=length)) == (Fault.TORN, 0)


@pytest.mark.parametrize("position", [-1, -len(RECORD), len(RECORD), len(RECORD) + 100])
def test_a_position_outside_the_buffer_is_torn(position: int) -> None:
    assert problem_of(verify(RECORD, position)) == (Fault.TORN, 0)


@pytest.mark.parametrize("size", [-1, 0, 90, -(2**31)])
def test_a_size_that_no_record_has_is_broken(size: int) -> None:
    assert problem_of(verify(with_bytes(RECORD, 0, int32(size)))) == (Fault.BAD_SIZE, 0)


def test_a_record_larger_than_the_limit_is_broken() -> None:
    assert isinstance(verify(RECORD, size_max=len(RECORD)), RecordView)
    assert problem_of(verify(RECORD, size_max=len(RECORD) - 1)) == (Fault.BAD_SIZE, 0)


@pytest.mark.parametrize(
    ("position", "data"),
    [
        (0, int32(len(RECORD) - 1)),
        (BODY_LENGTH_AT, int32(-1)),
        (BODY_LENGTH_AT, int32(2**31 - 1)),
        (BODY_LENGTH_AT, int32(len(RECORD) - 88)),
        (TOPIC_LENGTH_AT, b"\x80"),
        (TOPIC_LENGTH_AT, b"\x7f"),
        (TOPIC_LENGTH_AT, b"\x00"),
        (PROPERTIES_LENGTH_AT, b"\xff\xff"),
        (PROPERTIES_LENGTH_AT, b"\x00\x00"),
        (PROPERTIES_LENGTH_AT, b"\x7f\xff"),
        (36, int32(0x30)),  # IPv6 bits over IPv4 hosts move every length
    ],
)
def test_lengths_that_do_not_add_up_are_broken_but_can_be_skipped(position: int, data: bytes) -> None:
    broken = with_bytes(RECORD, position, data)
    fault, size = problem_of(verify(broken))
    assert fault is Fault.BAD_LENGTHS
    assert size == int.from_bytes(broken[:4], "big")


def test_ipv6_hosts_in_a_record_too_short_for_them_are_broken() -> None:
    smallest = encode(replace(MESSAGE, topic="", body=b"", properties={}))
    assert len(smallest) == 91
    assert problem_of(verify(with_bytes(smallest, 36, int32(0x30)))) == (Fault.BAD_LENGTHS, 91)


def test_a_negative_topic_length_in_a_v2_record_is_broken() -> None:
    record = encode(replace(MESSAGE, topic="t" * 200, born_host=V6))
    assert isinstance(verify(record), RecordView)
    assert problem_of(verify(with_bytes(record, 102, b"\xff\xff")))[0] is Fault.BAD_LENGTHS


def test_a_changed_body_is_found_by_its_checksum_unless_that_is_not_wanted() -> None:
    changed = with_bytes(RECORD, 88, b"H")
    assert problem_of(verify(changed)) == (Fault.BAD_CRC, len(RECORD))
    assert isinstance(verify(changed, check_body_crc=False), RecordView)


def test_the_checksum_of_an_empty_body_is_not_looked_at() -> None:
    record = encode(replace(MESSAGE, body=b""))
    assert isinstance(verify(with_bytes(record, 8, b"\x01\x02\x03\x04")), RecordView)


def test_a_topic_that_is_not_utf8_is_broken() -> None:
    assert problem_of(verify(with_bytes(RECORD, 91, b"\xff"))) == (Fault.BAD_TEXT, len(RECORD))


def test_odd_properties_do_not_make_a_record_broken() -> None:
    view = verify(with_bytes(RECORD, 94, b"\xff"))
    assert isinstance(view, RecordView)
    with pytest.raises(RecordError, match="not UTF-8"):
        view.dispatch_facts()


@settings(deadline=None)
@given(damaged_records() | st.binary(max_size=200), st.integers(-5, 250), st.booleans(), st.integers(0, 300))
def test_verify_judges_any_bytes_and_never_looks_outside(
    data: bytes, position: int, check_crc: bool, size_max: int
) -> None:
    verdict = verify(data, position, check_body_crc=check_crc, size_max=size_max)
    assert verdict.position == position
    if isinstance(verdict, RecordView):
        assert position + verdict.size <= len(data)
        assert verdict.size <= size_max
        assert len(verdict.body(data)) == verdict.body_length
