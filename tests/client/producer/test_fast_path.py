"""Single sends on the fast path, and their fallback to the general path."""

import asyncio

import pytest

from ariane.client.producer.producer import Producer
from ariane.client.producer.result import SendStatus
from ariane.client.settings import ClientSettings
from ariane.errors import MessageRejected, SendFailed
from ariane.settings import Secret
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.frame import Command, encode_frame
from tests.client.scripted_broker import Cluster, cluster, refusal, silence, stored
from tests.transport.peers import PATIENCE_S


def producer(servers: Cluster, **options: object) -> Producer:
    return Producer(servers.nameserver, group="pg", **options)  # type: ignore[arg-type]


async def test_concurrent_sends_each_get_their_own_result() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        await sender.send("T", b"first: finds the route")
        bodies = [b"%d" % number for number in range(200)]
        results = await asyncio.gather(*(sender.send("T", body, keys="k") for body in bodies))
    sends = {request.body: request for request in servers.broker.sends()}
    for body, result in zip(bodies, results, strict=True):
        assert f"UNIQ_KEY\x01{result.message_id}\x02" in (sends[body].properties or "")
        assert result.queue.queue_id == sends[body].queue_id


@pytest.mark.parametrize("signs", [False, True])
async def test_queues_are_used_in_turn(signs: bool) -> None:
    """Also for signed sends, which leave the fast path after their queue was chosen."""
    account = {"access_key": "me", "secret_key": Secret("12345678")} if signs else {}
    settings = ClientSettings(**account)  # type: ignore[arg-type]
    async with cluster("T") as servers, producer(servers, settings=settings) as sender:
        results = [await sender.send("T", b"x") for _ in range(8)]
    numbers = [result.queue.queue_id for result in results]
    assert sorted(numbers) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert numbers[:4] == numbers[4:]


async def test_a_refused_send_is_retried_at_another_broker() -> None:
    async with cluster("T", brokers=2) as servers, producer(servers) as sender:
        for _ in range(8):
            await sender.send("T", b"warm")  # both are connected now
        for broker in servers.brokers:
            broker.script.append(refusal(ResponseCode.SYSTEM_BUSY))
            result = await sender.send("T", b"x")
            broker.script.clear()
            assert result.status is SendStatus.SEND_OK


async def test_an_error_that_no_retry_can_fix_is_raised_immediately() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        await sender.send("T", b"warm")
        servers.broker.script.append(refusal(ResponseCode.MESSAGE_ILLEGAL, "too odd"))
        with pytest.raises(MessageRejected, match="too odd"):
            await sender.send("T", b"x")
        assert len(servers.broker.sends()) == 2


async def test_a_missing_response_ends_with_the_send_timeout() -> None:
    async with cluster("T") as servers, producer(servers, retries=0) as sender:
        await sender.send("T", b"warm")
        servers.broker.script.append(silence)
        with pytest.raises(SendFailed, match=r"did not answer request 310 within 0\.05 s"):
            await sender.send("T", b"x", timeout_s=0.05)
        assert (await sender.send("T", b"y")).is_ok


async def test_a_send_with_an_unreadable_response_is_not_retried() -> None:
    def odd(command: Command) -> bytes:
        return encode_frame(Command(code=0, opaque=command.opaque, flag=1, ext_texts={"queueId": "many"}))

    async with cluster("T") as servers, producer(servers) as sender:
        await sender.send("T", b"warm")
        servers.broker.script.append(odd)
        with pytest.raises(SendFailed, match="cannot be read"):
            await sender.send("T", b"x")
        assert len(servers.broker.sends()) == 2


async def test_a_broken_connection_is_reopened() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        await sender.send("T", b"warm")
        servers.broker.script.append(silence)
        waiting = asyncio.ensure_future(sender.send("T", b"x", timeout_s=PATIENCE_S))
        await servers.broker.wait_for_request(RequestCode.SEND_MESSAGE_V2, 2)
        for connection in servers.broker.connections:
            connection.abort()
        assert (await waiting).is_ok


async def test_a_send_that_is_cancelled_leaves_nothing_behind() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        await sender.send("T", b"warm")
        servers.broker.script.append(silence)
        waiting = asyncio.ensure_future(sender.send("T", b"x", timeout_s=PATIENCE_S))
        await servers.broker.wait_for_request(RequestCode.SEND_MESSAGE_V2, 2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        connection = sender._lifetime.value.instance.ready(servers.broker.address)
        assert connection is not None
        assert connection.calls_in_flight == 0


async def test_latencies_are_recorded_with_latency_fault() -> None:
    async with cluster("T", brokers=2) as servers, producer(servers, latency_fault=True) as sender:
        results = [await sender.send("T", b"x") for _ in range(8)]
        assert {result.queue.broker_name for result in results} == {"broker-a", "broker-b"}


async def test_a_message_stored_less_safely_is_resent_with_retry_when_not_ok() -> None:
    async with cluster("T") as servers, producer(servers, retry_when_not_ok=True) as sender:
        await sender.send("T", b"warm")
        servers.broker.script.append(lambda command: stored(command, code=ResponseCode.FLUSH_DISK_TIMEOUT))
        assert (await sender.send("T", b"x")).is_ok
        assert len(servers.broker.sends()) == 3
