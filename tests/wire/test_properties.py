import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import RecordError, WireError
from ariane.wire.properties import PROPERTIES_BYTES_MAX, decode_properties, encode_properties

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=20)


@settings(deadline=None)
@given(st.dictionaries(texts, texts, max_size=10))
def test_properties_survive_the_round_trip_in_their_order(properties: dict[str, str]) -> None:
    decoded = decode_properties(encode_properties(properties))
    assert list(decoded.items()) == list(properties.items())


def test_the_text_is_name_01_value_02() -> None:
    assert encode_properties({"KEYS": "a b", "城": "杭州"}) == "KEYS\x01a b\x02城\x01杭州\x02".encode()


def test_no_properties_are_no_bytes() -> None:
    assert encode_properties({}) == b""
    assert decode_properties(b"") == {}


def test_the_last_separator_may_be_missing() -> None:
    # Apache 4.7.1 writes it, 4.9.8 does not.
    assert decode_properties(b"a\x011\x02b\x012") == {"a": "1", "b": "2"}


def test_empty_values_are_dropped_as_java_drops_them() -> None:
    assert decode_properties(b"a\x01\x02b\x012\x02c\x01") == {"b": "2"}


@pytest.mark.parametrize("junk", [b"junk\x02", b"\x01value\x02", b"\x02\x02", b"\x01\x02"])
def test_a_pair_without_name_or_separator_is_dropped_and_shifts_nothing(junk: bytes) -> None:
    assert decode_properties(b"a\x011\x02" + junk + b"b\x012\x02") == {"a": "1", "b": "2"}


def test_everything_after_the_first_separator_is_the_value() -> None:
    assert decode_properties(b"a\x01b\x01c\x02d\x01e\x02") == {"a": "b\x01c", "d": "e"}


def test_of_two_pairs_with_one_name_the_later_wins() -> None:
    assert decode_properties(b"a\x011\x02a\x012\x02") == {"a": "2"}


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(RecordError, match="not UTF-8 at byte 2"):
        decode_properties(b"a\x01\xff\x02")


def test_every_buffer_type_can_be_decoded() -> None:
    data = b"a\x011\x02"
    assert decode_properties(bytearray(data)) == decode_properties(memoryview(data)) == {"a": "1"}


@pytest.mark.parametrize("bad", ["x\x01y", "x\x02y", "\x01", "\x02", "x\x01", "\x02x", "\x01\x02", "\x02z\x01w"])
def test_a_separator_in_a_name_or_a_value_is_refused_by_name(bad: str) -> None:
    with pytest.raises(RecordError, match="property 'guilty'"):
        encode_properties({"fine": "1", "guilty": bad})
    with pytest.raises(RecordError) as of_name:
        encode_properties({"fine": "1", bad: "value"})
    assert repr(bad) in str(of_name.value)


@pytest.mark.parametrize("properties", [{"a": "1", "guilty": ""}, {"guilty": "", "a": "1"}, {"": "guilty"}])
def test_an_empty_name_or_value_is_refused_because_it_would_vanish(properties: dict[str, str]) -> None:
    with pytest.raises(RecordError, match="empty name or value"):
        encode_properties(properties)


def test_half_a_surrogate_pair_is_refused_by_name() -> None:
    with pytest.raises(RecordError, match="'guilty'"):
        encode_properties({"a": "1", "guilty": "x\ud800"})


def test_properties_longer_than_the_length_field_can_say_are_refused_by_name() -> None:
    overhead = len("long\x01\x02")
    assert len(encode_properties({"long": "x" * (PROPERTIES_BYTES_MAX - overhead)})) == PROPERTIES_BYTES_MAX
    with pytest.raises(RecordError, match=r"32768 bytes, at most 32767 .* 'long'"):
        encode_properties({"long": "x" * (PROPERTIES_BYTES_MAX - overhead + 1)})


@settings(deadline=None)
@given(st.binary(max_size=60) | st.text("ab\x01\x02", max_size=30).map(str.encode))
def test_arbitrary_bytes_decode_or_raise_a_wire_error(data: bytes) -> None:
    try:
        properties = decode_properties(data)
    except WireError:
        return
    assert all(name and value for name, value in properties.items())
