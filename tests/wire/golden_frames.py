"""Frames between real clients and real Apache servers. See tests/golden/README.md."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ariane.wire.codes import Serialization
from ariane.wire.exchange import REQUESTS, Declaration
from ariane.wire.frame import Command, FrameDecoder, decode_header

_GOLDEN = Path(__file__).parent.parent / "golden"


class GoldenFrame(NamedTuple):
    declaration: Declaration
    command: Command
    label: str


@cache
def raw_frames() -> tuple[bytes, ...]:
    """Frames byte for byte, JSON and binary: Java, Go and Node clients and brokers against Apache's servers."""
    return tuple(bytes.fromhex(row["frame"]) for row in _rows())


@cache
def whole_frames() -> tuple[GoldenFrame, ...]:
    """The same, decoded."""
    return tuple(_labelled(row, _command(frame)) for row, frame in zip(_rows(), raw_frames(), strict=True))


@cache
def _rows() -> tuple[dict[str, str], ...]:
    with gzip.open(_GOLDEN / "frames-4.9.8.jsonl.gz", "rt", encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)


def _command(frame: bytes) -> Command:
    decoder = FrameDecoder()
    decoder.feed(frame)
    (command,) = decoder
    return command


@cache
def shown_frames() -> tuple[GoldenFrame, ...]:
    """Older notes of such frames, C++ among them: the header as text, cut at 160 characters, and bodies that are text.

    A cut header cannot be read: those are left out. So is a body that was cut.
    """
    with (_GOLDEN / "frames.jsonl").open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return tuple(_labelled(row, _shown_command(row)) for row in rows if _is_json(row["header_raw"]))


def _shown_command(row: dict[str, str]) -> Command:
    body = row.get("body", "").encode()
    is_whole = len(body) == int(row["body_length"])
    return decode_header(Serialization.JSON, row["header_raw"].encode(), body if is_whole else b"")


def _labelled(row: dict[str, str], command: Command) -> GoldenFrame:
    declaration = REQUESTS[int(row.get("answers_code", command.code))]
    return GoldenFrame(declaration, command, f"{row['client']} {row['kind']} {declaration.code.name}")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
