"""What a broker may ask of a client, over the connection that the client opened."""

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


class Member:
    """A consumer that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(group_name="cg")

    def rebalance_soon(self) -> None:
        self.told.append("rebalance")

    def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        self.told.append((topic, offsets))

    def status(self, topic: str) -> dict[MessageQueue, int]:
        return {QUEUE: 17}

    def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(properties={"PROP_CONSUMEORDERLY": "false"})

    async def consume_directly(self, message: StoredMessage, broker_name: str | None) -> ConsumeResult:
        self.told.append((message.body, broker_name))
        return ConsumeResult(consume_result=ConsumeOutcome.CR_SUCCESS)


@asynccontextmanager
async def asked_by_a_broker() -> AsyncIterator[tuple[Connection, Member]]:
    async with cluster("T") as servers, Instance.open(ClientSettings(nameservers=servers.nameserver)) as instance:
        member = Member()
        instance.register_consumer("cg", member)
        await instance.routes.route("T")
        await servers.broker.until_heard(RequestCode.HEART_BEAT)
        yield servers.broker.connections[0], member


async def test_news_of_other_members_lead_to_a_rebalance() -> None:
    async with asked_by_a_broker() as (line, member):
        await call_peer(line, NotifyConsumerIdsChanged("cg"), TIMEOUT_S)
        assert member.told == ["rebalance"]


async def test_offsets_are_reset_in_either_form() -> None:
    async with asked_by_a_broker() as (line, member):
        for body in (OFFSETS, as_list(OFFSETS)):
            await call_peer(line, ResetClientOffset(topic="T", group="cg", body=body), TIMEOUT_S)
        assert member.told == [("T", {QUEUE: 17})] * 2


async def test_a_member_tells_where_it_is() -> None:
    async with asked_by_a_broker() as (line, _):
        response = await call_peer(line, GetClientStatus("T", "cg"), TIMEOUT_S)
        assert response.body.message_queue_table == {QUEUE: 17}
        info = await call_peer(line, GetRunningInfo("cg", "id"), TIMEOUT_S)
        assert info.body.properties == {"PROP_CONSUMEORDERLY": "false"}


async def test_a_message_may_be_consumed_directly() -> None:
    host = HostPort(IPv4Address("127.0.0.1"), 1)
    record = encode(
        StoredMessage(
            topic="T", body=b"x", queue_id=0, queue_offset=QueueOffset(0), physical_offset=PhysicalOffset(0),
            sys_flag=0, born_timestamp_ms=1, born_host=host, store_timestamp_ms=1, store_host=host,
        )
    )  # fmt: skip
    async with asked_by_a_broker() as (line, member):
        response = await call_peer(line, ConsumeDirectly("cg", broker_name="broker-a", body=record), TIMEOUT_S)
        assert response.body.consume_result is ConsumeOutcome.CR_SUCCESS
        assert member.told == [(b"x", "broker-a")]


async def test_a_group_that_is_not_here_is_a_clear_refusal() -> None:
    async with asked_by_a_broker() as (line, _):
        with pytest.raises(RequestFailed, match="no consumer of group 'other'"):
            await call_peer(line, GetRunningInfo("other", "id"), TIMEOUT_S)


async def test_members_of_a_group_are_asked_of_a_broker_of_the_topic() -> None:
    async with cluster("T") as servers, Instance.open(ClientSettings(nameservers=servers.nameserver)) as instance:
        assert await instance.consumer_ids("T", "cg") == []
        (command,) = servers.broker.heard_of(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
        assert command.ext == {"consumerGroup": "cg"}
