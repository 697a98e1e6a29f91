"""Frames cut where they were received: the same commands as from the decoder, however the bytes are split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.errors import FrameError
from ariane.transport.receive_buffer import ARENA_BYTES, ReceiveBuffer, ReceivedFrame
from ariane.wire.frame import Command, FrameDecoder, FrameLimits, encode_frame


def received(arena: ReceiveBuffer, data: bytes, most: int) -> list[ReceivedFrame]:
    """What is cut from `data` when a socket gives at most so many bytes at a time."""
    cut: list[ReceivedFrame] = []
    while True:
        while (one := arena.cut()) is not None:
            cut.append(one)
        if not data:
            return cut
        room = arena.room()
        count = min(len(room), most, len(data))
        room[:count] = data[:count]
        arena.filled(count)
        data = data[count:]


def frame(opaque: int, body: bytes) -> bytes:
    return encode_frame(Command(code=0, opaque=opaque, body=body))


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(1, 700))
def test_commands_and_bodies_are_those_of_the_decoder_in_any_split(bodies: list[bytes], most: int) -> None:
    data = b"".join(frame(number, body) for number, body in enumerate(bodies))
    decoder = FrameDecoder()
    decoder.feed(data)
    found = received(ReceiveBuffer(FrameLimits()), data, most)
    assert [(one.command.opaque, bytes(one.body.view)) for one in found] == [(one.opaque, one.body) for one in decoder]


def test_bodies_stay_what_they_are_when_the_memory_is_full_and_more_comes() -> None:
    bodies = [bytes([number]) * 100_000 for number in range(3 * ARENA_BYTES // 100_000)]
    data = b"".join(frame(number, body) for number, body in enumerate(bodies))
    found = received(ReceiveBuffer(FrameLimits()), data, 70_000)
    assert [bytes(one.body.view) for one in found] == bodies
    assert 2 <= len({id(one.body.memory) for one in found}) < len(found)


def test_a_frame_larger_than_the_memory_gets_memory_of_its_own() -> None:
    body = bytes(2 * ARENA_BYTES)
    (found,) = received(ReceiveBuffer(FrameLimits()), frame(7, body), 1 << 20)
    assert found.command.opaque == 7
    assert found.body.view == body


@pytest.mark.parametrize(
    ("begins", "reason"),
    [
        (b"HTTP/1.1", "at most"),
        (b"HTTP", "at most"),
        ((3).to_bytes(4, "big"), "at least 4 expected"),
        ((100).to_bytes(4, "big") + (97).to_bytes(4, "big"), "cannot be longer"),
        ((100_000).to_bytes(4, "big") + (70_000).to_bytes(4, "big"), "a header of 70000 bytes"),
        ((2**31 - 1).to_bytes(4, "big") + (20).to_bytes(4, "big"), "at most"),
    ],
)
def test_what_cannot_begin_a_frame_is_refused_before_memory_is_taken_for_it(begins: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        received(ReceiveBuffer(FrameLimits()), begins, 8)
