"""The receive buffer: the same commands as from FrameDecoder, however the bytes are split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.errors import FrameError
from ariane.transport.blocking import BUFFER_BYTES_MAX, ReceiveBuffer, ReceivedFrame
from ariane.wire.frame import Command, FrameDecoder, FrameLimits, encode_frame


def received(buffer: ReceiveBuffer, data: bytes, most: int) -> list[ReceivedFrame]:
    """The frames of `data` when each read returns at most `most` bytes."""
    frames: list[ReceivedFrame] = []
    while True:
        while (received_frame := buffer.next_frame()) is not None:
            frames.append(received_frame)
        if not data:
            return frames
        free = buffer.get_buffer()
        count = min(len(free), most, len(data))
        free[:count] = data[:count]
        buffer.buffer_updated(count)
        data = data[count:]


def frame(opaque: int, body: bytes) -> bytes:
    return encode_frame(Command(code=0, opaque=opaque, body=body))


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(1, 700))
def test_commands_and_bodies_are_those_of_the_decoder_in_any_split(bodies: list[bytes], most: int) -> None:
    data = b"".join(frame(number, body) for number, body in enumerate(bodies))
    decoder = FrameDecoder()
    decoder.feed(data)
    frames = received(ReceiveBuffer(FrameLimits()), data, most)
    assert [(item.command.opaque, bytes(item.body.view)) for item in frames] == [
        (item.opaque, item.body) for item in decoder
    ]


def test_bodies_stay_valid_when_the_buffer_is_full_and_more_arrives() -> None:
    bodies = [bytes([number]) * 100_000 for number in range(3 * BUFFER_BYTES_MAX // 100_000)]
    data = b"".join(frame(number, body) for number, body in enumerate(bodies))
    frames = received(ReceiveBuffer(FrameLimits()), data, 70_000)
    assert [bytes(item.body.view) for item in frames] == bodies
    assert 2 <= len({id(item.body.memory) for item in frames}) < len(frames)


def test_a_frame_larger_than_the_buffer_gets_a_buffer_of_its_own() -> None:
    body = bytes(2 * BUFFER_BYTES_MAX)
    (large,) = received(ReceiveBuffer(FrameLimits()), frame(7, body), 1 << 20)
    assert large.command.opaque == 7
    assert large.body.view == body


@pytest.mark.parametrize(
    ("begins", "reason"),
    [
        (b"HTTP/1.1", "at most"),
        (b"HTTP", "at most"),
        ((3).to_bytes(4, "big"), "at least 4 expected"),
        ((100).to_bytes(4, "big") + (97).to_bytes(4, "big"), "cannot be longer"),
        ((2**31 - 1).to_bytes(4, "big") + (20).to_bytes(4, "big"), "at most"),
    ],
)
def test_bytes_that_cannot_begin_a_frame_are_refused_before_memory_is_allocated(begins: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        received(ReceiveBuffer(FrameLimits()), begins, 8)
