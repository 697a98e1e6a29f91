"""Answers are found whatever the pieces in which they arrive."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load.nats import PublishAnswers, ReadAnswers
from bench.load.redis import AddAnswers, RangeAnswers, command
from bench.load.responses import Answers
from bench.load.rocketmq_answers import PullAnswers, SendAnswers


def frame(header: bytes, body: bytes = b"") -> bytes:
    return (4 + len(header) + len(body)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body


def sent(opaque: int, code: int = 0) -> bytes:
    """As Apache answers, here with a queue offset that is longer or shorter."""
    return frame(
        b'{"code":%d,"extFields":{"queueOffset":"%d"},"flag":1,"opaque":%d,"version":407}' % (code, opaque, opaque)
    )


def pulled(opaque: int, messages: int) -> bytes:
    return frame(b'{"code":0,"flag":1,"opaque":%d}' % opaque, ((64).to_bytes(4, "big") + b"m" * 60) * messages)


def feed_in_pieces(responses: Answers, data: bytes, cuts: Sequence[int]) -> list[int]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    rows: list[int] = []
    for begin, end in pairwise(places):
        rows.extend(responses.feed(data[begin:end]))
    return rows


CUTS = st.lists(st.integers(0, 10_000), max_size=20)


@given(CUTS)
def test_answers_to_sends(cuts: list[int]) -> None:
    responses = SendAnswers()
    data = b"".join(sent(100_000 + row, code) for row, code in ((3, 0), (1, 2), (2, 0), (77_777, 0)))
    assert feed_in_pieces(responses, data, cuts) == [3, 1, 2, 77_777]
    assert responses.refused == 1
    assert responses.refusal.startswith('"code":2,')


@given(CUTS)
def test_answers_to_pulls_tell_how_many_messages_came(cuts: list[int]) -> None:
    responses = PullAnswers()
    data = pulled(100_007, 32) + sent(100_001, 19) + pulled(100_008, 5)
    assert feed_in_pieces(responses, data, cuts) == [7, 1, 8]
    assert (responses.messages, responses.refused) == (37, 1)


@given(CUTS)
def test_acknowledgements_of_nats(cuts: list[int]) -> None:
    responses = PublishAnswers()
    good, bad = b'{"stream":"bench","seq":12}', b'{"error":{"code":503}}'
    told = ((4, good), (2, bad), (9, good))
    data = b"".join(b"MSG _INBOX.001.%06d 1 %d\r\n%s\r\n" % (row, len(text), text) for row, text in told)
    assert feed_in_pieces(responses, data, cuts) == [4, 2, 9]
    assert responses.refused == 1


@given(CUTS)
def test_runs_of_messages_from_nats(cuts: list[int]) -> None:
    responses = ReadAnswers(messages_a_read=32)
    message = b"HMSG _INBOX.001.000005 1 50 350\r\nNATS/1.0\r\nNats-Sequence: 9\r\n\r\n" + b"m" * 300 + b"\r\n"
    end = b"HMSG _INBOX.001.000005 1 30 30\r\nNATS/1.0 204 EOB\r\n\r\n\r\n"
    none = b"HMSG _INBOX.001.000006 1 30 30\r\nNATS/1.0 404 Message Not Found\r\n\r\n\r\n"
    assert feed_in_pieces(responses, message * 3 + end + none + message + end, cuts) == [5, 6, 5]
    assert (responses.messages, responses.refused) == (64, 1)


@given(CUTS)
def test_answers_of_redis_come_in_the_order_of_requests(cuts: list[int]) -> None:
    responses = AddAnswers()
    responses.sent(5, 8)
    data = b"$15\r\n1700000000000-0\r\n-OOM command not allowed\r\n$16\r\n1700000000000-12\r\n"
    assert feed_in_pieces(responses, data, cuts) == [5, 6, 7]
    assert (responses.refused, responses.refusal) == (1, "-OOM command not allowed\r\n")


@given(CUTS)
def test_ranges_of_redis(cuts: list[int]) -> None:
    responses = RangeAnswers(messages_a_read=2, body_bytes=3)
    responses.sent(0, 2)
    entry = b"*2\r\n$11\r\n1-100000016\r\n" + command(b"d", b"xyz")
    assert feed_in_pieces(responses, (b"*2\r\n" + entry * 2) * 2, cuts) == [0, 1]
    assert responses.messages == 4


@pytest.mark.parametrize("answers", [SendAnswers(), PullAnswers(), PublishAnswers(), AddAnswers()])
def test_nothing_yet_is_no_answer(responses: Answers) -> None:
    assert list(responses.feed(b"")) == []
