"""The frames of the load generator are valid requests for Ariane's decoders."""

from typing import Any

import pytest

from ariane.wire.codes import RequestCode
from ariane.wire.codes import Serialization as WireSerialization
from ariane.wire.exchange import REQUESTS, read_request
from ariane.wire.frame import Command, FrameDecoder
from ariane.wire.properties import decode_properties
from ariane.wire.record.batch import decode_batch
from ariane.wire.requests.pull import PullMessage
from ariane.wire.requests.send import Send
from bench.load.plan import Kind, LoadPlan, Serialization, Wire
from bench.load.rocketmq import OFFSET_FIRST, OPAQUE_FIRST
from bench.load.wires import ring_of


def plan(kind: Kind, wire: Wire = Wire.ROCKETMQ, **more: Any) -> LoadPlan:
    return LoadPlan(
        wire=wire,
        kind=kind,
        addresses=(),
        connections=1,
        in_flight=1,
        **({"body_bytes": 100} | more),
    )


def commands(load_plan: LoadPlan, count: int) -> list[Command]:
    decoder = FrameDecoder()
    for piece in ring_of(load_plan).take(count):
        decoder.feed(bytes(piece.data))
    return list(decoder)


def test_a_send_has_what_a_java_client_sends() -> None:
    first, second = commands(plan(Kind.SEND, queues=2), 2)
    request = read_request(REQUESTS[RequestCode.SEND_MESSAGE_V2], second)
    assert isinstance(request, Send)
    assert (first.opaque, second.opaque) == (OPAQUE_FIRST, OPAQUE_FIRST + 1)
    assert (request.topic, request.queue_id, len(request.body)) == ("bench-0000", 1, 100)
    assert decode_properties((request.properties or "").encode()).keys() == {"KEYS", "UNIQ_KEY", "WAIT", "TAGS"}


@pytest.mark.parametrize("kind", [Kind.SEND, Kind.BATCH, Kind.PULL])
def test_a_binary_header_says_what_a_json_header_says(kind: Kind) -> None:
    as_json, as_binary = (
        commands(plan(kind, messages_a_request=2, filled=OFFSET_FIRST + 96, serialization=serialization), 3)
        for serialization in Serialization
    )
    for text, binary in zip(as_json, as_binary, strict=True):
        assert binary.serialization is WireSerialization.BINARY
        assert (binary.code, binary.opaque, binary.language_code) == (text.code, text.opaque, text.language_code)
        assert without_birth(binary.ext) == without_birth(text.ext)
        assert binary.body == text.body


def without_birth(ext: dict[str, str]) -> dict[str, str]:
    """The time at which the frames were encoded may differ."""
    return {name: value for name, value in ext.items() if name != "g"}


def test_neighbours_go_to_different_topics() -> None:
    requests = [read_request(REQUESTS[310], command) for command in commands(plan(Kind.SEND, topics=3, queues=1), 4)]
    assert [request.topic for request in requests if isinstance(request, Send)] == [
        "bench-0000",
        "bench-0001",
        "bench-0002",
        "bench-0000",
    ]


def test_a_batch_contains_the_messages_with_keys_of_their_own() -> None:
    (command,) = commands(plan(Kind.BATCH, messages_a_request=32), 1)
    request = read_request(REQUESTS[RequestCode.SEND_BATCH_MESSAGE], command)
    assert isinstance(request, Send)
    assert request.is_batch
    items = decode_batch(request.body, count_max=32)
    assert len({decode_properties(item.properties)["UNIQ_KEY"] for item in items}) == 32


def test_pulls_walk_over_all_queues_side_by_side() -> None:
    requests = [
        read_request(REQUESTS[RequestCode.PULL_MESSAGE], command)
        for command in commands(plan(Kind.PULL, queues=2, messages_a_request=32, filled=OFFSET_FIRST + 96), 4)
    ]
    positions = [(request.queue_id, request.queue_offset) for request in requests if isinstance(request, PullMessage)]
    assert positions == [(0, 1000), (1, 1000), (0, 1032), (1, 1032)]


def test_a_publish_to_nats_names_the_inbox_of_its_connection() -> None:
    (piece,) = ring_of(plan(Kind.SEND, Wire.NATS, body_bytes=5)).take(1, connection=12)
    assert bytes(piece.data).startswith(b"PUB bench.0000.0 _INBOX.012.000000 5\r\n")


def test_redis_ids_for_reading_back_grow_from_round_to_round() -> None:
    ring = ring_of(plan(Kind.FILL, Wire.REDIS, body_bytes=5))
    for _ in ring.take(10_000):
        pass
    (piece,) = ring.take(1)
    assert b"\r\n1-100010000\r\n" in bytes(piece.data)
