"""Answers to pulls: the frame that is filled into a template is the one that the general path writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.broker.pull.responses import FoundResponses, pull_response
from ariane.rpc.handlers import encode_result
from ariane.store.read.result import ReadResult, ReadStatus
from ariane.wire.codes import HeaderFlag, ResponseCode, Serialization
from ariane.wire.frame import Command

offsets = st.integers(0, 2**63 - 1)


@given(
    st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=5), st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 9), offsets, offsets, offsets,
)  # fmt: skip
def test_both_ways_write_the_same_frame(
    records: list[bytes], opaque: int, broker_id: int, next_offset: int, min_offset: int, max_offset: int
) -> None:
    result = ReadResult(
        status=ReadStatus.FOUND,
        next_offset=next_offset,
        min_offset=min_offset,
        max_offset=max_offset,
        slices=[memoryview(record) for record in records],
    )
    command = Command(code=11, opaque=opaque)
    general = encode_result(command, pull_response(ResponseCode.SUCCESS, result, broker_id))
    assert FoundResponses().frame(command, result, broker_id, sum(map(len, records))) == general


@pytest.mark.parametrize(
    "command",
    [Command(code=11, flag=HeaderFlag.ONEWAY), Command(code=11, serialization=Serialization.BINARY)],
    ids=["one way", "binary"],
)
def test_what_is_uncommon_is_left_to_the_general_path(command: Command) -> None:
    result = ReadResult(status=ReadStatus.FOUND, next_offset=1, slices=[memoryview(b"record")])
    assert FoundResponses().frame(command, result, 0, 6) is None
