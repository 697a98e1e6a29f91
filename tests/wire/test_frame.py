"""Framing: any split of the bytes, limits, and the vectors of the protocol sheet."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.errors import FrameError
from ariane.wire.codes import HeaderFlag, Serialization
from ariane.wire.frame import FRAME_BYTES_MAX, Command, FrameDecoder, FrameLimits, encode_frame

int32 = st.integers(-(2**31), 2**31 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=30)
commands = st.builds(
    Command,
    code=st.integers(0, 2**15 - 1),
    opaque=int32,
    flag=st.sampled_from([HeaderFlag.REQUEST, HeaderFlag.RESPONSE, HeaderFlag.ONEWAY]),
    version=st.integers(0, 612),
    remark=st.none() | st.text(min_size=1, max_size=50),
    ext_texts=st.dictionaries(texts, texts, max_size=8),
    body=st.binary(max_size=200),
    serialization=st.sampled_from(Serialization),
)


def meaning(command: Command) -> tuple[object, ...]:
    return (
        command.code, command.opaque, command.flag, command.version, command.language_code, command.remark, command.ext,
        command.body, command.serialization,
    )  # fmt: skip


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(c % (len(data) + 1) for c in cuts)})
    return [data[a:b] for a, b in pairwise(edges)]


@given(st.lists(commands, min_size=1, max_size=4), st.lists(st.integers(0, 10_000), max_size=20))
def test_commands_survive_any_split_of_their_bytes(sent: list[Command], cuts: list[int]) -> None:
    decoder = FrameDecoder()
    received = []
    for piece in cut(b"".join(map(encode_frame, sent)), cuts):
        decoder.feed(piece)
        received += list(decoder)
    assert [meaning(command) for command in received] == [meaning(command) for command in sent]
    assert not decoder.mid_frame


def test_an_incomplete_frame_waits_for_the_rest() -> None:
    frame = encode_frame(Command(code=105, body=b"body"))
    decoder = FrameDecoder()
    decoder.feed(frame[:-1])
    assert list(decoder) == []
    assert decoder.mid_frame
    decoder.feed(frame[-1:])
    assert [command.body for command in decoder] == [b"body"]
    assert not decoder.mid_frame


def test_a_large_frame_in_many_pieces_is_joined_once() -> None:
    body = bytes(range(256)) * 40_000
    frame = encode_frame(Command(code=10, body=body)) + encode_frame(Command(code=11))
    decoder = FrameDecoder()
    received = []
    for start in range(0, len(frame), 1000):
        decoder.feed(frame[start : start + 1000])
        received += list(decoder)
    assert [(command.code, command.body) for command in received] == [(10, body), (11, b"")]


def test_the_largest_frame_is_accepted_and_one_byte_more_is_not() -> None:
    overhead = len(encode_frame(Command(code=10)))
    frame = encode_frame(Command(code=10, body=bytes(FRAME_BYTES_MAX - overhead)))
    assert len(frame) == FRAME_BYTES_MAX
    decoder = FrameDecoder()
    decoder.feed(frame)
    assert len(list(decoder)) == 1
    with pytest.raises(FrameError, match="at most 16777216"):
        encode_frame(Command(code=10, body=bytes(FRAME_BYTES_MAX - overhead + 1)))


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        (struct.pack(">i", 16 * 1024 * 1024 - 3), "at most 16777216"),
        (struct.pack(">i", -1), "at least 4"),
        (struct.pack(">i", 3), "at least 4"),
        (struct.pack(">iI", 10, 7), "cannot be longer"),
        (bytes.fromhex("16030100"), "looks like TLS"),
    ],
)
def test_a_limit_is_checked_from_the_first_bytes_before_anything_is_buffered(prefix: bytes, message: str) -> None:
    decoder = FrameDecoder()
    decoder.feed(prefix)
    with pytest.raises(FrameError, match=message):
        next(decoder)


def test_limits_can_be_narrower() -> None:
    decoder = FrameDecoder(FrameLimits(frame_bytes_max=100, header_bytes_max=50))
    decoder.feed(struct.pack(">iI", 97, 20))
    with pytest.raises(FrameError, match="at most 100"):
        next(decoder)


def test_commands_before_an_invalid_one_are_decoded() -> None:
    decoder = FrameDecoder()
    decoder.feed(encode_frame(Command(code=1)) + encode_frame(Command(code=2)) + b"\xff\xff\xff\xff")
    assert [next(decoder).code, next(decoder).code] == [1, 2]
    with pytest.raises(FrameError):
        next(decoder)


def test_a_header_may_be_as_long_as_its_frame() -> None:
    ids = ",".join(["0A" * 16] * 65_536)
    response = Command(code=0, flag=1, opaque=7, ext_texts={"msgId": ids})
    for serialization in Serialization:
        response.serialization = serialization
        decoder = FrameDecoder()
        decoder.feed(encode_frame(response))
        assert next(decoder).ext == {"msgId": ids}
    with pytest.raises(FrameError, match="at most 16777216"):
        encode_frame(Command(code=10, remark="x" * FRAME_BYTES_MAX))


def test_the_binary_vector_of_the_protocol_sheet() -> None:
    frame = bytes.fromhex(
        "00000025 01000021 0069 00 0163 00000001 00000000 00000000 0000000c 0005 746f706963 00000001 54"
    )
    decoder = FrameDecoder()
    decoder.feed(frame)
    command = next(decoder)
    assert (command.code, command.version, command.opaque, command.ext) == (105, 355, 1, {"topic": "T"})
    command.language = "JAVA"
    assert encode_frame(command) == frame


def test_the_json_vector_of_the_protocol_sheet() -> None:
    header = (
        b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON",'
        b'"version":355}'
    )
    decoder = FrameDecoder()
    decoder.feed(bytes.fromhex("0000007f0000007b") + header)
    command = next(decoder)
    assert (command.code, command.version, command.opaque, command.ext) == (105, 355, 1, {"topic": "T"})
