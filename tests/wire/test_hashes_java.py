"""Java's String.hashCode and the tags code of consume queues."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.wire.hashes import java_hash, tags_code


def by_definition(text: str) -> int:
    """The definition, one UTF-16 unit after the other."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for position in range(0, len(encoded), 2):
        total = (31 * total + int.from_bytes(encoded[position : position + 2], "big")) & 0xFFFFFFFF
    return total - (1 << 32) if total >= 1 << 31 else total


@pytest.mark.parametrize(
    ("text", "expected"),
    [("TagA", 2598919), ("TagB", 2598920), ("*", 42), ("订单", 1129459), ("polygenelubricants", -2147483648), ("", 0)],
)
def test_the_hash_is_that_of_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_trap_13_tag_hash_uses_utf16_units_and_is_sign_extended() -> None:
    # One character beyond the basic plane is two units in Java: 0xD83D, 0xDE00.
    assert java_hash("😀") == 31 * 0xD83D + 0xDE00
    assert struct.pack(">q", tags_code("polygenelubricants")) == bytes.fromhex("FFFFFFFF80000000")


@pytest.mark.parametrize("tags", [None, ""])
def test_a_message_without_tags_has_the_code_zero(tags: str | None) -> None:
    assert tags_code(tags) == 0


@settings(deadline=None)
@given(st.text(st.characters(), max_size=40) | st.text("ab", min_size=250, max_size=1100))
def test_any_text_hashes_as_the_definition_says(text: str) -> None:
    assert java_hash(text) == tags_code(text) == by_definition(text)


def test_a_lone_surrogate_is_hashed_like_any_unit() -> None:
    assert java_hash("a\ud800") == 31 * ord("a") + 0xD800


def test_a_tag_too_long_for_the_cache_has_the_same_code() -> None:
    assert tags_code("t" * 5000) == by_definition("t" * 5000)
