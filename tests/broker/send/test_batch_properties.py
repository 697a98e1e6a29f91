"""Properties of a batch, read as one table, are those that each message has by itself."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.broker.send.batch import BatchProperties
from ariane.errors import MessageRefused
from ariane.wire.hashes import tags_code
from ariane.wire.properties import keys_of, read_property_text

words = st.text(st.sampled_from("ab \x03ü"), min_size=1, max_size=4)
names = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "a", "b", "\x03a", "__CRC32#", "DELAY"])
broken = st.text(st.sampled_from("ab\x01\x02\x03"), max_size=8).map(str.encode)


@st.composite
def tables(draw: st.DrawFn) -> list[bytes]:
    """As a program makes them: the same names in every message."""
    columns = draw(st.lists(names, unique=True, max_size=4))
    end = draw(st.sampled_from(["\x02", ""]))
    rows = draw(st.lists(st.tuples(*[words for _ in columns]), min_size=1, max_size=5))
    return [
        ("\x02".join(f"{name}\x01{value}" for name, value in zip(columns, row, strict=True)) + end * bool(row)).encode()
        for row in rows
    ]


def expected(texts: list[bytes]) -> list[tuple[bytes, int, tuple[str, ...]]] | None:
    """What each message says by itself; None when one of them must not be in a batch."""
    every = []
    for text in texts:
        try:
            properties, regular = read_property_text(text.decode())
        except MessageRefused:
            return None
        if properties.get("DELAY", "0") != "0":
            return None
        every.append((regular.encode(), tags_code(properties.get("TAGS")), keys_of(properties)))
    return every


def found(texts: list[bytes]) -> list[tuple[bytes, int, tuple[str, ...]]] | None:
    try:
        batch = BatchProperties(texts)
    except MessageRefused:
        return None
    stored = [text + batch.texts_end for text in batch.texts]
    return list(zip(stored, batch.tags_codes, batch.keys.of_messages(len(texts)), strict=True))


@settings(deadline=None, max_examples=500)
@given(tables())
def test_a_table_says_what_its_rows_say(texts: list[bytes]) -> None:
    assert found(texts) == expected(texts)


@settings(deadline=None, max_examples=500)
@given(st.lists(broken, min_size=1, max_size=4) | st.tuples(tables(), tables()).map(lambda two: two[0] + two[1]))
def test_what_is_no_table_says_what_its_messages_say(texts: list[bytes]) -> None:
    assert found(texts) == expected(texts)


@pytest.mark.parametrize(
    "texts",
    [
        [b"a\x01b\x02", b"a\x01c\x02\x03a\x01d", b"x\x02"],
        [b"a\x01b\x02\x03a\x01c\x02", b""],
        [b"", b"a\x01b\x02\x03\x03a\x01d\x02"],
        [b"a\x01b\x02", b"a\x01b\x02\x03a\x01c\x02\x03a\x01d\x02", b""],
        [b"a\x01b", b"a\x01c\x02"],
        [b"a\x01b\x02", b"a\x01c"],
        [b"a\x02b\x01", b"a\x02b\x01"],
        [b"a\x01\x02", b"a\x01\x02"],
        [b"\x01a\x02", b"\x01a\x02"],
        [b"a\x01b\x02a\x01c\x02", b"a\x01b\x02a\x01c\x02"],
    ],
)
def test_a_text_that_feigns_a_table_is_read_by_itself(texts: list[bytes]) -> None:
    assert found(texts) == expected(texts)


def test_half_a_character_at_the_end_of_a_text_is_not_made_whole_by_the_next() -> None:
    with pytest.raises(MessageRefused, match="UTF-8"):
        BatchProperties([b"a\x01\xc3", b"\xbc\x01b"])
