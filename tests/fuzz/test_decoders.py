"""Every decoder of untrusted bytes, against mutations of real bytes."""

import random
from functools import cache

import pytest

from ariane.wire.codes import RequestCode, Serialization
from ariane.wire.compression import compress, decompress
from ariane.wire.exchange import REQUESTS, read_request
from ariane.wire.frame import Command, FrameDecoder, decode_header
from ariane.wire.json import fastjson
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.properties import decode_properties
from ariane.wire.record.batch import BatchItem, decode_batch, encode_batch
from ariane.wire.record.read import RecordView, decode, decode_all, verify, walk
from ariane.wire.registration import decode_cluster_map, decode_registration, decode_route
from ariane.wire.requests.brokers import RegisterBroker
from ariane.wire.sys_flag import Compression, SysFlag, with_compression
from tests.fuzz.mutation import survives
from tests.wire.golden import FILE_BYTES, golden_store
from tests.wire.golden_frames import raw_frames, whole_frames

LIMIT = 1 << 20


@cache
def commands() -> list[Command]:
    return [golden.command for golden in whole_frames()]


@cache
def records() -> list[bytes]:
    log = golden_store("clean").commit_log[:FILE_BYTES]
    views = [view for view in walk(log) if isinstance(view, RecordView)]
    return [log[view.position : view.position + view.size] for view in views]


def header_of(frame: bytes) -> bytes:
    return frame[8 : 8 + int.from_bytes(frame[5:8], "big")]


def bodies(*codes: RequestCode) -> list[bytes]:
    """The JSON bodies of requests with these codes and of responses to them."""
    recorded = [golden.command.body for golden in whole_frames() if golden.declaration.code in codes]
    return [body for body in recorded if body.startswith(b"{")]


def test_frame_decoder_fed_in_pieces() -> None:
    rng = random.Random(1)

    def feed(data: bytes) -> None:
        decoder = FrameDecoder()
        while data:
            size = rng.randint(1, len(data))
            decoder.feed(data[:size])
            data = data[size:]
            for command in decoder:
                command.ext  # noqa: B018 - reads the fields

    assert survives(feed, raw_frames())


@pytest.mark.parametrize("kind", Serialization)
def test_header_decoder(kind: Serialization) -> None:
    headers = [header_of(frame) for frame in raw_frames() if frame[4] == kind]
    assert survives(lambda data: decode_header(kind, data, b"").ext, headers)


def test_every_request_struct_accepts_or_refuses_any_header_and_body() -> None:
    rng = random.Random(2)
    declarations = list(REQUESTS.values())
    headers = [header_of(frame) for frame in raw_frames() if frame[4] == Serialization.JSON]
    parts = [command.body for command in commands() if command.body]

    def read(data: bytes) -> None:
        command = decode_header(Serialization.JSON, data, rng.choice(parts))
        read_request(rng.choice(declarations), command)

    assert survives(read, headers)


def test_every_request_struct_accepts_or_refuses_any_body() -> None:
    rng = random.Random(3)
    requests = [command for command in commands() if not command.is_response and command.code in REQUESTS]

    def read(data: bytes) -> None:
        command = rng.choice(requests)
        changed = Command(code=command.code, ext_texts=command.ext, body=data)
        read_request(REQUESTS[command.code], changed)

    assert survives(read, [command.body for command in requests if command.body])


def test_fastjson_parser() -> None:
    texts = [command.body for command in commands() if command.body[:1] in (b"{", b"[")]
    assert survives(fastjson.parse, texts)


def test_route_parser() -> None:
    assert survives(decode_route, bodies(RequestCode.GET_ROUTEINFO_BY_TOPIC))


def test_cluster_parser() -> None:
    assert survives(decode_cluster_map, bodies(RequestCode.GET_BROKER_CLUSTER_INFO))


@pytest.mark.parametrize("compressed", [False, True])
def test_registration_body(compressed: bool) -> None:
    requests = [c for c in commands() if c.code == RequestCode.REGISTER_BROKER and not c.is_response]
    right = [c.body for c in requests if (c.ext.get("compressed") == "true") == compressed and c.body]

    def read(data: bytes) -> None:
        request = RegisterBroker(
            broker_name="b", broker_addr="127.0.0.1:1", cluster_name="c", broker_id=0, compressed=compressed, body=data
        )
        decode_registration(request, version=409)

    assert survives(read, right)


def test_record_decoder() -> None:
    def read(data: bytes) -> None:
        verify(data)
        for _ in walk(data):
            pass
        decode(data, check_crc=True)
        decode_all(data)

    assert survives(read, records())


def test_batch_decoder() -> None:
    batches = [encode_batch([BatchItem(record[:60], b"KEYS\x01k\x02")] * 5) for record in records()[:20]]
    assert survives(lambda data: decode_batch(data, count_max=100), batches)


def test_property_decoder() -> None:
    assert survives(decode_properties, [b"KEYS\x01a b\x02TAGS\x01T\x02WAIT\x01true\x02", "键\x01值\x02".encode()])


@pytest.mark.parametrize("kind", Compression)
def test_decompression(kind: Compression) -> None:
    flag = with_compression(SysFlag.COMPRESSED, kind)
    packed = [compress(record * 10, kind) for record in records()[:20]]
    assert survives(lambda data: decompress(data, flag, LIMIT), packed)


def test_message_ids() -> None:
    ids = [b"7F00000100002A9F0000000000000000", b"C0A8010A00002A9F000000000001E240", b"F" * 56]
    assert survives(lambda data: decode_offset_message_id(data.decode("latin-1")), ids)
