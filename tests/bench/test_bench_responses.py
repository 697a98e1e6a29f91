"""Responses are recognised however the bytes are split."""

import struct
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load.nats import PublishResponses, ReadResponses
from bench.load.redis import AddResponses, RangeResponses, command
from bench.load.responses import ResponseReader
from bench.load.rocketmq_responses import BinarySendResponses, PullResponses, SendResponses


def frame(header: bytes, body: bytes = b"") -> bytes:
    return (4 + len(header) + len(body)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body


def sent(opaque: int, code: int = 0) -> bytes:
    """A response of Apache, with a queue offset of varying length."""
    return frame(
        b'{"code":%d,"extFields":{"queueOffset":"%d"},"flag":1,"opaque":%d,"version":407}' % (code, opaque, opaque)
    )


def pulled(opaque: int, messages: int) -> bytes:
    return frame(b'{"code":0,"flag":1,"opaque":%d}' % opaque, ((64).to_bytes(4, "big") + b"m" * 60) * messages)


def binary(opaque: int, code: int = 0, body: bytes = b"") -> bytes:
    """The same with a binary header, and a field of varying length."""
    value = b"%d" % opaque**2
    fields = struct.pack(">h", 11) + b"queueOffset" + struct.pack(">i", len(value)) + value
    header = struct.pack(">hBhiiii", code, 0, 407, opaque, 1, 0, len(fields)) + fields
    return struct.pack(">ii", 4 + len(header) + len(body), 1 << 24 | len(header)) + header + body


def feed_in_pieces(responses: ResponseReader, data: bytes, cuts: Sequence[int]) -> list[int]:
    positions = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    rows: list[int] = []
    for begin, end in pairwise(positions):
        rows.extend(responses.feed(data[begin:end]))
    return rows


CUTS = st.lists(st.integers(0, 10_000), max_size=20)


@given(CUTS)
def test_responses_to_sends(cuts: list[int]) -> None:
    responses = SendResponses()
    data = b"".join(sent(100_000 + row, code) for row, code in ((3, 0), (1, 2), (2, 0), (77_777, 0)))
    assert feed_in_pieces(responses, data, cuts) == [3, 1, 2, 77_777]
    assert responses.refused == 1
    assert responses.first_error.startswith('"code":2,')


@given(CUTS)
def test_binary_responses_to_sends(cuts: list[int]) -> None:
    responses = BinarySendResponses()
    data = b"".join(binary(100_000 + row, code) for row, code in ((3, 0), (1, 2), (2, 0), (77_777, 0)))
    assert feed_in_pieces(responses, data, cuts) == [3, 1, 2, 77_777]
    assert responses.refused == 1
    assert responses.first_error.startswith("code 2: ")


@given(CUTS)
def test_binary_responses_to_pulls_count_messages(cuts: list[int]) -> None:
    responses = PullResponses()
    messages = ((64).to_bytes(4, "big") + b"m" * 60) * 32
    data = binary(100_007, body=messages) + binary(100_001, 19) + binary(100_008, body=messages)
    assert feed_in_pieces(responses, data, cuts) == [7, 1, 8]
    assert (responses.messages, responses.refused) == (64, 1)


@given(CUTS)
def test_responses_to_pulls_count_messages(cuts: list[int]) -> None:
    responses = PullResponses()
    data = pulled(100_007, 32) + sent(100_001, 19) + pulled(100_008, 5)
    assert feed_in_pieces(responses, data, cuts) == [7, 1, 8]
    assert (responses.messages, responses.refused) == (37, 1)


@given(CUTS)
def test_acknowledgements_of_nats(cuts: list[int]) -> None:
    responses = PublishResponses()
    good, bad = b'{"stream":"bench","seq":12}', b'{"error":{"code":503}}'
    acks = ((4, good), (2, bad), (9, good))
    data = b"".join(b"MSG _INBOX.001.%06d 1 %d\r\n%s\r\n" % (row, len(text), text) for row, text in acks)
    assert feed_in_pieces(responses, data, cuts) == [4, 2, 9]
    assert responses.refused == 1


@given(CUTS)
def test_runs_of_messages_from_nats(cuts: list[int]) -> None:
    responses = ReadResponses(messages_a_read=32)
    message = b"HMSG _INBOX.001.000005 1 50 350\r\nNATS/1.0\r\nNats-Sequence: 9\r\n\r\n" + b"m" * 300 + b"\r\n"
    end = b"HMSG _INBOX.001.000005 1 30 30\r\nNATS/1.0 204 EOB\r\n\r\n\r\n"
    none = b"HMSG _INBOX.001.000006 1 30 30\r\nNATS/1.0 404 Message Not Found\r\n\r\n\r\n"
    assert feed_in_pieces(responses, message * 3 + end + none + message + end, cuts) == [5, 6, 5]
    assert (responses.messages, responses.refused) == (64, 1)


@given(CUTS)
def test_responses_of_redis_arrive_in_the_order_of_requests(cuts: list[int]) -> None:
    responses = AddResponses()
    responses.sent(5, 8)
    data = b"$15\r\n1700000000000-0\r\n-OOM command not allowed\r\n$16\r\n1700000000000-12\r\n"
    assert feed_in_pieces(responses, data, cuts) == [5, 6, 7]
    assert (responses.refused, responses.first_error) == (1, "-OOM command not allowed\r\n")


@given(CUTS)
def test_ranges_of_redis(cuts: list[int]) -> None:
    responses = RangeResponses(messages_a_read=2, body_bytes=3)
    responses.sent(0, 2)
    entry = b"*2\r\n$11\r\n1-100000016\r\n" + command(b"d", b"xyz")
    assert feed_in_pieces(responses, (b"*2\r\n" + entry * 2) * 2, cuts) == [0, 1]
    assert responses.messages == 4


@pytest.mark.parametrize(
    "responses", [SendResponses(), BinarySendResponses(), PullResponses(), PublishResponses(), AddResponses()]
)
def test_no_bytes_are_no_response(responses: ResponseReader) -> None:
    assert list(responses.feed(b"")) == []
