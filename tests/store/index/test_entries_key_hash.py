"""Key hashes, one by one and many at once, against Java's String.hashCode."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.store.index.entries import buffer_key_hashes, column_hashes, key_hash, key_hashes, topic_hash
from ariane.wire.hashes import java_hash

# Every code point, lone surrogates too: a key is whatever a peer put into a property.
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=30)

ASCII = st.characters(max_codepoint=0x7F)


def hashes(pairs: Sequence[tuple[str, str]]) -> list[int]:
    topics = np.array([topic_hash(topic) for topic, _ in pairs], np.uint32)
    return [int(value) for value in key_hashes(topics, [key for _, key in pairs])]


def one_by_one(pairs: Sequence[tuple[str, str]]) -> list[int]:
    return [key_hash(topic, key) for topic, key in pairs]


@settings(deadline=None)
@given(st.lists(st.tuples(ANY_TEXT, ANY_TEXT), min_size=1, max_size=60))
def test_many_keys_hash_like_each_alone(pairs: list[tuple[str, str]]) -> None:
    assert hashes(pairs) == one_by_one(pairs)


@settings(deadline=None)
@given(ANY_TEXT, ANY_TEXT)
def test_a_hash_is_the_size_of_javas_or_zero(topic: str, key: str) -> None:
    size = abs(java_hash(f"{topic}#{key}"))
    assert key_hash(topic, key) == (0 if size == 2**31 else size)


def test_the_hash_whose_size_java_cannot_hold_is_zero() -> None:
    assert java_hash("orders#abydncvw") == -(2**31)
    assert hashes([("orders", "abydncvw")]) == one_by_one([("orders", "abydncvw")]) == [0]


@pytest.mark.parametrize(
    ("topic", "key"),
    [("TopicTest", ""), ("", ""), ("订单", "😀😀"), ("t", "\ud83d"), ("t\ud83d", "\ude00"), ("t", "a#b c")],
)
def test_odd_texts_hash_as_java_does(topic: str, key: str) -> None:
    neighbours = [("before", "plain"), (topic, key), ("after", "plain")]
    assert hashes(neighbours) == one_by_one(neighbours)


def test_more_text_than_one_pass_holds_is_hashed_in_parts() -> None:
    pairs = [("topic", f"{number}" * 40_000) for number in range(9)] + [("topic", "😀" * 70_000), ("topic", "last")]
    assert hashes(pairs) == one_by_one(pairs)


def test_a_giant_key_alone_is_hashed() -> None:
    pairs = [("topic", "k" * 200_000)]
    assert hashes(pairs) == one_by_one(pairs)


@settings(deadline=None)
@given(ANY_TEXT, st.integers(1, 40).flatmap(lambda n: st.lists(st.text(ASCII, min_size=n, max_size=n), min_size=1)))
def test_a_column_of_keys_hashes_like_each_alone(topic: str, keys: list[str]) -> None:
    column = np.frombuffer("".join(keys).encode(), np.uint8).reshape(len(keys), -1)
    assert column_hashes(topic, column).tolist() == [key_hash(topic, key) for key in keys]


def test_the_hash_whose_size_java_cannot_hold_is_zero_in_a_column_too() -> None:
    column = np.frombuffer(b"abydncvw", np.uint8).reshape(1, -1)
    assert column_hashes("orders", column).tolist() == [0]


def in_a_buffer(pairs: Sequence[tuple[str, str]], before: bytes = b"") -> list[int]:
    topics = np.array([topic_hash(topic) for topic, _ in pairs], np.uint32)
    data = np.frombuffer(before + "".join(key for _, key in pairs).encode("ascii"), np.uint8)
    offsets = np.cumsum([len(before), *(len(key) for _, key in pairs)], dtype=np.int64)
    return [int(value) for value in buffer_key_hashes(topics, data, offsets)]


@settings(deadline=None)
@given(st.lists(st.tuples(ANY_TEXT, st.text(ASCII, min_size=1, max_size=30)), max_size=60), st.binary(max_size=5))
def test_keys_in_a_buffer_hash_like_each_alone(pairs: list[tuple[str, str]], before: bytes) -> None:
    assert in_a_buffer(pairs, before) == one_by_one(pairs)


def test_a_buffer_with_more_text_than_one_pass_holds_is_hashed_in_parts() -> None:
    pairs = [("topic", f"{number}" * 4000) for number in range(200)] + [("orders", "abydncvw"), ("topic", "last")]
    assert in_a_buffer(pairs) == one_by_one(pairs)
