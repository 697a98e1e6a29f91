"""Batches of `batch_linger_ms` and of `send_batch`: contents, timing, failures."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.client.producer.message import PreparedMessage
from ariane.client.producer.producer import Producer
from ariane.client.producer.request import BATCH_COUNT_MAX, split
from ariane.errors import MessageRejected, RecordError, SendFailed
from ariane.model.message import Message
from ariane.testing import FakeClock
from ariane.wire.codes import ResponseCode
from ariane.wire.properties import decode_properties
from ariane.wire.record.batch import BatchItem, batch_pieces, decode_batch, encode_batch, join_batch
from tests.client.scripted_broker import Cluster, cluster, refusal


def producer(servers: Cluster, **options: object) -> Producer:
    options = {"batch_linger_ms": 5} | options
    return Producer(servers.nameserver, group="pg", **options)  # type: ignore[arg-type]


def prepared_message(size: int) -> PreparedMessage:
    body = b"x" * size
    return PreparedMessage(Message(topic="T", body=body), "K", "", body, 0)


@given(st.lists(st.integers(1, 400), max_size=1200), st.integers(100, 2000))
def test_runs_keep_order_and_lose_nothing(sizes: list[int], bytes_max: int) -> None:
    messages = [prepared_message(size) for size in sizes]
    runs = list(split(messages, bytes_max))
    assert [message for run in runs for message in run] == messages
    for run in runs:
        assert len(run) <= BATCH_COUNT_MAX
        assert len(run) == 1 or sum(message.batched_size for message in run) <= bytes_max


async def test_concurrent_sends_share_a_batch_and_each_gets_its_own_result() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        results = await asyncio.gather(*(sender.send("T", b"%d" % number) for number in range(10)))
    (request,) = servers.broker.sends()
    items = decode_batch(request.body, count_max=100)
    keys = [decode_properties(item.properties)["UNIQ_KEY"] for item in items]
    assert [item.body for item in items] == [b"%d" % number for number in range(10)]
    assert [result.message_id for result in results] == keys
    assert [result.queue_offset for result in results] == list(range(7, 17))
    assert len({result.offset_message_id for result in results}) == 10


async def test_a_batch_is_sent_after_the_linger_time() -> None:
    clock = FakeClock()
    async with cluster("T") as servers, producer(servers, clock=clock, batch_linger_ms=1000) as sender:
        await sender.queues("T")
        sent = sender.send_nowait("T", b"x")
        await clock.advance(0.9)
        assert servers.broker.sends() == []
        await clock.advance(0.1)
        assert (await sent).is_ok
        assert not servers.broker.sends()[0].is_batch  # alone, so an ordinary message


async def test_a_full_batch_does_not_wait() -> None:
    clock = FakeClock()
    async with cluster("T") as servers, producer(servers, clock=clock, batch_bytes_max=1000) as sender:
        await sender.queues("T")
        sent = [sender.send_nowait("T", b"x" * 300) for _ in range(3)]
        await sent[0]
        await sent[1]
        assert not sent[2].done()
        await clock.advance(1)
        await sent[2]


async def test_sharding_keys_of_one_queue_share_a_batch_in_order() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        await asyncio.gather(*(sender.send("T", b"%d" % number, sharding_key=str(number % 2)) for number in range(10)))
    sends = servers.broker.sends()
    assert len(sends) < 10
    by_queue: dict[int, list[int]] = {}
    for request in sends:  # on a busy machine one window may end before all are in it
        bodies = (
            [item.body for item in decode_batch(request.body, count_max=99)] if request.is_batch else [request.body]
        )
        by_queue.setdefault(request.queue_id, []).extend(int(body) for body in bodies)
    assert sorted(by_queue.values()) == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]


async def test_messages_that_cannot_be_batched_are_sent_alone() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        await asyncio.gather(
            sender.send("T", b"x", delay_level=1), sender.send("T", b"x" * 5000), sender.send("T", b"x", deliver_at=9)
        )
    assert [request.is_batch for request in servers.broker.sends()] == [False] * 3


async def test_a_batch_that_fails_fails_for_each_of_its_messages() -> None:
    async with cluster("T") as servers, producer(servers, retries=0) as sender:
        servers.broker.script.append(refusal(ResponseCode.SYSTEM_ERROR))
        outcomes = await asyncio.gather(*(sender.send("T", b"x") for _ in range(3)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [SendFailed] * 3


async def test_a_cancelled_caller_does_not_affect_the_others() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        await sender.queues("T")
        leaver, stayer = (asyncio.ensure_future(sender.send("T", b"x")) for _ in range(2))
        await asyncio.sleep(0)
        leaver.cancel()
        assert (await stayer).is_ok
        with pytest.raises(asyncio.CancelledError):
            await leaver


async def test_closing_sends_open_batches() -> None:
    clock = FakeClock()
    async with cluster("T") as servers:
        sender = producer(servers, clock=clock, batch_linger_ms=1000)
        await sender.start()
        await sender.queues("T")
        waiting = asyncio.ensure_future(sender.send("T", b"x"))
        await asyncio.sleep(0)
        await sender.close()
        assert (await waiting).is_ok


async def test_a_body_that_is_not_bytes_is_refused_before_sending() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        for body in ("text", None, 5):
            with pytest.raises(MessageRejected):
                await sender.send(Message(topic="T", body=body))  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9), st.integers(-9, 9))))
def test_a_batch_from_columns_equals_the_batch_of_its_items(rows: list[tuple[bytes, bytes, int]]) -> None:
    columns = [[row[index] for row in rows] for index in range(3)]
    joined = join_batch(*columns)  # type: ignore[arg-type]
    assert joined == encode_batch(BatchItem(*row) for row in rows)
    assert batch_pieces(*columns)[1] == len(joined)  # type: ignore[arg-type]


@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 9), st.integers(-9, 9))
def test_messages_of_one_size_share_their_length_fields(count: int, body_size: int, text_size: int, flag: int) -> None:
    row = (b"b" * body_size, b"t" * text_size, flag)
    assert join_batch(*([field] * count for field in row)) == encode_batch([BatchItem(*row)] * count)  # type: ignore[arg-type]


@pytest.mark.parametrize("texts", [[b"x" * 32768], [b"x" * 32768, b""]])
def test_properties_too_long_for_an_item_are_refused(texts: list[bytes]) -> None:
    with pytest.raises(RecordError):
        join_batch([b""] * len(texts), texts, [0] * len(texts))
