"""Property texts, regular and irregular, decoded for many records at once and one by one: the same properties."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ariane.arrow.decode import decode_records
from ariane.model.message import Property, split_keys
from ariane.wire.host import encode_host
from ariane.wire.properties import decode_properties
from ariane.wire.record.layout import encode, pack_record
from tests.arrow.expected_rows import rows_of
from tests.wire.sample_records import MESSAGE, V4

COLUMNS = ["tags", "keys", "uniqueKey", "properties"]
NAMES = [Property.TAGS, Property.KEYS, Property.UNIQUE_KEY]

# Pieces that make every kind of odd text likely: stray separators, missing values, names that look like others.
_words = ["TAGS", "KEYS", "UNIQ_KEY", "UNIQ", "_KEY", "TAG", "TAGSX", "a", "b c", " ", "  k1  k2 ", "你好", "\0"]
_pairs = ["TAGS\x01v\x02", "KEYS\x01k l\x02", "UNIQ_KEY\x01u\x02", "x\x01y\x02"]
_pieces = st.sampled_from(_words) | st.sampled_from(["\x01", "\x02"]) | st.sampled_from(_pairs)
texts = st.lists(_pieces, max_size=8).map("".join).map(str.encode)


def record_with(text: bytes) -> bytes:
    host = encode_host(V4)
    return pack_record(
        topic=b"T",
        body=b"hi",
        properties=text,
        queue_id=0,
        flag=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=0,
        born_timestamp_ms=0,
        born_host=host,
        store_timestamp_ms=0,
        store_host=host,
    )


def expected(text: bytes) -> dict[str, object]:
    properties = decode_properties(text.decode(errors="replace").encode())
    return {
        "tags": properties.get(Property.TAGS),
        "keys": list(split_keys(properties.get(Property.KEYS, ""))),
        "uniqueKey": properties.get(Property.UNIQUE_KEY),
        "properties": list(properties.items()),
    }


def check(all_texts: list[bytes]) -> None:
    response = b"".join(map(record_with, all_texts))
    expected_rows = [expected(text) for text in all_texts]
    assert rows_of(decode_records(response, columns=COLUMNS).batch) == expected_rows
    for name in COLUMNS:  # each alone, because columns share what was split
        result = rows_of(decode_records(response, columns=[name]).batch)
        assert result == [{name: row[name]} for row in expected_rows]


@settings(deadline=None)
@given(st.lists(texts, max_size=10))
def test_irregular_texts_are_decoded_as_by_the_row_decoder(all_texts: list[bytes]) -> None:
    check(all_texts)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30) | texts, max_size=6))
def test_bytes_that_are_not_utf8_are_replaced_as_in_java(all_texts: list[bytes]) -> None:
    check(all_texts)


def test_of_a_duplicate_name_the_later_value_wins() -> None:
    check([b"a\x011\x02b\x012\x02a\x013\x02", b"a\x011\x02", b"TAGS\x01x\x02TAGS\x01y\x02"])


def test_a_duplicate_name_is_found_among_many_names() -> None:
    """More distinct names than a number has bits."""
    many = [b"".join(b"n%d\x01v\x02" % n for n in range(start, start + 10)) for start in range(0, 100, 10)]
    check([*many, b"n5\x01a\x02n6\x01b\x02n5\x01c\x02"])


def test_rows_with_and_without_properties_do_not_mix_up() -> None:
    check([b"", b"TAGS\x01a\x02", b"", b"KEYS\x01k1 k2\x02", b"\x02", b"UNIQ_KEY\x01u", b""])


def test_the_message_id_is_the_unique_key_and_without_one_the_offset_id() -> None:
    response = encode(MESSAGE) + encode(replace(MESSAGE, properties={}))
    result = decode_records(response, columns=["msgId"]).batch.column("msgId").to_pylist()
    assert result == ["U", "C0A8010A00002A9F0000000000001000"]
