"""Items of one shape: seen as a table only when every one of them has it."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.wire.record.batch import BatchItem, encode_batch, split_batch
from ariane.wire.record.uniform_batch import UniformBatch, UniformSizes, uniform_sizes_of

ITEM = BatchItem(b"hello", b"KEYS\x01a\x02", flag=7)


@given(st.integers(1, 9), st.binary(min_size=1, max_size=40), st.binary(min_size=1, max_size=40))
def test_a_table_has_what_the_items_have(count: int, body: bytes, text: bytes) -> None:
    data = encode_batch(BatchItem(body, text, flag) for flag in range(count))
    shape = uniform_sizes_of(data)
    assert shape == UniformSizes(22 + len(body) + len(text), len(body), len(text))
    table = UniformBatch.of(data, shape)
    assert table is not None
    columns = table.rows["body"].tolist(), table.rows["text"].tolist(), table.rows["flag"].tolist()
    assert columns == tuple(split_batch(data, count_max=10))
    assert [row.tobytes() for row in table.texts()] == [text] * count


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(22),
        bytes(100),
        encode_batch([BatchItem(b"", b"a\x01b")]),
        encode_batch([BatchItem(b"a", b"")]),
        encode_batch([ITEM])[:-1],
        encode_batch([ITEM, BatchItem(b"longer", b"a\x01b")]),
        struct.pack(">iiiii", -1, 0, 0, 0, 5) + bytes(30),
        struct.pack(">iiiii", 50, 0, 0, 0, -5) + bytes(30),
        struct.pack(">iiiii", 50, 0, 0, 0, 2**31 - 1) + bytes(30),
        struct.pack(">iiiii", 40_000, 0, 0, 0, 1) + bytes(39_980),
    ],
)
def test_what_cannot_be_a_table_has_no_shape(data: bytes) -> None:
    assert uniform_sizes_of(data) is None


@pytest.mark.parametrize("other", [BatchItem(b"hell", b"KEYS\x01aa\x02"), BatchItem(b"hello2", b"KEYS\x01\x02")])
def test_items_of_one_size_with_other_lengths_inside_are_no_table(other: BatchItem) -> None:
    data = encode_batch([ITEM, other, ITEM])
    shape = uniform_sizes_of(data)
    assert shape is not None
    assert UniformBatch.of(data, shape) is None


@pytest.mark.parametrize("at", [0, 16, 25])
def test_a_length_that_lies_is_no_table(at: int) -> None:
    data = bytearray(encode_batch([ITEM] * 3))
    data[34 + at + 1] ^= 1
    shape = uniform_sizes_of(bytes(data))
    assert shape is not None
    assert UniformBatch.of(bytes(data), shape) is None
