"""`send_nowait` with `batch_linger_ms`: futures of the batch, with the guarantees of other sends."""

import asyncio
import gc

import pytest

from ariane.client.producer.producer import Producer
from ariane.client.producer.result import SendResult
from ariane.errors import SendFailed, TooManyInFlight
from ariane.model.message import Message
from ariane.testing import FakeClock
from ariane.wire.codes import ResponseCode
from ariane.wire.properties import decode_properties
from ariane.wire.record.batch import decode_batch
from tests.client.scripted_broker import Cluster, cluster, refusal

CallbackCalls = list[tuple[SendResult | None, Exception | None]]


def producer(servers: Cluster, **options: object) -> Producer:
    options = {"batch_linger_ms": 5} | options
    return Producer(servers.nameserver, group="pg", **options)  # type: ignore[arg-type]


def bodies(servers: Cluster) -> list[bytes]:
    return [
        body
        for request in servers.broker.sends()
        for body in (
            [item.body for item in decode_batch(request.body, count_max=9999)] if request.is_batch else [request.body]
        )
    ]


async def test_each_future_has_its_own_result() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        await sender.send("T", b"warm")
        results = await asyncio.gather(*(sender.send_nowait("T", b"%d" % number, keys="k") for number in range(700)))
    assert len({result.message_id for result in results}) == 700
    assert bodies(servers)[1:] == [b"%d" % number for number in range(700)]


async def test_no_task_per_message() -> None:
    async with cluster("T") as servers, producer(servers, batch_linger_ms=1000) as sender:
        await sender.queues("T")
        before = len(asyncio.all_tasks())
        futures = [sender.send_nowait("T", b"x") for _ in range(100)]
        assert len(asyncio.all_tasks()) <= before + 1  # the one that lingers
        await sender.close()
        assert all(future.result().is_ok for future in futures)


async def test_simple_and_other_messages_share_a_batch_in_order() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        await sender.queues("T")
        await asyncio.gather(
            sender.send_nowait("T", b"0"),
            sender.send_nowait("T", b"1", tags="paid", keys="k"),
            sender.send_nowait("T", b"2", properties={"colour": "red"}),
            sender.send_nowait(Message(topic="T", body=b"3")),
            sender.send_nowait("T", b"4", keys=["k"]),
            sender.send_nowait("T", b"5", tags=None, wait_stored=True),
        )
    assert bodies(servers) == [b"%d" % number for number in range(6)]


async def test_flags_and_keys_stay_with_their_messages() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        await sender.queues("T")
        results = await asyncio.gather(*(sender.send("T", b"%d" % flag, flag=flag) for flag in (7, 0, 9)))
    (request,) = servers.broker.sends()
    items = decode_batch(request.body, count_max=9)
    assert [(item.body, item.flag) for item in items] == [(b"7", 7), (b"0", 0), (b"9", 9)]
    assert [decode_properties(item.properties) for item in items] == [
        {"WAIT": "true", "UNIQ_KEY": result.message_id} for result in results
    ]


async def test_messages_with_another_wait_stored_have_their_own_batch() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        await sender.queues("T")
        await asyncio.gather(*(sender.send_nowait("T", b"x", wait_stored=number % 2 == 0) for number in range(6)))
    assert sorted(
        (request.properties, len(decode_batch(request.body, count_max=9))) for request in servers.broker.sends()
    ) == [
        ("WAIT\x01false\x02", 3),
        ("WAIT\x01true\x02", 3),
    ]


async def test_callbacks_get_the_results_and_may_fail() -> None:
    calls: CallbackCalls = []
    async with cluster("T") as servers, producer(servers) as sender:
        await sender.queues("T")
        first = sender.send_nowait("T", b"0", callback=lambda result, error: calls.append((result, error)))
        sender.send_nowait("T", b"1", callback=lambda result, error: 1 // 0)  # type: ignore[arg-type]
        last = sender.send_nowait("T", b"2", callback=lambda result, error: calls.append((result, error)))
    assert calls == [(first.result(), None), (last.result(), None)]


async def test_a_failure_passed_to_a_callback_needs_no_await() -> None:
    calls: CallbackCalls = []
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    async with cluster("T") as servers, producer(servers, retries=0) as sender:
        await sender.send("T", b"warm")
        servers.broker.script.append(refusal(ResponseCode.SYSTEM_ERROR))
        for _ in range(3):
            sender.send_nowait("T", b"x", callback=lambda result, error: calls.append((result, error)))
    gc.collect()
    assert [(result, type(error)) for result, error in calls] == [(None, SendFailed)] * 3
    assert complaints == []


async def test_a_cancelled_future_affects_no_other_and_its_callback_is_called() -> None:
    calls: CallbackCalls = []
    async with cluster("T") as servers, producer(servers) as sender:
        await sender.queues("T")
        leaver = sender.send_nowait("T", b"0", callback=lambda result, error: calls.append((result, error)))
        stayer = sender.send_nowait("T", b"1")
        leaver.cancel()
        assert (await stayer).is_ok
    assert bodies(servers) == [b"0", b"1"]
    ((result, error),) = calls
    assert result is not None
    assert result.is_ok
    assert error is None


async def test_messages_in_flight_are_bounded_but_not_by_those_that_are_awaited() -> None:
    clock = FakeClock()
    async with cluster("T") as servers, producer(servers, clock=clock, in_flight_max=2) as sender:
        await sender.queues("T")
        awaited = [asyncio.ensure_future(sender.send("T", b"x")) for _ in range(3)]
        await asyncio.sleep(0)
        futures = [sender.send_nowait("T", b"x") for _ in range(2)]
        with pytest.raises(TooManyInFlight, match="await some"):
            sender.send_nowait("T", b"x")
        await clock.advance(1)
        await asyncio.gather(*futures, *awaited)
        again = sender.send_nowait("T", b"x")
        await clock.advance(1)
        await again


async def test_closing_sends_open_batches_and_completes_all_futures() -> None:
    calls: CallbackCalls = []
    async with cluster("T") as servers:
        async with producer(servers, clock=FakeClock(), batch_linger_ms=1000) as sender:
            await sender.queues("T")
            future = sender.send_nowait("T", b"x", callback=lambda result, error: calls.append((result, error)))
        assert calls == [(future.result(), None)]
