"""Property texts as clients send them: kept as they came, repaired, or refused."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ariane.errors import MessageRefused
from ariane.wire.properties import decode_properties, decode_text, encode_text, read_property_text


def test_a_regular_text_is_kept_as_it_came() -> None:
    text = "KEYS\x01a b\x02TAGS\x01red\x02"
    properties, kept = read_property_text(text)
    assert kept is text
    assert properties == {"KEYS": "a b", "TAGS": "red"}


def test_no_text_is_no_properties() -> None:
    assert read_property_text("") == ({}, "")


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ("a\x01b", "a\x01b\x02"),  # the last separator is missing
        ("a\x01b\x02\x02", "a\x01b\x02"),
        ("a\x01b\x02c\x01\x02", "a\x01b\x02"),  # an empty value
        ("a\x01b\x02a\x01c\x02", "a\x01c\x02"),  # a name twice
        ("a\x01b\x02__CRC32#\x010123456789\x02", "a\x01b\x02"),  # a record checksum that is not ours
    ],
)
def test_what_no_reader_misses_is_repaired(text: str, repaired: str) -> None:
    properties, kept = read_property_text(text)
    assert kept == repaired
    assert properties == decode_properties(repaired.encode())


@pytest.mark.parametrize("text", ["a", "a\x02b\x01c\x02", "a\x01b\x01c\x02", "\x01b\x02", "a\x01b\x02c"])
def test_a_separator_inside_a_name_or_a_value_is_refused(text: str) -> None:
    with pytest.raises(MessageRefused, match="separate"):
        read_property_text(text)


def test_half_a_surrogate_pair_is_refused_by_name() -> None:
    with pytest.raises(MessageRefused, match="'bad'"):
        encode_text("good\x011\x02bad\x01x\ud800\x02")


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(MessageRefused, match="byte 1"):
        decode_text(b"a\xff")


_PIECES = st.lists(st.sampled_from(["\x01", "\x02", "a", "b", "KEYS", "x y", "__CRC32#", "é", "\ud83d"]), max_size=12)


@given(_PIECES.map("".join))
@example("a\x01\x02\x01b\x02")
def test_what_is_stored_says_what_was_read_and_nothing_else(text: str) -> None:
    try:
        properties, kept = read_property_text(text)
        data = encode_text(kept)
    except MessageRefused:
        return
    assert decode_properties(data) == properties
    assert "__CRC32#" not in properties
    assert read_property_text(kept) == (properties, kept)
