"""Common pulls, read in one pass: what is taken is what the general path reads, and all else is left alone."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.model.ids import QueueOffset
from ariane.wire.codes import HeaderFlag, RequestCode, Serialization
from ariane.wire.exchange import declaration_of, read_request, request_command
from ariane.wire.fast.json_headers import json_pull_frames
from ariane.wire.frame import FrameDecoder, FrameLimits, encode_frame
from ariane.wire.requests.pull import LitePull, Pull, PullMessage

PULL = PullMessage(
    consumer_group="billing", topic="orders", queue_id=1, queue_offset=QueueOffset(7), max_msg_nums=32, sys_flag=3,
    commit_offset=QueueOffset(5), suspend_timeout_millis=15_000, sub_version=0, subscription="*", expression_type="TAG",
)  # fmt: skip
NAMES = [field.name for field in msgspec.structs.fields(Pull)]
int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=20)


def frame(request: Pull = PULL, opaque: int = 7) -> bytes:
    return encode_frame(request_command(request, opaque=opaque))


def taken(data: bytes, position: int = 0, limits: FrameLimits = FrameLimits()) -> list[tuple[int, int, str]]:
    return [(end, opaque, fields.topic) for end, opaque, fields, _ in json_pull_frames(data, position, limits)]


def general(data: bytes) -> Pull:
    decoder = FrameDecoder()
    decoder.feed(data)
    command = next(decoder)
    kind = PullMessage if command.code == RequestCode.PULL_MESSAGE else LitePull
    asked = read_request(declaration_of(kind), command)
    assert isinstance(asked, Pull)
    return asked


def values(request: Pull) -> dict[str, object]:
    return {name: getattr(request, name) for name in NAMES}


def test_frames_back_to_back_are_all_taken_from_the_given_start() -> None:
    one = frame()
    assert taken(one * 3) == [(len(one) * n, 7, "orders") for n in (1, 2, 3)]
    assert taken(one * 2, len(one)) == [(2 * len(one), 7, "orders")]


@pytest.mark.parametrize("missing", [1, 5, 6, 100])
def test_a_frame_that_is_not_whole_is_left_alone(missing: int) -> None:
    one = frame()
    assert taken(one + one[:-missing]) == [(len(one), 7, "orders")]


@pytest.mark.parametrize("limits", [FrameLimits(frame_bytes_max=100), FrameLimits(header_bytes_max=50)])
def test_a_frame_above_a_limit_is_left_alone(limits: FrameLimits) -> None:
    assert taken(frame(), 0, limits) == []


def test_a_header_that_may_pass_a_limit_on_fields_is_left_alone() -> None:
    assert taken(frame(msgspec.structs.replace(PULL, subscription="x" * 2000))) == []


def test_lengths_that_contradict_each_other_are_left_alone() -> None:
    one = frame()
    for length in (-1, 0, 3, 20, -(2**31)):
        assert taken(length.to_bytes(4, "big", signed=True) + one[4:]) == []


def test_another_serialisation_an_answer_and_a_one_way_call_are_left_alone() -> None:
    binary = request_command(PULL, opaque=7, serialization=Serialization.BINARY)
    response, oneway = request_command(PULL, opaque=7), request_command(PULL, opaque=7, oneway=True)
    response.flag = HeaderFlag.RESPONSE
    for command in (binary, response, oneway):
        assert taken(encode_frame(command)) == []


@given(
    kind=st.sampled_from([PullMessage, LitePull]),
    names=st.tuples(texts, texts),
    int32s=st.tuples(int32, int32, int32),
    int64s=st.tuples(int64, int64, int64, int64),
    options=st.tuples(st.none() | texts, st.none() | texts, st.none() | int32),
    opaque=int32,
)
def test_the_fields_are_those_of_the_general_path(
    kind: type[PullMessage | LitePull],
    names: tuple[str, str],
    int32s: tuple[int, int, int],
    int64s: tuple[int, int, int, int],
    options: tuple[str | None, str | None, int | None],
    opaque: int,
) -> None:
    numbers = dict(zip(("queue_id", "max_msg_nums", "sys_flag"), int32s, strict=True))
    offsets = ("queue_offset", "commit_offset", "suspend_timeout_millis", "sub_version")
    numbers |= dict(zip(offsets, int64s, strict=True))
    more = dict(zip(("subscription", "expression_type", "max_msg_bytes"), options, strict=True))
    asked: dict[str, Any] = {"consumer_group": names[0], "topic": names[1], **numbers, **more}
    data = frame(kind(**asked), opaque)
    ((end, number, fields, _),) = json_pull_frames(data, 0, FrameLimits())
    assert (end, number) == (len(data), opaque)
    assert values(fields) == values(general(data))


@given(st.binary(max_size=60), st.integers(0, 80))
def test_any_bytes_are_left_alone(data: bytes, position: int) -> None:
    assert taken(data, position) == []


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_pull_with_any_byte_changed_is_taken_as_it_is_read_or_left(place: int, byte: int) -> None:
    data = bytearray(frame())
    data[place % len(data)] = byte
    for _, _, fields, _ in json_pull_frames(bytes(data), 0, FrameLimits()):
        assert values(fields) == values(general(bytes(data)))
