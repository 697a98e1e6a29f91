"""Requests from a broker to a client, over the connection that the client opened."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Address

import pytest

from ariane.client.core.instance import Instance
from ariane.client.settings import ClientSettings
from ariane.errors import RequestFailed
from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.model.message import HostPort, StoredMessage
from ariane.model.route import MessageQueue
from ariane.rpc.caller import call_peer
from ariane.transport.connection import Connection
from ariane.wire.codes import RequestCode
from ariane.wire.record.layout import encode
from ariane.wire.requests.clients import (
    ConsumeDirectly,
    ConsumeOutcome,
    ConsumerData,
    ConsumeResult,
    ConsumerRunningInfo,
    GetRunningInfo,
    NotifyConsumerIdsChanged,
)
from ariane.wire.requests.offsets import GetClientStatus, OffsetsByQueue, ResetClientOffset, as_list
from tests.client.scripted_broker import cluster

QUEUE = MessageQueue(topic="T", broker_name="broker-a", queue_id=3)
OFFSETS = OffsetsByQueue(offset_table={QUEUE: QueueOffset(17)})
TIMEOUT_S = 5


class RecordingConsumer:
    """A consumer that records its calls."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(group_name="cg")

    def rebalance_soon(self) -> None:
        self.calls.append("rebalance")

    def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        self.calls.append((topic, offsets))

    def status(self, topic: str) -> dict[MessageQueue, int]:
        return {QUEUE: 17}

    def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(properties={"PROP_CONSUMEORDERLY": "false"})

    async def consume_directly(self, message: StoredMessage, broker_name: str | None) -> ConsumeResult:
        self.calls.append((message.body, broker_name))
        return ConsumeResult(consume_result=ConsumeOutcome.CR_SUCCESS)


@asynccontextmanager
async def broker_connection() -> AsyncIterator[tuple[Connection, RecordingConsumer]]:
    async with cluster("T") as servers, Instance.open(ClientSettings(nameservers=servers.nameserver)) as instance:
        member = RecordingConsumer()
        instance.register_consumer("cg", member)
        await instance.routes.route("T")
        await servers.broker.wait_for_request(RequestCode.HEART_BEAT)
        yield servers.broker.connections[0], member


async def test_a_change_of_members_triggers_a_rebalance() -> None:
    async with broker_connection() as (connection, member):
        await call_peer(connection, NotifyConsumerIdsChanged("cg"), TIMEOUT_S)
        assert member.calls == ["rebalance"]


async def test_offsets_are_reset_in_both_formats() -> None:
    async with broker_connection() as (connection, member):
        for body in (OFFSETS, as_list(OFFSETS)):
            await call_peer(connection, ResetClientOffset(topic="T", group="cg", body=body), TIMEOUT_S)
        assert member.calls == [("T", {QUEUE: 17})] * 2


async def test_a_member_reports_its_offsets() -> None:
    async with broker_connection() as (connection, _):
        response = await call_peer(connection, GetClientStatus("T", "cg"), TIMEOUT_S)
        assert response.body.message_queue_table == {QUEUE: 17}
        info = await call_peer(connection, GetRunningInfo("cg", "id"), TIMEOUT_S)
        assert info.body.properties == {"PROP_CONSUMEORDERLY": "false"}


async def test_a_message_may_be_consumed_directly() -> None:
    host = HostPort(IPv4Address("127.0.0.1"), 1)
    record = encode(
        StoredMessage(
            topic="T", body=b"x", queue_id=0, queue_offset=QueueOffset(0), physical_offset=PhysicalOffset(0),
            sys_flag=0, born_timestamp_ms=1, born_host=host, store_timestamp_ms=1, store_host=host,
        )
    )  # fmt: skip
    async with broker_connection() as (connection, member):
        response = await call_peer(connection, ConsumeDirectly("cg", broker_name="broker-a", body=record), TIMEOUT_S)
        assert response.body.consume_result is ConsumeOutcome.CR_SUCCESS
        assert member.calls == [(b"x", "broker-a")]


async def test_a_request_for_an_unknown_group_is_refused() -> None:
    async with broker_connection() as (connection, _):
        with pytest.raises(RequestFailed, match="no consumer of group 'other'"):
            await call_peer(connection, GetRunningInfo("other", "id"), TIMEOUT_S)


async def test_members_of_a_group_are_requested_from_a_broker_of_the_topic() -> None:
    async with cluster("T") as servers, Instance.open(ClientSettings(nameservers=servers.nameserver)) as instance:
        assert await instance.consumer_ids("T", "cg") == []
        (command,) = servers.broker.received_of(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
        assert command.ext == {"consumerGroup": "cg"}
