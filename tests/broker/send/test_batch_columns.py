"""Property texts of a table: read at once when they look alike, and left alone when one does not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.broker.send.batch import BatchProperties, UniformProperties, UniformPropertiesReader
from ariane.wire.record.uniform_batch import Bytes2D

COMMON = b"KEYS\x01k1\x02UNIQ_KEY\x017F01\x02TAGS\x01paid\x02"
OTHER = b"KEYS\x01k2\x02UNIQ_KEY\x017F02\x02TAGS\x01open\x02"


def rows(*texts: bytes) -> Bytes2D:
    return np.frombuffer(b"".join(texts), np.uint8).reshape(len(texts), len(texts[0]))


def same(read: UniformProperties, texts: list[bytes]) -> bool:
    """Whether it says what the way for all texts says."""
    expected = BatchProperties(texts)
    codes = [read.tags_codes] * len(texts) if isinstance(read.tags_codes, int) else read.tags_codes.tolist()
    columns = [[row.tobytes().decode() for row in column] for column in read.keys]
    keys = list(zip(*columns, strict=True)) or [()] * len(texts)
    stored = [text + expected.texts_end for text in expected.texts]
    return (
        [text + read.end for text in texts] == stored
        and codes == expected.tags_codes
        and keys == list(expected.keys.of_messages(len(texts)))
    )


@pytest.mark.parametrize(
    "texts",
    [
        [COMMON, OTHER],
        [COMMON[:-1], OTHER[:-1]],
        [COMMON] * 3,
        [b"TAGS\x01a\x02", b"TAGS\x01b\x02"],
        [b"KEYS\x01a"],
        [b"a\x01\x7f\x03"],
        [b"UNIQ_KEY\x01A\x02KEYS\x01a"] * 2,
    ],
    ids=["ended", "open", "the same", "tags alone", "a key alone", "no key", "the other order"],
)
def test_texts_that_look_alike_are_read_at_once(texts: list[bytes]) -> None:
    read = UniformPropertiesReader().read(rows(*texts))
    assert read is not None
    assert same(read, texts)


@pytest.mark.parametrize(
    "odd",
    [
        OTHER.replace(b"KEYS", b"KEYZ"),
        OTHER.replace(b"\x01k2\x02", b"\x01\x01k\x02"),
        OTHER.replace(b"k2", b"\x022"),
        OTHER.replace(b"k2", b"k\0"),
        OTHER.replace(b"k2", b" k"),
        OTHER.replace(b"k2", "é".encode()),
        OTHER.replace(b"k2", b"\xc3("),
        OTHER[:-1] + b"x",
    ],
    ids=["name", "empty value", "separator", "zero", "blank", "not ASCII", "not UTF-8", "no end"],
)
def test_one_text_that_looks_different_leaves_all_to_the_other_way(odd: bytes) -> None:
    reader = UniformPropertiesReader()
    for texts in ([COMMON, odd, OTHER], [odd, COMMON], [odd]):
        read = reader.read(rows(*texts))
        assert read is None or same(read, texts)
    assert reader.read(rows(COMMON, odd)) is None
    assert reader.read(rows(COMMON, OTHER)) is not None


@pytest.mark.parametrize(
    "text", [b"DELAY\x010", b"TRAN_MSG\x01true", b"__CRC32#\x01abc", b"a\x01b\x02a\x01c", b"a\x01\x02", b"a", b"\x02"]
)
def test_texts_that_are_not_stored_as_they_came_are_left_to_the_other_way(text: bytes) -> None:
    assert UniformPropertiesReader().read(rows(text, text)) is None


def test_texts_of_one_length_may_have_other_names_than_the_last() -> None:
    reader = UniformPropertiesReader()
    for texts in ([b"KEYS\x01a"] * 2, [b"TAGS\x01a"] * 2, [b"KEYS\x01a"] * 2):
        read = reader.read(rows(*texts))
        assert read is not None
        assert same(read, texts)


@given(st.lists(st.text("ab \x01\x02\x03\x7fé", min_size=7, max_size=7), min_size=1, max_size=4))
def test_whatever_is_read_at_once_says_what_the_other_way_says(values: list[str]) -> None:
    texts = [f"KEYS\x01{value[:3]}\x02TAGS\x01{value[3:]}".encode() for value in values]
    if len({len(text) for text in texts}) == 1 and (read := UniformPropertiesReader().read(rows(*texts))) is not None:
        assert same(read, texts)
