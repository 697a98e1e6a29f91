"""Answers to pulls: the frame that is filled into a template is the one that the general path writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.broker.pull import responses
from ariane.broker.pull.responses import FoundResponses, pull_response
from ariane.rpc.handlers import encode_result
from ariane.store.read.result import ReadResult, ReadStatus
from ariane.wire.codes import HeaderFlag, ResponseCode, Serialization
from ariane.wire.frame import Command

offsets = st.integers(0, 2**63 - 1)


@given(
    st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=5), st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 9), offsets, offsets, offsets, st.sampled_from(Serialization),
)  # fmt: skip
def test_both_ways_write_the_same_frame(
    records: list[bytes],
    opaque: int,
    broker_id: int,
    next_offset: int,
    min_offset: int,
    max_offset: int,
    serialization: Serialization,
) -> None:
    result = ReadResult(
        status=ReadStatus.FOUND,
        next_offset=next_offset,
        min_offset=min_offset,
        max_offset=max_offset,
        slices=[memoryview(record) for record in records],
    )
    command = Command(code=11, opaque=opaque, serialization=serialization)
    general = encode_result(command, pull_response(ResponseCode.SUCCESS, result, broker_id))
    assert FoundResponses().frame(command, result, broker_id, sum(map(len, records))) == general


def test_what_is_uncommon_is_left_to_the_general_path() -> None:
    result = ReadResult(status=ReadStatus.FOUND, next_offset=1, slices=[memoryview(b"record")])
    assert FoundResponses().frame(Command(code=11, flag=HeaderFlag.ONEWAY), result, 0, 6) is None


def test_templates_of_binary_headers_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "BINARY_TEMPLATES_MAX", 5)
    found = FoundResponses()
    for broker_id in range(20):
        assert found.head(b"\0\0\0\1", broker_id, 1, 2, 3, 4)
        assert len(found._binary_templates) <= 5
