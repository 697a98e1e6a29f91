"""Offset resets of groups with and without connected members."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.broker.groups.resets import reset_target
from ariane.model.group import GroupConfig, MessageModel
from ariane.model.ids import QueueOffset
from ariane.model.route import MessageQueue
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.exchange import request_command
from ariane.wire.frame import encode_frame
from ariane.wire.json.body import encode_json
from ariane.wire.requests.offsets import (
    GetClientStatus,
    GetConsumerStatus,
    OffsetList,
    OffsetsByQueue,
    ResetClientOffset,
    ResetOffsets,
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
from tests.store.stores import draft, put

ORDERS = subscription("orders")
OFFSETS = st.integers(0, 100)


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue(topic="orders", broker_name="broker-a", queue_id=queue_id)


@dataclass
class ResetFixture:
    broker: GroupBroker
    times: list[int]
    """When each message of queue 0 was stored."""


async def reset_fixture() -> ResetFixture:
    """Ten messages in queue 0, a second apart; none in queue 1; group g at 6 and 0."""
    broker, times = group_broker(), []
    broker.topic("orders", 2)
    for _ in range(10):
        times += [appended.store_timestamp_ms for appended in put(broker.store, draft(b"x", "orders", 0))]
        await broker.clock.advance(1)
    broker.groups.put(GroupConfig(group_name="g"))
    broker.offsets.commit("g", "orders", 0, 6)
    broker.offsets.commit("g", "orders", 1, 0)
    return ResetFixture(broker, times)


@given(OFFSETS, OFFSETS)
def test_a_reset_only_moves_back_unless_forced(current: int, target: int) -> None:
    assert reset_target(current, target, force=False) == min(current, target)
    assert reset_target(current, target, force=True) == target
    assert reset_target(-1, target, force=False) == target


@pytest.mark.parametrize(("nth", "force", "expected"), [(3, False, 3), (8, False, 6), (8, True, 8)])
async def test_a_group_without_members_is_reset_to_a_time(nth: int, force: bool, expected: int) -> None:
    fixture = await reset_fixture()
    async with running(fixture.broker) as server, connected_client(server) as admin:
        request = ResetOffsets(topic="orders", group="g", timestamp=fixture.times[nth], is_force=force)
        response = await admin.call(request)
    assert response.body.offset_table == {queue(0): expected, queue(1): 0}
    assert fixture.broker.offsets.of("g", "orders") == {0: expected, 1: 0}


async def test_a_group_is_reset_to_the_end() -> None:
    fixture = await reset_fixture()
    async with running(fixture.broker) as server, connected_client(server) as admin:
        await admin.call(ResetOffsets(topic="orders", group="g", timestamp=-1, is_force=True))
    assert fixture.broker.offsets.get("g", "orders", 0) == 10


async def test_a_known_group_without_offsets_gets_some() -> None:
    fixture = await reset_fixture()
    fixture.broker.groups.put(GroupConfig(group_name="new"))
    async with running(fixture.broker) as server, connected_client(server) as admin:
        await admin.call(ResetOffsets(topic="orders", group="new", timestamp=-1))
    assert fixture.broker.offsets.of("new", "orders") == {0: 10, 1: 0}


async def test_one_queue_is_reset_to_an_offset_as_5x_tools_request_it() -> None:
    fixture = await reset_fixture()
    async with running(fixture.broker) as server, connected_client(server) as admin:
        response = await admin.call(ResetOffsets(topic="orders", group="g", queue_id=0, offset=QueueOffset(9)))
        assert response.body.offset_table == {queue(0): 9}
        await admin.call(ResetOffsets(topic="orders", group="g", timestamp=0, queue_id=-1, offset=QueueOffset(-1)))
    assert fixture.broker.offsets.get("g", "orders", 0) == 0


@pytest.mark.parametrize(
    ("reset", "code", "reason"),
    [
        (ResetOffsets(topic="unknown", group="g"), ResponseCode.TOPIC_NOT_EXIST, "unknown does not exist"),
        (ResetOffsets(topic="orders", group="typo"), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "neither settings nor"),
        (ResetOffsets(topic="orders", group="g", queue_id=2), ResponseCode.INVALID_PARAMETER, "queues 0 to 1, not 2"),
        (
            ResetOffsets(topic="orders", group="g", offset=QueueOffset(3)),
            ResponseCode.INVALID_PARAMETER,
            "needs a queueId",
        ),
        (
            ResetOffsets(topic="orders", group="g", queue_id=0, offset=QueueOffset(11)),
            ResponseCode.INVALID_PARAMETER,
            "from 0 to 10",
        ),
    ],
)
async def test_an_invalid_reset_changes_nothing(reset: ResetOffsets, code: int, reason: str) -> None:
    fixture = await reset_fixture()
    before = fixture.broker.offsets.table()
    async with running(fixture.broker) as server, connected_client(server) as admin:
        refused, remark = await admin.error_response(reset)
    assert (refused, reason in remark) == (code, True)
    assert fixture.broker.offsets.table() == before


async def test_members_are_notified_in_the_format_of_their_language() -> None:
    fixture = await reset_fixture()
    async with running(fixture.broker) as server, connected_client(server) as java, connected_client(server) as cpp:
        await java.call(heartbeat("j", consumer("g", ORDERS)), language="JAVA", version=409)
        await cpp.call(heartbeat("c", consumer("g", ORDERS)), language="CPP", version=333)
        async with connected_client(server) as admin:
            request = ResetOffsets(topic="orders", group="g", timestamp=fixture.times[2], is_force=True)
            assert (await admin.call(request)).body.offset_table == {queue(0): 2, queue(1): 0}
        for client in (java, cpp):
            while (pushed := await client.next_pushed()).code != RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
                pass
            notice = pushed.fields(ResetClientOffset)
            assert (notice.topic, notice.group, notice.timestamp) == ("orders", "g", fixture.times[2])
            assert (notice.is_force, pushed.is_oneway) == (True, True)
            if client is java:
                assert OffsetsByQueue.from_bytes(pushed.body).offset_table == {queue(0): 2, queue(1): 0}
            else:
                listed = OffsetList.from_bytes(pushed.body).offset_table
                assert [(queue.queue_id, queue.offset) for queue in listed] == [(0, 2), (1, 0)]
    assert fixture.broker.offsets.get("g", "orders", 0) == 2


async def test_a_member_that_is_too_old_prevents_the_reset_of_its_group() -> None:
    fixture = await reset_fixture()
    async with running(fixture.broker) as server, connected_client(server) as new, connected_client(server) as old:
        await new.call(heartbeat("new", consumer("g", ORDERS)), version=409)
        await old.call(heartbeat("old", consumer("g", ORDERS)), version=27)
        code, remark = await new.error_response(ResetOffsets(topic="orders", group="g", timestamp=-1, is_force=True))
        assert code == ResponseCode.SYSTEM_ERROR
        assert "client old of group g does not support this" in remark
        assert not [pushed for pushed in new.pushed if pushed.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET]
    assert fixture.broker.offsets.get("g", "orders", 0) == 6


async def test_members_that_do_not_subscribe_to_the_topic_are_not_notified() -> None:
    fixture = await reset_fixture()
    async with running(fixture.broker) as server, connected_client(server) as client:
        await client.call(heartbeat("c", consumer("g", subscription("bills"))))
        await client.call(ResetOffsets(topic="orders", group="g", timestamp=-1, is_force=True))
        assert [pushed.code for pushed in client.pushed] == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]
    assert fixture.broker.offsets.get("g", "orders", 0) == 10


async def test_broadcasting_members_are_notified_and_nothing_is_stored_for_them() -> None:
    fixture = await reset_fixture()
    async with running(fixture.broker) as server, connected_client(server) as client:
        await client.call(heartbeat("c", consumer("b", ORDERS, model=MessageModel.BROADCASTING)))
        await client.call(ResetOffsets(topic="orders", group="b", timestamp=-1))
        assert client.pushed[-1].code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    assert fixture.broker.offsets.of("b", "orders") == {}


# --- where members are


async def test_members_are_queried_for_their_offsets() -> None:
    fixture = await reset_fixture()
    async with running(fixture.broker) as server, connected_client(server) as one, connected_client(server) as two:
        await one.call(heartbeat("one", consumer("g", ORDERS)))
        await two.call(heartbeat("two", consumer("g", ORDERS)))
        async with connected_client(server) as admin:
            await admin.raw.send(_frame(GetConsumerStatus(topic="orders", group="g")))
            await _answers(one, {queue(0): 5})
            await _answers(two, {}, code=ResponseCode.SYSTEM_ERROR)
            response = await admin.raw.read()
    assert response.code == ResponseCode.SUCCESS
    assert response.body == encode_json(
        {"consumerTable": {"one": {queue(0): 5}}, "messageQueueTable": {}},
    )


async def test_a_single_member_can_be_queried() -> None:
    fixture = await reset_fixture()
    async with running(fixture.broker) as server, connected_client(server) as one, connected_client(server) as two:
        await one.call(heartbeat("one", consumer("g", ORDERS)))
        await two.call(heartbeat("two", consumer("g", ORDERS)))
        async with connected_client(server) as admin:
            await admin.raw.send(_frame(GetConsumerStatus(topic="orders", group="g", client_addr="two")))
            await _answers(two, {queue(1): 4})
            assert b'"two":{{' in (await admin.raw.read()).body


async def test_members_of_an_offline_group_cannot_be_queried() -> None:
    fixture = await reset_fixture()
    async with running(fixture.broker) as server, connected_client(server) as admin:
        code, _ = await admin.error_response(GetConsumerStatus(topic="orders", group="g"))
    assert code == ResponseCode.SYSTEM_ERROR


async def _answers(client: RawGroupClient, offsets: dict[MessageQueue, int], code: int = 0) -> None:
    while (forwarded := await client.next_pushed()).code != RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
        pass
    assert forwarded.fields(GetClientStatus).group == "g"
    await client.answer(forwarded, encode_json({"messageQueueTable": offsets}), code)


def _frame(request: GetConsumerStatus) -> bytes:
    return encode_frame(request_command(request, opaque=1))
