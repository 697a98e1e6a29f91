"""The fast decoder of sends: it yields what the general decoder yields, and leaves all else alone."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.wire.codes import HeaderFlag, Serialization
from ariane.wire.exchange import declaration_of, read_request, request_command
from ariane.wire.fast.fields import SendFields
from ariane.wire.fast.json_headers import json_send_frames
from ariane.wire.fields import Request
from ariane.wire.frame import FrameDecoder, FrameLimits, encode_frame
from ariane.wire.requests.send import SendBatch, SendMessageV2

SEND = SendMessageV2(
    producer_group="shop", topic="orders", default_topic="TBW102", default_topic_queue_nums=4, queue_id=1, sys_flag=0,
    born_timestamp=1_700_000_000_000, flag=0, properties="TAGS\x01paid\x02", body=b"hello",
)  # fmt: skip
NAMES = msgspec.structs.fields(SendFields)
int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)


def frame(request: SendMessageV2 = SEND, opaque: int = 7) -> bytes:
    return encode_frame(request_command(request, opaque=opaque))


def taken(data: bytes, position: int = 0, limits: FrameLimits = FrameLimits()) -> list[tuple[int, int, str, bytes]]:
    return [
        (end, opaque, fields.topic, data[body_at:end])
        for end, opaque, fields, body_at in json_send_frames(data, position, limits)
    ]


def test_frames_back_to_back_are_all_taken() -> None:
    one = frame()
    assert taken(one * 3) == [(len(one) * n, 7, "orders", b"hello") for n in (1, 2, 3)]


def test_single_sends_and_batches_are_decoded_in_their_order() -> None:
    batch = SendBatch(**{name: getattr(SEND, name) for name in SEND.__struct_fields__})
    single, together = frame(), encode_frame(request_command(batch, opaque=8))
    data = single + together * 2 + single
    assert [opaque for _, opaque, _, _ in taken(data)] == [7, 8, 8, 7]


def test_a_frame_that_does_not_pass_the_check_ends_the_run() -> None:
    data = frame() + frame(msgspec.structs.replace(SEND, topic="secret", body=b"!")) + frame()
    checked: list[tuple[str, bytes]] = []

    def check(request: Request[Any], header: bytes, body: bytes) -> bool:
        assert isinstance(request, SendFields)
        assert b'"code":310' in header
        checked.append((request.topic, body))
        return request.topic == "orders"

    assert [fields.topic for _, _, fields, _ in json_send_frames(data, 0, FrameLimits(), check)] == ["orders"]
    assert checked == [("orders", b"hello"), ("secret", b"!")]


def test_it_begins_at_the_given_position() -> None:
    one = frame()
    assert taken(one * 2, len(one)) == [(2 * len(one), 7, "orders", b"hello")]


@pytest.mark.parametrize("missing", [1, 5, 6, 100])
def test_a_frame_that_is_not_whole_is_left_alone(missing: int) -> None:
    one = frame()
    assert taken(one + one[:-missing]) == [(len(one), 7, "orders", b"hello")]


@pytest.mark.parametrize("limits", [FrameLimits(frame_bytes_max=100), FrameLimits(header_bytes_max=50)])
def test_a_frame_above_a_limit_is_left_alone(limits: FrameLimits) -> None:
    assert taken(frame(), 0, limits) == []


def test_a_header_that_may_pass_a_limit_on_fields_is_left_alone() -> None:
    assert taken(frame(msgspec.structs.replace(SEND, properties="x" * 2000))) == []


def test_lengths_that_contradict_each_other_are_left_alone() -> None:
    one = frame()
    for length in (-1, 0, 3, 20, -(2**31)):
        assert taken(length.to_bytes(4, "big", signed=True) + one[4:]) == []


def test_another_serialisation_an_answer_and_a_one_way_call_are_left_alone() -> None:
    binary = request_command(SEND, opaque=7, serialization=Serialization.BINARY)
    response, oneway = request_command(SEND, opaque=7), request_command(SEND, opaque=7, oneway=True)
    response.flag = HeaderFlag.RESPONSE
    for command in (binary, response, oneway):
        assert taken(encode_frame(command)) == []


@given(
    texts=st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=20), min_size=5, max_size=5),
    int32s=st.lists(int32, min_size=6, max_size=6),
    born=int64,
    batch=st.booleans(),
    body=st.binary(max_size=100),
    opaque=int32,
)
def test_the_fields_are_those_of_the_general_decoder(
    texts: list[str | None], int32s: list[int], born: int, batch: bool, body: bytes, opaque: int
) -> None:
    request = SendMessageV2(
        producer_group=texts[0] or "",
        topic=texts[1] or "",
        default_topic=texts[2] or "",
        default_topic_queue_nums=int32s[0],
        queue_id=int32s[1],
        sys_flag=int32s[2],
        born_timestamp=born,
        flag=int32s[3],
        properties=texts[3],
        reconsume_times=int32s[4],
        max_reconsume_times=int32s[5],
        batch=batch,
        broker_name=texts[4],
        body=body,
    )
    data = frame(request, opaque)
    ((end, number, fields, body_at),) = json_send_frames(data, 0, FrameLimits())
    decoder = FrameDecoder()
    decoder.feed(data)
    general = read_request(declaration_of(SendMessageV2), next(decoder))
    assert (end, number, data[body_at:end]) == (len(data), opaque, body)
    shared = [field.name for field in NAMES if hasattr(general, field.name) and field.name != "body"]
    assert len(shared) == 14
    assert {name: getattr(fields, name) for name in shared} == {name: getattr(general, name) for name in shared}


@given(st.binary(max_size=60), st.integers(0, 80))
def test_any_bytes_are_left_alone(data: bytes, position: int) -> None:
    assert taken(data, position) == []


@given(st.integers(0, 200), st.integers(0, 255))
def test_a_send_with_any_byte_changed_is_taken_or_left_and_never_an_error(place: int, byte: int) -> None:
    data = bytearray(frame())
    data[place % len(data)] = byte
    taken(bytes(data))
