import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ariane.errors import RecordError, WireError
from ariane.model.message import StoredMessage
from ariane.wire.hashes import crc32
from ariane.wire.record.layout import encode, pack_blank
from ariane.wire.record.read import BlankRecord, BrokenRecord, Fault, RecordView, decode, decode_all, walk
from tests.wire.sample_records import MESSAGE, damaged_records, messages

RECORD = encode(MESSAGE)


def as_stored(message: StoredMessage) -> StoredMessage:
    """`message` with what storing it works out."""
    bits = (0x10 if message.born_host.ip.version == 6 else 0) | (0x20 if message.store_host.ip.version == 6 else 0)
    return replace(
        message,
        sys_flag=message.sys_flag & ~0x30 | bits,
        body_crc=crc32(message.body),
        stored_size=len(encode(message)),
    )


@settings(deadline=None)
@given(messages, st.binary(max_size=10))
def test_messages_survive_the_round_trip(message: StoredMessage, before: bytes) -> None:
    buffer = before + encode(message)
    decoded = decode(buffer, len(before), check_crc=True)
    assert decoded == as_stored(message)
    assert encode(decoded) == encode(message)


@settings(deadline=None)
@given(st.lists(messages, max_size=4))
def test_a_pull_answer_holds_records_back_to_back(stored: list[StoredMessage]) -> None:
    body = b"".join(map(encode, stored))
    assert decode_all(body, check_crc=True) == [as_stored(message) for message in stored]


def test_trap_23_an_empty_body_is_decoded() -> None:
    assert decode(encode(replace(MESSAGE, body=b"")), check_crc=True).body == b""


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_decoded_message_keeps_nothing_of_the_buffer(kind: type[bytes] | type[bytearray] | type[memoryview]) -> None:
    message = decode(kind(RECORD))
    assert message == as_stored(MESSAGE)
    assert type(message.body) is bytes


def test_what_is_no_message_is_an_error_with_its_position() -> None:
    with pytest.raises(RecordError, match="no message at byte 3: 50 bytes of a record of at least 126"):
        decode(bytes(3) + RECORD[:50], 3)
    with pytest.raises(RecordError, match="no message at byte 0: the blank end"):
        decode(pack_blank(100))
    with pytest.raises(RecordError, match="checksum"):
        decode(RECORD[:88] + b"HI" + RECORD[90:], check_crc=True)


def test_a_record_larger_than_the_limit_is_an_error() -> None:
    with pytest.raises(RecordError, match="91 to 100 bytes"):
        decode(RECORD, size_max=100)


@pytest.mark.parametrize("tail", [RECORD[:-1], pack_blank(8), bytes(8), b"x"])
def test_a_pull_answer_with_a_bad_end_is_an_error_and_not_a_shorter_list(tail: bytes) -> None:
    with pytest.raises(RecordError, match=f"no message at byte {len(RECORD)}"):
        decode_all(RECORD + tail)


def test_a_host_that_no_socket_has_is_an_error() -> None:
    with pytest.raises(RecordError, match="port 65536"):
        decode(RECORD[:52] + (65536).to_bytes(4, "big") + RECORD[56:])


def test_a_walk_steps_over_the_blank_end_of_a_file_into_the_next_one() -> None:
    first_file = RECORD + pack_blank(50) + bytes(42)
    found = list(walk(first_file + RECORD))
    assert [type(verdict) for verdict in found] == [RecordView, BlankRecord, RecordView]
    assert [verdict.position for verdict in found] == [0, len(RECORD), len(first_file)]


def test_a_walk_ends_with_the_broken_record_and_its_reason() -> None:
    found = list(walk(RECORD + RECORD[:60]))
    assert isinstance(found[-1], BrokenRecord)
    assert found[-1].fault is Fault.TORN
    assert len(found) == 2


def test_a_walk_can_go_on_behind_a_broken_record_of_known_size() -> None:
    rotten = RECORD[:88] + b"HI" + RECORD[90:]
    log = rotten + RECORD
    (broken,) = walk(log, check_crc=True)
    assert isinstance(broken, BrokenRecord)
    assert [verdict.position for verdict in walk(log, broken.position + broken.size, check_crc=True)] == [len(RECORD)]


def test_a_walk_keeps_between_its_start_and_its_end() -> None:
    log = RECORD * 5
    size = len(RECORD)
    assert [verdict.position for verdict in walk(log, size, 3 * size)] == [size, 2 * size]
    assert list(walk(log, 5 * size)) == []


def test_a_blank_record_may_reach_past_the_bytes_at_hand() -> None:
    assert list(walk(pack_blank(1000))) == [BlankRecord(0, 1000)]


@settings(deadline=None)
@given(st.lists(damaged_records() | messages.map(encode) | st.binary(max_size=30), max_size=4).map(b"".join))
def test_any_bytes_decode_or_raise_a_wire_error(data: bytes) -> None:
    found = list(walk(data, check_crc=True))
    assert all(not isinstance(verdict, BrokenRecord) for verdict in found[:-1])
    try:
        decoded = decode_all(data, check_crc=True)
    except WireError:
        return
    assert sum(message.stored_size for message in decoded) == len(data)


@settings(deadline=None)
@given(damaged_records(), st.integers(-3, 100), st.booleans())
def test_a_damaged_record_decodes_or_raises_a_wire_error(data: bytes, position: int, check_crc: bool) -> None:
    try:
        message = decode(data, position, check_crc=check_crc)
    except WireError:
        return
    assert message.stored_size <= len(data)
