"""A minimal frame parser of the recorder: enough to classify frames and to choose which ones to keep.

Deliberately not Ariane's codec: golden data must not depend on the code that it tests.
"""

import json
import struct
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

FRAMES_KEPT = 3
FRAME_BYTES_MAX = 64 * 1024
RESPONSE_BIT, ONEWAY_BIT = 0x1, 0x2
LANGUAGES = {0: "JAVA", 9: "GO"}

Direction = Literal["client_to_server", "server_to_client"]
Peer = Literal["namesrv", "broker"]


@dataclass(frozen=True, slots=True)
class Header:
    binary: bool
    code: int
    language: str
    version: int
    opaque: int
    flag: int
    fields: dict[str, str]

    @property
    def kind(self) -> Literal["req", "resp", "oneway"]:
        if self.flag & RESPONSE_BIT:
            return "resp"
        return "oneway" if self.flag & ONEWAY_BIT else "req"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One recorded frame; `answers_code` is the request code of a response, else None."""

    client: str
    server: str
    direction: Direction
    peer: Peer
    header: Header
    answers_code: int | None
    frame: bytes

    def line(self) -> str:
        responses = {} if self.answers_code is None else {"answers_code": self.answers_code}
        shown = {"client": self.client, "server": self.server, "direction": self.direction, "kind": self.header.kind}
        return json.dumps({**shown, **responses, "peer": self.peer, "frame": self.frame.hex()})


def parse_header(frame: bytes) -> Header:
    """Read the header of a whole frame (length word included)."""
    (marked_length,) = struct.unpack_from(">I", frame, 4)
    text = frame[8 : 8 + (marked_length & 0xFFFFFF)]
    return _binary_header(text) if marked_length >> 24 else _json_header(text)


def _json_header(text: bytes) -> Header:
    raw = json.loads(text)
    fields = {str(key): str(value) for key, value in (raw.get("extFields") or {}).items()}
    return Header(False, raw["code"], str(raw["language"]), raw["version"], raw["opaque"], raw["flag"], fields)


def _binary_header(text: bytes) -> Header:
    code, language, version, opaque, flag, remark_length = struct.unpack_from(">hbhiii", text)
    at = 17 + remark_length
    (fields_length,) = struct.unpack_from(">i", text, at)
    at += 4
    end = at + fields_length
    fields: dict[str, str] = {}
    while at < end:
        (key_length,) = struct.unpack_from(">h", text, at)
        key = text[at + 2 : at + 2 + key_length].decode()
        at += 2 + key_length
        (value_length,) = struct.unpack_from(">i", text, at)
        fields[key] = text[at + 4 : at + 4 + value_length].decode()
        at += 4 + value_length
    return Header(True, code, LANGUAGES.get(language, str(language)), version, opaque, flag, fields)


def choose(frames: Iterable[Recorded]) -> list[Recorded]:
    """Keep up to three frames of each kind, the most different ones first."""
    kinds: defaultdict[tuple[object, ...], list[Recorded]] = defaultdict(list)
    for item in frames:
        if len(item.frame) <= FRAME_BYTES_MAX:
            head = item.header
            kinds[
                (item.client, item.peer, head.binary, item.direction, head.kind, head.code, item.answers_code)
            ].append(item)
    return [kept for alike in kinds.values() for kept in _most_different(alike)]


def _most_different(alike: list[Recorded]) -> list[Recorded]:
    """Greedily take the frame that shows most features not seen yet; among equals, the earliest."""
    left, seen, kept = list(alike), set[str](), list[Recorded]()
    while left and len(kept) < FRAMES_KEPT:
        best = max(left, key=lambda item: len(_features(item) - seen))
        seen |= _features(best)
        kept.append(best)
        left.remove(best)
    return kept


def _features(item: Recorded) -> set[str]:
    """What distinguishes frames of one code: field names, message property names, flags, whether there is a body."""
    head = item.header
    features = set(head.fields) | {f"flag={head.flag}", f"version={head.version}"}
    features |= {
        f"{name}={head.fields[name]}" for name in ("f", "sysFlag", "compressed", "changed") if name in head.fields
    }
    properties = head.fields.get("i") or head.fields.get("properties") or ""
    features |= {f"property {pair.split(chr(1))[0]}" for pair in properties.split(chr(2)) if pair}
    (marked_length,) = struct.unpack_from(">I", item.frame, 4)
    features.add("body" if len(item.frame) > 8 + (marked_length & 0xFFFFFF) else "no body")
    return features
