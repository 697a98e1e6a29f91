"""Recorded frames of real clients and servers are decoded to the declared structs and encoded again without loss."""

from typing import Any

import pytest

import ariane.wire.requests  # noqa: F401 - fills REQUESTS
from ariane.errors import RequestFailed
from ariane.wire.codes import RequestCode
from ariane.wire.exchange import REQUESTS, Declaration, read_request, read_response, request_command, response_command
from ariane.wire.frame import Command
from ariane.wire.json.fastjson import parse
from tests.wire.golden_frames import GoldenFrame, shown_frames, whole_frames
from tests.wire.requests.struct_values import smallest

# 4.9.8 does not serve these; the rest of the table was recorded in full.
NOT_RECORDED = {
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.BROKER_HEARTBEAT,
    RequestCode.GET_BROKER_HA_STATUS,
    RequestCode.GET_TIMER_CHECK_POINT,
}
# Fields of every request that belong to no struct: the signature, and marks of 4.9 and 5.x that we need not know.
BESIDE_THE_STRUCT = {"AccessKey", "OnsChannel", "ReqT", "Signature", "bname"}


def read(declaration: Declaration, command: Command) -> Any:
    if command.is_response:
        request: Any = smallest(declaration.request)
        return read_response(request, command)
    return read_request(declaration, command)


def write(value: Any, as_in: Command) -> Command:
    if as_in.is_response:
        return response_command(as_in, value)
    return request_command(value, opaque=as_in.opaque, oneway=as_in.is_oneway, serialization=as_in.serialization)


def is_failure(frame: GoldenFrame) -> bool:
    return frame.command.is_response and frame.command.code not in frame.declaration.response.accepts


GOOD_FRAMES = [frame for frame in whole_frames() if not is_failure(frame)]
FAILURES = [frame for frame in (*whole_frames(), *shown_frames()) if is_failure(frame)]


def test_the_recordings_are_complete() -> None:
    assert len(whole_frames()) >= 600
    assert len(shown_frames()) == 160
    assert len(FAILURES) >= 30


def test_every_declared_request_was_recorded() -> None:
    recorded = {frame.declaration.code for frame in whole_frames() if not frame.command.is_response}
    assert recorded == set(REQUESTS) - NOT_RECORDED


@pytest.mark.parametrize("frame", GOOD_FRAMES, ids=[frame.label for frame in GOOD_FRAMES])
def test_a_recorded_frame_is_read_and_written_again_without_loss(frame: GoldenFrame) -> None:
    value = read(frame.declaration, frame.command)
    again = write(value, as_in=frame.command)
    assert (again.code, again.flag) == (frame.command.code, frame.command.flag)
    kept = {name: text for name, text in frame.command.ext.items() if name not in BESIDE_THE_STRUCT}
    assert kept.items() <= again.ext.items()
    assert_same_body(frame.command.body, again.body)
    assert read(frame.declaration, again) == value


@pytest.mark.parametrize("frame", shown_frames(), ids=[frame.label for frame in shown_frames()])
def test_a_recorded_header_is_read(frame: GoldenFrame) -> None:
    if is_failure(frame):
        with pytest.raises(RequestFailed):
            read(frame.declaration, frame.command)
    else:
        read(frame.declaration, frame.command)


@pytest.mark.parametrize("frame", FAILURES, ids=[frame.label for frame in FAILURES])
def test_a_recorded_failure_has_a_code_and_a_remark(frame: GoldenFrame) -> None:
    with pytest.raises(RequestFailed) as caught:
        read(frame.declaration, frame.command)
    assert caught.value.code == frame.command.code
    assert (frame.command.remark or "") in caught.value.remark


def assert_same_body(original: bytes, again: bytes) -> None:
    if original != again:
        assert_holds(parse(again), parse(original), "body")


def assert_holds(ours: Any, theirs: Any, where: str) -> None:
    """All that they said, we say too. Ids may be numbers or text as keys; we may add members they left out."""
    if isinstance(theirs, dict):
        said = {str(key): value for key, value in ours.items()}
        for key, value in theirs.items():
            if not str(key).endswith("TimeStampStr"):  # a time as text, which no client reads
                assert_holds(said[str(key)], value, f"{where}.{key}")
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), where
        for mine, other in zip(ours, theirs, strict=True):
            assert_holds(mine, other, where)
    else:
        assert ours == theirs, where
