"""Requests about connected clients, and requests forwarded to one consumer."""

import asyncio

import pytest

from ariane.broker.admin import clients
from ariane.model.group import ConsumeType, MessageModel
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.exchange import request_command
from ariane.wire.frame import Command, encode_frame
from ariane.wire.message_id import offset_message_id
from ariane.wire.record.read import RecordView, verify
from ariane.wire.requests.clients import (
    ConsumeDirectly,
    GetAllProducers,
    GetConsumerConnections,
    GetProducerConnections,
    GetRunningInfo,
)
from tests.broker.consumer_group_fixtures import (
    GroupBroker,
    RawGroupClient,
    connected_client,
    consumer,
    group_broker,
    heartbeat,
    running,
    subscription,
)
from tests.store.stores import HOST, draft, put

ORDERS = subscription("orders", "a || b")


async def test_consumers_are_listed_with_their_subscriptions() -> None:
    async with running(group_broker()) as server, connected_client(server) as client:
        await client.call(heartbeat("c", consumer("g", ORDERS)), language="GO", version=317)
        body = (await client.call(GetConsumerConnections("g"))).body
        (one,) = body.connection_set
        assert (one.client_id, one.client_addr, one.language, one.version) == ("c", client.raw.name, "GO", 317)
        assert (body.consume_type, body.message_model) == (ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING)
        assert body.subscription_table == {"orders": ORDERS}
        assert (await client.error_response(GetConsumerConnections("none")))[0] == ResponseCode.CONSUMER_NOT_ONLINE


async def test_producers_are_shown_by_group_and_all_together() -> None:
    broker = group_broker()
    async with running(broker) as server, connected_client(server) as client:
        await client.call(heartbeat("p", producers=("one", "two")), language="CPP", version=333)
        await broker.clock.advance(7)
        (shown,) = (await client.call(GetProducerConnections("one"))).body.connection_set
        assert (shown.client_id, shown.language) == ("p", "CPP")
        table = (await client.call(GetAllProducers())).body.data
        assert list(table) == ["one", "two"]
        assert table["two"][0].remote_ip == client.raw.name
        assert table["two"][0].last_update_timestamp == broker.clock.now_ms() - 7000
        assert (await client.error_response(GetProducerConnections("none")))[0] == ResponseCode.SYSTEM_ERROR


# --- passed on


async def test_a_consumers_response_is_returned_byte_for_byte() -> None:
    said = (
        b'{"jstack":"...","mqTable":{},"newInSomeLaterRelease":{"a":1},"properties":{"PROP_CLIENT_VERSION":"V4_9_8"}}'
    )
    async with running(group_broker()) as server, connected_client(server) as client, connected_client(server) as admin:
        await client.call(heartbeat("c", consumer("g", ORDERS)))
        await _send(admin, GetRunningInfo(consumer_group="g", client_id="c", jstack_enable=True))
        forwarded = await _next_request(client, RequestCode.GET_CONSUMER_RUNNING_INFO)
        assert forwarded.ext == {"consumerGroup": "g", "clientId": "c", "jstackEnable": "true"}
        await client.answer(forwarded, said)
        response = await admin.raw.read()
        assert (response.code, response.body) == (ResponseCode.SUCCESS, said)


async def test_a_consumers_error_is_returned_too() -> None:
    async with running(group_broker()) as server, connected_client(server) as client, connected_client(server) as admin:
        await client.call(heartbeat("c", consumer("g", ORDERS)))
        await _send(admin, GetRunningInfo(consumer_group="g", client_id="c"))
        forwarded = await _next_request(client, RequestCode.GET_CONSUMER_RUNNING_INFO)
        await client.answer(forwarded, b"", code=1, remark="The Consumer Group <g> not exist in this consumer")
        response = await admin.raw.read()
        assert (response.code, response.remark) == (1, "The Consumer Group <g> not exist in this consumer")


@pytest.mark.parametrize("named", [True, False])
async def test_a_message_is_forwarded_to_a_consumer(named: bool) -> None:
    broker = group_broker()
    (stored,) = put(broker.store, draft(b"again", "orders", 0))
    async with running(broker) as server, connected_client(server) as client, connected_client(server) as admin:
        await client.call(heartbeat("c", consumer("g", ORDERS)))
        message_id = offset_message_id(HOST, stored.physical_offset)
        await _send(admin, ConsumeDirectly(consumer_group="g", client_id="c" if named else None, msg_id=message_id))
        forwarded = await _next_request(client, RequestCode.CONSUME_MESSAGE_DIRECTLY)
        view = verify(forwarded.body)
        assert isinstance(view, RecordView)
        assert view.body(memoryview(forwarded.body)) == b"again"
        assert forwarded.ext["brokerName"] == "broker-a"
        await client.answer(forwarded, b'{"consumeResult":"CR_SUCCESS"}')
        assert (await admin.raw.read()).body == b'{"consumeResult":"CR_SUCCESS"}'


async def test_a_missing_message_is_an_error() -> None:
    broker = group_broker()
    put(broker.store, draft(b"x", "orders", 0))
    async with running(broker) as server, connected_client(server) as client:
        await client.call(heartbeat("c", consumer("g", ORDERS)))
        for message_id, reason in [
            (offset_message_id(HOST, 7), "is not on this broker"),
            ("0A0000010000000100000000000000000001", "characters"),
            ("not an id", "not hexadecimal"),
            (None, "characters"),
        ]:
            request = ConsumeDirectly(consumer_group="g", client_id="c", msg_id=message_id)
            code, remark = await client.error_response(request)
            assert (code, reason in remark) == (ResponseCode.SYSTEM_ERROR, True)


async def test_a_request_to_an_offline_or_old_consumer_fails() -> None:
    async with running(group_broker()) as server, connected_client(server) as client:
        await client.call(heartbeat("c", consumer("g", ORDERS)), version=61)
        for group, name, reason in [
            ("none", "c", "is not online"),
            ("g", "d", "consumer d of group g is not online"),
            ("g", "c", "does not support this request (version 61"),
        ]:
            code, remark = await client.error_response(GetRunningInfo(consumer_group=group, client_id=name))
            assert (code, reason in remark) == (ResponseCode.SYSTEM_ERROR, True)


async def test_a_consumer_that_disconnects_during_the_request_is_reported_immediately() -> None:
    async with running(group_broker()) as server, connected_client(server) as admin:
        async with connected_client(server) as client:
            await client.call(heartbeat("c", consumer("g", ORDERS)))
            await _send(admin, GetRunningInfo(consumer_group="g", client_id="c"))
            await _next_request(client, RequestCode.GET_CONSUMER_RUNNING_INFO)
        response = await admin.raw.read()
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert "consumer c cannot be reached" in (response.remark or "")


async def test_a_consumer_that_does_not_answer_is_a_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_TIMEOUT_S", 0.01)
    async with running(group_broker()) as server, connected_client(server) as client, connected_client(server) as admin:
        await client.call(heartbeat("c", consumer("g", ORDERS)))
        code, remark = await admin.error_response(GetRunningInfo(consumer_group="g", client_id="c"))
        assert code == ResponseCode.CONSUME_MSG_TIMEOUT
        assert "consumer c does not answer" in remark


async def test_the_broker_serves_others_while_a_consumer_is_busy() -> None:
    broker: GroupBroker = group_broker()
    async with running(broker) as server, connected_client(server) as client, connected_client(server) as admin:
        await client.call(heartbeat("c", consumer("g", ORDERS)))
        waiting = asyncio.create_task(admin.send_request(GetRunningInfo(consumer_group="g", client_id="c")))
        forwarded = await _next_request(client, RequestCode.GET_CONSUMER_RUNNING_INFO)
        await client.call(heartbeat("c", consumer("g", ORDERS)))
        await client.answer(forwarded, b"{}")
        assert (await waiting).body == b"{}"


async def _send(admin: RawGroupClient, request: GetRunningInfo | ConsumeDirectly) -> None:
    await admin.raw.send(encode_frame(request_command(request, opaque=1)))


async def _next_request(client: RawGroupClient, code: RequestCode) -> Command:
    while (forwarded := await client.next_pushed()).code != code:
        pass
    return forwarded
