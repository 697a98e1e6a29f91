"""Pull responses decoded in the buffer into which they were received: the same rows as from the joined responses."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ariane.arrow.decode import Decoder, decode_pieces, decode_records
from ariane.arrow.gather import ByteGatherer
from ariane.arrow.schema import COLUMNS, message_schema
from ariane.model.message import StoredMessage
from ariane.wire.record.layout import encode
from ariane.wire.sys_flag import Compression, with_compression
from tests.arrow.test_decode import ordinary
from tests.wire.sample_records import MESSAGE, messages

SCHEMA = message_schema(tuple(COLUMNS))
ONE_SHAPE = st.builds(
    lambda topic, size: replace(MESSAGE, topic=topic, body=bytes(size)),
    st.sampled_from(["orders", "refund", "stocks", "a"]),
    st.integers(0, 300),
)
RESPONSES = st.lists(st.lists(messages.map(ordinary) | ONE_SHAPE, min_size=1, max_size=8), min_size=1, max_size=6)


def in_pieces(responses: list[bytes]) -> list[pa.RecordBatch] | None:
    memory, begins, ends = b"", [], []
    for response in responses:
        memory += b"the header of a response"
        begins.append(len(memory))
        memory += response
        ends.append(len(memory))
    begun, ended = np.array(begins, np.int64), np.array(ends, np.int64)
    return decode_pieces(ByteGatherer(memory + b"the next one"), begun, ended, Decoder(SCHEMA, broker_name="b"))


@settings(deadline=None)
@given(RESPONSES)
def test_rows_are_those_of_the_joined_responses(sent: list[list[StoredMessage]]) -> None:
    responses = [b"".join(map(encode, some)) for some in sent]
    joined = decode_records(b"".join(responses), columns=tuple(COLUMNS), broker_name="b")
    result = in_pieces(responses)
    assert result is not None
    assert pa.Table.from_batches(result, SCHEMA).equals(pa.Table.from_batches([joined.batch]))


RECORD = encode(MESSAGE)
INVALID_TOPIC = RECORD.replace(MESSAGE.topic.encode(), b"\xff" * len(MESSAGE.topic.encode()))
NOT_COMPRESSED = encode(replace(MESSAGE, sys_flag=with_compression(MESSAGE.sys_flag, Compression.ZLIB), body=b"plain"))


@pytest.mark.parametrize("bad", [b"", b"x", RECORD[:-1], RECORD + b"x", bytes(200), INVALID_TOPIC, NOT_COMPRESSED])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_pieces_with_a_bad_record_are_left_to_decode_records(bad: bytes, index: int) -> None:
    responses = [RECORD * 3, RECORD * 3]
    responses.insert(index, bad)
    assert in_pieces(responses) is None
