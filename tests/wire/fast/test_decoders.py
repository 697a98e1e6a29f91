"""The fast decoders choose by the kind of header, and take what real clients send."""

from typing import Any

import msgspec
import pytest

from ariane.wire.codes import Serialization
from ariane.wire.exchange import REQUESTS, read_request, request_command
from ariane.wire.fast.decoders import (
    PullDecoder,
    SendDecoder,
    begins_with_pull,
    begins_with_send,
    header_texts,
)
from ariane.wire.fields import Request
from ariane.wire.frame import Command, FrameDecoder, FrameLimits, encode_frame
from ariane.wire.requests.pull import Pull
from ariane.wire.requests.send import Send
from tests.wire.fast.test_binary_headers_pull import PULL
from tests.wire.fast.test_binary_headers_send import SEND
from tests.wire.golden_frames import raw_frames

KINDS = list(Serialization)


def frame(request: Request[Any], kind: Serialization) -> bytes:
    return encode_frame(request_command(request, opaque=7, serialization=kind))


def command_of(data: bytes) -> Command:
    decoder = FrameDecoder()
    decoder.feed(data)
    return next(decoder)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_ends_where_the_other_kind_of_header_begins(kind: Serialization) -> None:
    other = KINDS[1 - KINDS.index(kind)]
    sends, pulls = frame(SEND, kind) * 2, frame(PULL, kind) * 2
    assert len(list(SendDecoder().frames(sends + frame(SEND, other), 0, FrameLimits()))) == 2
    assert len(list(PullDecoder().frames(pulls + frame(PULL, other), 0, FrameLimits()))) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_begins_with_a_send_and_what_with_a_pull(kind: Serialization) -> None:
    send, pull = frame(SEND, kind), frame(PULL, kind)
    assert [begins_with_send(data, 0) for data in (send, pull)] == [True, False]
    assert [begins_with_pull(data, 0) for data in (send, pull)] == [False, True]
    assert begins_with_send(pull + send, len(pull))
    assert not begins_with_send(send, 1)
    assert not begins_with_pull(pull, 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("begins", "decoder", "base", "least"),
    [(begins_with_send, SendDecoder, Send, 4), (begins_with_pull, PullDecoder, Pull, 3)],
    ids=["sends", "pulls"],
)
def test_requests_of_real_clients_are_taken_as_the_general_decoder_reads_them(
    kind: Serialization, begins: Any, decoder: Any, base: type[msgspec.Struct], least: int
) -> None:
    """Each twice: once it is new, and once it is known. One-way sends are left to the general decoder."""
    recorded = [data for data in raw_frames() if begins(data, 0) and data[4] == kind and not command_of(data).flag]
    assert len(recorded) >= least
    frames = decoder().frames
    for data in [*recorded, *recorded]:
        ((end, _, fields, body_at),) = frames(data, 0, FrameLimits())
        command = command_of(data)
        general = read_request(REQUESTS[command.code], command)
        names = [field.name for field in msgspec.structs.fields(base) if field.name != "body"]
        assert (end, data[body_at:]) == (len(data), command.body)
        assert {name: getattr(fields, name) for name in names} == {name: getattr(general, name) for name in names}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("request_", [SEND, PULL], ids=["send", "pull"])
def test_the_texts_of_a_header_are_what_its_signature_covers(kind: Serialization, request_: Request[Any]) -> None:
    data = frame(request_, kind)
    command = command_of(data)
    assert header_texts(data[8 : 8 + int.from_bytes(data[5:8], "big")]) == (command.code, command.ext)


def test_a_header_with_a_number_has_no_texts() -> None:
    assert header_texts(b'{"code":310,"extFields":{"f":0}}') is None
    assert header_texts(b"\x01\x36\x00") is None
