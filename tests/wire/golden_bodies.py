"""JSON bodies that real clients and servers sent. See tests/golden/README.md (`frames.jsonl`)."""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

_PATCHES = (
    b"",
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"'",
    b",",
    b":",
    b"\\",
    b"9" * 20,
    b"\xff",
    b"null",
    b"{}",
    b"-1",
    b"{1:",
)
_FRAMES = Path(__file__).parent.parent / "golden" / "frames.jsonl"


class GoldenBody(NamedTuple):
    client: str
    code: int
    """The request code: of the request, or of the request that this response belongs to."""
    is_response: bool
    data: bytes


@cache
def golden_bodies() -> tuple[GoldenBody, ...]:
    """The JSON bodies that are complete: the recording truncates long ones."""
    frames = [json.loads(line) for line in _FRAMES.read_text(encoding="utf-8").splitlines()]
    return tuple(
        GoldenBody(frame["client"], _code(frame), "answers_code" in frame, frame["body"].encode())
        for frame in frames
        if frame.get("body", "").startswith("{") and len(frame["body"].encode()) == frame["body_length"]
    )


def bodies_of(code: int, *, is_response: bool, client: str | None = None) -> list[bytes]:
    return [
        body.data
        for body in golden_bodies()
        if body.code == code and body.is_response == is_response and client in (None, body.client)
    ]


def _code(frame: dict[str, object]) -> int:
    code = frame.get("answers_code")
    if isinstance(code, int):
        return code
    header = str(frame["header_raw"])  # the recording cuts it at 160 characters, but the code stands in front
    return int(header.partition('"code":')[2].partition(",")[0])


@st.composite
def damaged(draw: st.DrawFn, bodies: tuple[bytes, ...]) -> bytes:
    """One of `bodies` with a few bytes lost, doubled or replaced by what a parser minds most."""
    data = bytearray(draw(st.sampled_from(bodies)))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = start + draw(st.integers(0, 3))
        data[start:end] = draw(st.sampled_from(_PATCHES))
    return bytes(data)
