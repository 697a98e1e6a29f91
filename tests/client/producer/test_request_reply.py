"""Request-reply: correlation of replies, timeouts, the target broker of a reply."""

import asyncio
from ipaddress import IPv4Address

import pytest

from ariane.client.producer.producer import Producer
from ariane.client.producer.request_reply import reply_message
from ariane.errors import MessageRejected, NoReply, SendFailed
from ariane.model.address import Address
from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.model.message import HostPort, StoredMessage
from ariane.rpc.caller import call_peer
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.compression import compress
from ariane.wire.properties import decode_properties, encode_properties
from ariane.wire.requests.send import PushReply
from ariane.wire.sys_flag import Compression
from tests.client.scripted_broker import Cluster, ScriptedBroker, cluster, refusal


def producer(servers: Cluster) -> Producer:
    return Producer(servers.nameserver, group="requester", retries=0)


def pushed(correlation_id: str, body: bytes = b"42", sys_flag: int = 0) -> PushReply:
    return PushReply(
        producer_group="replier", topic="C_REPLY_TOPIC", default_topic="TBW102", default_topic_queue_nums=4, queue_id=0,
        sys_flag=sys_flag, born_timestamp=1, flag=0, born_host="127.0.0.1:1", store_host="127.0.0.1:2",
        properties=encode_properties({"CORRELATION_ID": correlation_id, "colour": "red"}).decode(), body=body,
    )  # fmt: skip


async def request_properties(broker: ScriptedBroker) -> dict[str, str]:
    await broker.wait_for_request(RequestCode.SEND_MESSAGE_V2)
    return decode_properties((broker.sends()[0].properties or "").encode())


async def test_a_reply_reaches_the_requester() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        waiting = asyncio.ensure_future(sender.request("T", b"6 * 7?", timeout_s=5))
        properties = await request_properties(servers.broker)
        # The broker gets a heartbeat before the request: otherwise the reply could come first.
        codes = [command.code for command in servers.broker.received]
        assert codes.index(RequestCode.HEART_BEAT) < codes.index(RequestCode.SEND_MESSAGE_V2)
        assert (properties["REPLY_TO_CLIENT"], properties["TTL"]) == (sender.client_id, "5000")
        response = await call_peer(servers.broker.connections[0], pushed(properties["CORRELATION_ID"]), 5)
        assert response.code == 0
        reply = await waiting
        assert (reply.body, reply.properties["colour"]) == (b"42", "red")


async def test_a_compressed_reply_is_decompressed() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        waiting = asyncio.ensure_future(sender.request("T", b"?", timeout_s=5))
        correlation_id = (await request_properties(servers.broker))["CORRELATION_ID"]
        packed = compress(b"4" * 5000, Compression.ZLIB)
        await call_peer(servers.broker.connections[0], pushed(correlation_id, packed, 1), 5)
        assert (await waiting).body == b"4" * 5000


async def test_no_reply_in_time() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        with pytest.raises(NoReply, match="check that a consumer"):
            await sender.request("T", b"?", timeout_s=0.05)


async def test_a_request_that_cannot_be_sent_fails_as_a_send_does() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        servers.broker.script.append(refusal(ResponseCode.SYSTEM_ERROR))
        with pytest.raises(SendFailed):
            await sender.request("T", b"?")


async def test_a_reply_without_a_waiting_request_is_dropped() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        await sender.send("T", b"x")
        assert (await call_peer(servers.broker.connections[0], pushed("long ago"), 5)).code == 0


def request_at(address: str, **properties: str) -> StoredMessage:
    where = Address.parse(address)
    host = HostPort(IPv4Address(where.host), where.port)
    return StoredMessage(
        topic="T", body=b"?", queue_id=0, queue_offset=QueueOffset(0), physical_offset=PhysicalOffset(0), sys_flag=0,
        born_timestamp_ms=1, born_host=host, store_timestamp_ms=1, store_host=host, properties=properties,
    )  # fmt: skip


async def test_a_reply_is_sent_to_the_broker_that_has_the_request() -> None:
    async with cluster("C_REPLY_TOPIC", brokers=2) as servers, producer(servers) as sender:
        for broker in servers.brokers * 2:
            request = request_at(
                broker.address, CORRELATION_ID="id", REPLY_TO_CLIENT="requester@1", TTL="3000", CLUSTER="C"
            )
            await sender.reply(request, b"42")
        assert [len(broker.sends()) for broker in servers.brokers] == [2, 2]
        (command, _) = servers.brokers[0].received_of(RequestCode.SEND_REPLY_MESSAGE_V2)
        ask = servers.brokers[0].sends()[0]
        assert (command.code, ask.topic, ask.body) == (325, "C_REPLY_TOPIC", b"42")
        properties = decode_properties((ask.properties or "").encode())
        expected = {"MSG_TYPE": "reply", "CORRELATION_ID": "id", "REPLY_TO_CLIENT": "requester@1", "TTL": "3000"}
        assert expected.items() <= properties.items()


def test_only_a_request_can_be_replied_to() -> None:
    with pytest.raises(MessageRejected, match="no CORRELATION_ID, REPLY_TO_CLIENT, CLUSTER"):
        reply_message(request_at("127.0.0.1:1"), b"42")
