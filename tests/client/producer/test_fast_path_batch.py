"""Accumulated batches on the fast path, and their fallback to the general path."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.client.producer.fast_path import BatchTemplate
from ariane.client.producer.producer import Producer
from ariane.client.producer.request import Batch
from ariane.client.producer.result import SendResult, SendStatus
from ariane.client.producer.settings import ProducerSettings
from ariane.client.settings import ClientSettings
from ariane.errors import MessageRejected, SendFailed
from ariane.model.route import MessageQueue
from ariane.settings import Secret
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.exchange import request_command
from ariane.wire.frame import FRAME_BYTES_MAX, encode_frame
from tests.client.scripted_broker import Cluster, cluster, refusal, silence, stored
from tests.transport.peers import PATIENCE_S

SETTINGS = ProducerSettings(group="pg")
QUEUE = MessageQueue(topic="100%-orders", broker_name="a", queue_id=3)


def producer(servers: Cluster, **options: object) -> Producer:
    options = {"batch_linger_ms": 5} | options
    return Producer(servers.nameserver, group="pg", **options)  # type: ignore[arg-type]


async def send_three(sender: Producer) -> list[SendResult]:
    return await asyncio.gather(*(sender.send("T", b"%d" % number, keys="k") for number in range(3)))


def batch(rows: list[tuple[bytes, bytes, int]], *, wait_stored: bool) -> Batch:
    return Batch(
        topic=QUEUE.topic,
        unique_keys=["K"] * len(rows),
        bodies=[row[0] for row in rows],
        texts=[row[1] for row in rows],
        flags=[row[2] for row in rows],
        wait_stored=wait_stored,
    )


@given(
    st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9), st.integers(-9, 9))),
    st.booleans(),
    st.integers(1, 2**31 - 1),
    st.integers(0, 2**62),
)
def test_a_batch_from_the_template_equals_that_of_the_general_path(
    rows: list[tuple[bytes, bytes, int]], wait_stored: bool, opaque: int, now_ms: int
) -> None:
    request = batch(rows, wait_stored=wait_stored)
    general = encode_frame(request_command(request.wire_request(QUEUE, SETTINGS, now_ms), opaque=opaque))
    template = BatchTemplate(QUEUE, SETTINGS, wait_stored=wait_stored, unit_mode=False)
    assert template.frame(opaque, now_ms, request) == general


def test_a_batch_too_large_for_a_frame_is_left_to_the_general_path() -> None:
    half = b"x" * (FRAME_BYTES_MAX // 2)
    template = BatchTemplate(QUEUE, SETTINGS, wait_stored=True, unit_mode=False)
    assert template.frame(1, 1, batch([(half, b"", 0)] * 2, wait_stored=True)) is None


@pytest.mark.parametrize("signs", [False, True])
async def test_batches_use_the_queues_in_turn(signs: bool) -> None:
    """Also for signed batches, which leave the fast path after their queue was chosen."""
    account = {"access_key": "me", "secret_key": Secret("12345678")} if signs else {}
    settings = ClientSettings(**account)  # type: ignore[arg-type]
    async with cluster("T") as servers, producer(servers, settings=settings) as sender:
        await sender.queues("T")
        rounds = [await send_three(sender) for _ in range(4)]
    assert sorted(results[0].queue.queue_id for results in rounds) == [0, 1, 2, 3]
    assert all(len({result.queue for result in results}) == 1 for results in rounds)


async def test_a_refused_batch_is_retried_at_another_broker() -> None:
    async with cluster("T", brokers=2) as servers, producer(servers) as sender:
        for _ in range(8):
            await send_three(sender)  # both are connected now
        for broker in servers.brokers:
            broker.script.append(refusal(ResponseCode.SYSTEM_BUSY))
            results = await send_three(sender)
            broker.script.clear()
            assert [result.status for result in results] == [SendStatus.SEND_OK] * 3


async def test_an_error_that_no_retry_can_fix_is_raised_for_each() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        await send_three(sender)
        servers.broker.script.append(refusal(ResponseCode.MESSAGE_ILLEGAL, "too odd"))
        outcomes = await asyncio.gather(*(sender.send("T", b"x") for _ in range(2)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [MessageRejected] * 2
    assert len(servers.broker.sends()) == 2


async def test_a_missing_response_ends_with_the_send_timeout() -> None:
    async with cluster("T") as servers, producer(servers, retries=0, send_timeout_s=0.3) as sender:
        await sender.queues("T")
        servers.broker.script.append(silence)
        with pytest.raises(SendFailed, match=r"within 0\.3 s"):
            await send_three(sender)


async def test_a_broken_connection_is_reopened() -> None:
    async with cluster("T") as servers, producer(servers, send_timeout_s=PATIENCE_S) as sender:
        await send_three(sender)
        servers.broker.script.append(silence)
        waiting = asyncio.ensure_future(send_three(sender))
        await servers.broker.wait_for_request(RequestCode.SEND_BATCH_MESSAGE, 2)
        for connection in servers.broker.connections:
            connection.abort()
        assert all(result.is_ok for result in await waiting)


async def test_a_message_stored_less_safely_is_resent_with_retry_when_not_ok() -> None:
    async with cluster("T") as servers, producer(servers, retry_when_not_ok=True) as sender:
        await send_three(sender)
        servers.broker.script.append(lambda command: stored(command, code=ResponseCode.FLUSH_DISK_TIMEOUT))
        assert all(result.is_ok for result in await send_three(sender))
        assert len(servers.broker.sends()) == 3


async def test_latencies_are_recorded_with_latency_fault() -> None:
    async with cluster("T", brokers=2) as servers, producer(servers, latency_fault=True) as sender:
        results = [result for _ in range(8) for result in await send_three(sender)]
    assert {result.queue.broker_name for result in results} == {"broker-a", "broker-b"}
