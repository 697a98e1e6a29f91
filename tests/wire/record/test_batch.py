import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import RecordError, WireError
from ariane.wire.properties import encode_properties
from ariane.wire.record.batch import BatchItem, decode_batch, encode_batch

# Body `hi`, properties WAIT=true, flag 0, as Java's client encodes it.
ITEM = bytes.fromhex("00000022 00000000 00000000 00000000 00000002 6869 000a 57414954 01 74727565 02")

items = st.builds(
    BatchItem, body=st.binary(max_size=40), properties=st.binary(max_size=40), flag=st.integers(-(2**31), 2**31 - 1)
)


def with_bytes(position: int, data: str) -> bytes:
    changed = bytes.fromhex(data)
    return ITEM[:position] + changed + ITEM[position + len(changed) :]


def test_an_item_is_laid_out_as_java_does() -> None:
    assert encode_batch([BatchItem(b"hi", encode_properties({"WAIT": "true"}))]) == ITEM


@settings(deadline=None)
@given(st.lists(items, max_size=6))
def test_batches_survive_the_round_trip(batch: list[BatchItem]) -> None:
    assert decode_batch(encode_batch(batch), count_max=len(batch)) == batch


def test_an_empty_batch_has_no_items() -> None:
    assert decode_batch(b"", count_max=0) == []


def test_an_item_may_have_no_body_and_no_properties() -> None:
    assert decode_batch(encode_batch([BatchItem(b"")]), count_max=1) == [BatchItem(b"", b"", 0)]


def test_magic_and_checksum_are_not_looked_at() -> None:
    assert decode_batch(with_bytes(4, "DAA320A7 12345678"), count_max=1) == decode_batch(ITEM, count_max=1)


def test_a_batch_of_too_many_messages_is_refused() -> None:
    assert len(decode_batch(ITEM * 10, count_max=10)) == 10
    with pytest.raises(RecordError, match="more than 9 messages"):
        decode_batch(ITEM * 10, count_max=9)


@pytest.mark.parametrize(
    "broken",
    [
        with_bytes(0, "00000021"),
        with_bytes(0, "00000023"),
        with_bytes(0, "00000015"),
        with_bytes(0, "00000000"),
        with_bytes(0, "FFFFFFFF"),
        with_bytes(0, "7FFFFFFF"),
        with_bytes(16, "FFFFFFFF"),
        with_bytes(16, "7FFFFFFF"),
        with_bytes(16, "0000000D"),
        with_bytes(16, "00000001"),
        with_bytes(22, "FFFF"),
        with_bytes(22, "7FFF"),
        with_bytes(22, "0009"),
    ],
)
def test_lengths_that_do_not_add_up_are_refused_with_their_position(broken: bytes) -> None:
    with pytest.raises(RecordError, match=f"broken at byte {len(ITEM)}"):
        decode_batch(ITEM + broken, count_max=10)


@pytest.mark.parametrize("length", range(1, len(ITEM)))
def test_a_batch_cut_at_any_byte_is_refused(length: int) -> None:
    with pytest.raises(RecordError, match="broken at byte 0"):
        decode_batch(ITEM[:length], count_max=10)


def test_an_item_that_does_not_fit_its_fields_is_refused() -> None:
    with pytest.raises(RecordError, match="32768 bytes, at most 32767"):
        encode_batch([BatchItem(b"hi", b"x" * 32768)])
    with pytest.raises(RecordError, match="cannot be written"):
        encode_batch([BatchItem(b"hi", flag=2**31)])


@st.composite
def damaged_batches(draw: st.DrawFn) -> bytes:
    batch = bytearray(encode_batch(draw(st.lists(items, min_size=1, max_size=3))))
    for position, byte in draw(st.lists(st.tuples(st.integers(0, len(batch) - 1), st.integers(0, 255)), max_size=3)):
        batch[position] = byte
    return bytes(batch[: draw(st.integers(0, len(batch)))])


@settings(deadline=None)
@given(damaged_batches() | st.binary(max_size=100), st.integers(0, 4))
def test_any_bytes_decode_or_raise_a_wire_error(body: bytes, count_max: int) -> None:
    try:
        decoded = decode_batch(body, count_max=count_max)
    except WireError:
        return
    assert len(decoded) <= count_max
    assert len(encode_batch(decoded)) == len(body)
