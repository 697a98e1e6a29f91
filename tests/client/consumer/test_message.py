"""Received messages: decoding, the fast path for common records, damage."""

import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ariane.client.consumer.message import Received, next_attempt, receive, receive_all
from ariane.errors import RecordError
from ariane.model.message import StoredMessage
from ariane.model.route import MessageQueue
from ariane.wire.compression import compress
from ariane.wire.hashes import crc32
from ariane.wire.record.layout import encode
from ariane.wire.record.read import decode, decode_all
from ariane.wire.sys_flag import Compression, with_compression
from tests.client.consumer.test_queues import QUEUE, message
from tests.wire.sample_records import messages


def stored(body: bytes = b"body", **changes: object) -> StoredMessage:
    return decode(encode(replace(message(3, body), **changes)))


@pytest.mark.parametrize("kind", list(Compression))
def test_a_compressed_body_is_decompressed(kind: Compression) -> None:
    packed = stored(compress(b"x" * 5000, kind), sys_flag=with_compression(0, kind))
    received = receive(packed, QUEUE)
    assert (received.body, received.fault) == (b"x" * 5000, None)
    assert not received.sys_flag & 0x701, "a copy that is sent on is plain"


def test_a_body_that_decompresses_to_too_much_is_a_fault_and_stays_compressed() -> None:
    packed = zlib.compress(b"x" * 5000)
    received = receive(stored(packed, sys_flag=1), QUEUE, body_bytes_max=4999)
    assert received.body == packed
    assert "4999" in str(received.fault)


def test_a_body_that_does_not_match_its_checksum_is_a_fault() -> None:
    good = stored(b"good")
    assert good.body_crc == crc32(b"good")
    assert "checksum" in str(receive(replace(good, body=b"evil"), QUEUE).fault)


def test_an_empty_body_is_valid() -> None:
    assert receive(stored(b""), QUEUE).fault is None


def test_a_retry_has_its_original_topic() -> None:
    retry = stored(topic="%RETRY%group", properties={"RETRY_TOPIC": "orders", "UNIQ_KEY": "ABC"}, reconsume_times=2)
    received = receive(retry, QUEUE)
    assert (received.topic, received.attempt, received.message_id) == ("orders", 3, "ABC")


def test_without_a_unique_key_the_offset_id_is_the_id() -> None:
    received = receive(stored(), QUEUE)
    assert received.message_id == received.offset_message_id == "0A00000100002A9F000000000000012C"


def test_only_a_transactional_message_has_a_transaction_id() -> None:
    assert receive(stored(properties={"UNIQ_KEY": "ABC"}), QUEUE).transaction_id is None
    assert receive(stored(properties={"UNIQ_KEY": "ABC", "TRAN_MSG": "true"}), QUEUE).transaction_id == "ABC"


def test_the_next_attempt_differs_only_in_its_number() -> None:
    first = receive(stored(), QUEUE)
    second = next_attempt(first)
    assert second.attempt == first.attempt + 1
    assert replace(second, reconsume_times=0) == first


def test_a_broken_record_makes_the_response_unreadable() -> None:
    with pytest.raises(RecordError):
        list(receive_all(encode(message(0)) + b"\x00" * 20, QUEUE))


def one_by_one(records: bytes, queue: MessageQueue) -> list[Received]:
    return [receive(message, queue, 9) for message in decode_all(records)]


def outcome(read: Callable[[], list[Received]]) -> object:
    try:
        return read()
    except RecordError:
        return RecordError


@given(st.lists(messages, max_size=4), st.integers(0, 3))
def test_inline_decoding_equals_decoding_one_by_one(stored_messages: list[StoredMessage], which: int) -> None:
    records = b"".join(map(encode, stored_messages))
    topic = stored_messages[which % len(stored_messages)].topic if stored_messages else "orders"
    queue = MessageQueue(topic=topic, broker_name="a", queue_id=0)
    assert receive_all(records, queue, 9) == one_by_one(records, queue)


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=9), st.text("aä\u20ac", max_size=4)), min_size=1, max_size=6),
    st.integers(0, 3),
)
def test_consecutive_records_may_differ_in_all_lengths(bodies_and_keys: list[tuple[bytes, str]], missing: int) -> None:
    made = [
        encode(replace(message(offset, body), properties={"KEYS": key, "TAGS": "t"} if key else {}))
        for offset, (body, key) in enumerate(bodies_and_keys)
    ]
    records = b"".join(made)
    assert receive_all(records, QUEUE, 9) == one_by_one(records, QUEUE)
    cut = records[: len(records) - missing]
    assert outcome(lambda: receive_all(cut, QUEUE, 9)) == outcome(lambda: one_by_one(cut, QUEUE))


@given(st.binary(max_size=20), st.integers(0, 200), st.integers(1, 3))
def test_damaged_records_give_the_same_error_in_both_paths(junk: bytes, position: int, length: int) -> None:
    records = bytearray(encode(message(0)) + encode(message(1)))
    records[position : position + length] = junk
    spoiled = bytes(records)
    assert outcome(lambda: receive_all(spoiled, QUEUE, 9)) == outcome(lambda: one_by_one(spoiled, QUEUE))


def test_properties_are_decoded_on_access() -> None:
    (received,) = receive_all(encode(replace(message(3), properties={"TAGS": "a", "KEYS": "k l"})), QUEUE)
    again = next_attempt(received)
    assert (again.tags, again.keys, again.properties) == ("a", ("k", "l"), {"TAGS": "a", "KEYS": "k l"})
    assert received.properties is received.properties
    assert "'TAGS': 'a'" in repr(received)


def test_equality_does_not_depend_on_decoded_properties() -> None:
    records = encode(replace(message(3), properties={"TAGS": "a"}))
    (first,), (second,) = receive_all(records, QUEUE), receive_all(records, QUEUE)
    assert first.tags == "a"
    assert first == second
    assert first != replace(second, body=b"another")
    assert first != "no message"


def test_an_invalid_property_text_makes_the_response_unreadable() -> None:
    record = encode(replace(message(3), properties={"TAGS": "aa"}))
    with pytest.raises(RecordError, match="UTF-8"):
        receive_all(record.replace(b"aa", b"\xff\xff"), QUEUE)
