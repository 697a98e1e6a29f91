"""Benchmark of header and record codecs: CPU us per frame on one core, for real frames, in both serialisations.

    python -m bench.wire

Frames are those that real clients and servers of Apache RocketMQ sent each other (tests/golden/). "target" is what the
prototypes of the hot path reached on a quiet machine; rows that end in "json.loads" or "json.dumps" do the same work
with the json module, in the same run.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ariane.model.ids import QueueOffset
from ariane.wire.codes import RequestCode, Serialization
from ariane.wire.exchange import REQUESTS, Declaration, read_request, response_command
from ariane.wire.frame import Command, FrameDecoder, encode_frame
from ariane.wire.requests.send import SendResponse
from bench import records
from bench.timing import us_per_call

FRAMES = Path(__file__).parents[1] / "tests" / "golden" / "frames-4.9.8.jsonl.gz"
CHUNK = 64  # frames in one read of a busy connection

TARGETS_US = {
    "JSON: SEND_MESSAGE_V2, frame to struct": 1.1,  # header decode 0.66, field reads and checks 0.45
    "JSON: SEND_MESSAGE_V2, response to frame": 0.57,  # response 0.49, prefix 0.08
}


@dataclass(frozen=True)
class Golden:
    kind: Serialization
    is_request: bool
    data: bytes

    @property
    def header(self) -> bytes:
        return self.data[8 : 8 + int.from_bytes(self.data[5:8], "big")]


def main() -> None:
    print(f"{'CPU us per frame or record':<48}{'us':>9}{'target':>9}{'ratio':>7}")
    for name, us in rows():
        target = TARGETS_US.get(name, records.TARGETS_US.get(name))
        comparison = f"{target:9.3f}{us / target:7.2f}" if target else ""
        print(f"{name:<48}{us:9.3f}{comparison}")


def rows() -> Iterator[tuple[str, float]]:
    frames = list(_golden())
    for kind in Serialization:
        same = [frame for frame in frames if frame.kind is kind]
        yield from _all_frames(kind.name, same)
        yield from _sends(kind.name, same)
    yield from records.rows()


def _golden() -> Iterator[Golden]:
    with gzip.open(FRAMES, "rt") as lines:
        for line in map(json.loads, lines):
            data = bytes.fromhex(line["frame"])
            yield Golden(Serialization(data[4]), line["kind"] != "resp", data)


def _all_frames(kind: str, frames: list[Golden]) -> Iterator[tuple[str, float]]:
    """All recorded frames, in their recorded mix."""
    stream = b"".join(frame.data for frame in frames)
    commands = _decoded(stream)
    count = len(commands)
    yield f"{kind}: {count} real frames, decoded", us_per_call(lambda: _decoded(stream)) / count
    for command in commands:
        command.ext  # noqa: B018 - reads the fields, so that encoding starts from values
    yield f"{kind}: {count} real frames, encoded", us_per_call(lambda: list(map(encode_frame, commands))) / count


def _sends(kind: str, frames: list[Golden]) -> Iterator[tuple[str, float]]:
    """The most important frame of a broker: header and fields to the typed struct, and the response back."""
    declaration = REQUESTS[RequestCode.SEND_MESSAGE_V2]
    sends = [f for f in frames if f.is_request and _decoded(f.data)[0].code == declaration.code]
    send = min(
        sends, key=lambda frame: len(frame.data)
    )  # a plain send; the longest are retries with a dozen properties
    chunk = send.data * CHUNK
    yield f"{kind}: SEND_MESSAGE_V2, frame to struct", us_per_call(lambda: _structs(declaration, chunk)) / CHUNK
    if send.kind is Serialization.JSON:
        yield f"{kind}: SEND_MESSAGE_V2, json.loads", us_per_call(lambda: json.loads(send.header))
    command, response = _decoded(send.data)[0], _send_response()
    yield (
        f"{kind}: SEND_MESSAGE_V2, response to frame",
        us_per_call(lambda: encode_frame(response_command(command, response))),
    )
    if send.kind is Serialization.JSON:
        header = json.loads(encode_frame(response_command(command, response))[8:])
        yield f"{kind}: SEND_MESSAGE_V2 response, json.dumps", us_per_call(lambda: json.dumps(header).encode())


def _decoded(data: bytes) -> list[Command]:
    decoder = FrameDecoder()
    decoder.feed(data)
    return list(decoder)


def _structs(declaration: Declaration, data: bytes) -> None:
    for command in _decoded(data):
        read_request(declaration, command)


def _send_response() -> SendResponse:
    return SendResponse(msg_id="7F00000100002A9F00000000000001F4", queue_id=3, queue_offset=QueueOffset(123456))


if __name__ == "__main__":
    main()
