"""Frames with binary headers as Java writes them, and changes that a hostile peer would make to them."""

from typing import Any

from hypothesis import strategies as st

from ariane.wire.codes import Serialization
from ariane.wire.exchange import request_command
from ariane.wire.fields import Request
from ariane.wire.frame import encode_frame


def binary_frame(request: Request[Any], opaque: int = 7, flag: int = 0, **more: str) -> bytes:
    """`more` are header fields behind those of the request."""
    command = request_command(request, opaque=opaque, serialization=Serialization.BINARY)
    command.flag, command.language = flag, "JAVA"
    command.ext_texts = command.ext | more
    return encode_frame(command)


def with_header(frame: bytes, header: bytes) -> bytes:
    """The frame with another header, and lengths that fit it."""
    body = frame[8 + int.from_bytes(frame[5:8], "big") :]
    prefix = (4 + len(header) + len(body)).to_bytes(4, "big") + (1 << 24 | len(header)).to_bytes(4, "big")
    return prefix + header + body


def header_of(frame: bytes) -> bytes:
    return frame[8 : 8 + int.from_bytes(frame[5:8], "big")]


def fields_of(*pairs: tuple[str, str]) -> bytes:
    """Header fields as they are written, in any order and number."""
    return b"".join(
        len(name).to_bytes(2, "big") + name.encode() + len(value.encode()).to_bytes(4, "big") + value.encode()
        for name, value in pairs
    )


def replaced(frame: bytes, old: bytes, new: bytes) -> bytes:
    """The frame with something else in its header, whose length of fields fits."""
    header = header_of(frame)
    assert old in header
    header = header.replace(old, new, 1)
    return with_header(frame, header[:17] + (len(header) - 21).to_bytes(4, "big") + header[21:])


@st.composite
def changed_frames(draw: st.DrawFn, frames: st.SearchStrategy[bytes]) -> bytes:
    """A frame with up to three bytes of it changed, or a part of it left out or doubled."""
    data = bytearray(draw(frames))
    for place, byte in draw(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3)):
        data[place % len(data)] = byte
    begin = draw(st.integers(0, len(data)))
    piece = data[begin : begin + draw(st.integers(0, 30))]
    how = draw(st.sampled_from(["", "", "out", "twice"]))
    if how:
        changed = data[:begin] + (piece * 2 if how == "twice" else b"") + data[begin + len(piece) :]
        data[:] = (len(changed) - 4).to_bytes(4, "big", signed=True) + changed[4:]
    return bytes(data)
