"""Moving groups, with their members connected or not."""

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
    Office,
    Speaker,
    at_work,
    consumer,
    heartbeat,
    office,
    speaker,
    subscription,
)
from tests.store.stores import draft, put

ORDERS = subscription("orders")
OFFSETS = st.integers(0, 100)


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue(topic="orders", broker_name="broker-a", queue_id=queue_id)


@dataclass
class Stage:
    parts: Office
    times: list[int]
    """When each message of queue 0 was stored."""


async def stage() -> Stage:
    """Ten messages in queue 0, a second apart; none in queue 1; group g at 6 and 0."""
    parts, times = office(), []
    parts.topic("orders", 2)
    for _ in range(10):
        times += [one.store_timestamp_ms for one in put(parts.store, draft(b"x", "orders", 0))]
        await parts.clock.advance(1)
    parts.groups.put(GroupConfig(group_name="g"))
    parts.offsets.commit("g", "orders", 0, 6)
    parts.offsets.commit("g", "orders", 1, 0)
    return Stage(parts, times)


@given(OFFSETS, OFFSETS)
def test_a_group_goes_only_back_unless_forced(current: int, wanted: int) -> None:
    assert reset_target(current, wanted, force=False) == min(current, wanted)
    assert reset_target(current, wanted, force=True) == wanted
    assert reset_target(-1, wanted, force=False) == wanted


@pytest.mark.parametrize(("nth", "force", "expected"), [(3, False, 3), (8, False, 6), (8, True, 8)])
async def test_a_group_that_is_away_is_moved_to_a_time(nth: int, force: bool, expected: int) -> None:
    here = await stage()
    async with at_work(here.parts) as server, speaker(server) as admin:
        request = ResetOffsets(topic="orders", group="g", timestamp=here.times[nth], is_force=force)
        response = await admin.call(request)
    assert response.body.offset_table == {queue(0): expected, queue(1): 0}
    assert here.parts.offsets.of("g", "orders") == {0: expected, 1: 0}


async def test_a_group_is_moved_to_the_end() -> None:
    here = await stage()
    async with at_work(here.parts) as server, speaker(server) as admin:
        await admin.call(ResetOffsets(topic="orders", group="g", timestamp=-1, is_force=True))
    assert here.parts.offsets.get("g", "orders", 0) == 10


async def test_a_known_group_without_offsets_gets_some() -> None:
    here = await stage()
    here.parts.groups.put(GroupConfig(group_name="new"))
    async with at_work(here.parts) as server, speaker(server) as admin:
        await admin.call(ResetOffsets(topic="orders", group="new", timestamp=-1))
    assert here.parts.offsets.of("new", "orders") == {0: 10, 1: 0}


async def test_one_queue_is_moved_to_an_offset_as_5x_tools_ask_it() -> None:
    here = await stage()
    async with at_work(here.parts) as server, speaker(server) as admin:
        response = await admin.call(ResetOffsets(topic="orders", group="g", queue_id=0, offset=QueueOffset(9)))
        assert response.body.offset_table == {queue(0): 9}
        await admin.call(ResetOffsets(topic="orders", group="g", timestamp=0, queue_id=-1, offset=QueueOffset(-1)))
    assert here.parts.offsets.get("g", "orders", 0) == 0


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
async def test_a_reset_that_cannot_be_moves_nothing(reset: ResetOffsets, code: int, reason: str) -> None:
    here = await stage()
    before = here.parts.offsets.table()
    async with at_work(here.parts) as server, speaker(server) as admin:
        refused, remark = await admin.refusal(reset)
    assert (refused, reason in remark) == (code, True)
    assert here.parts.offsets.table() == before


async def test_members_are_told_each_in_the_form_of_its_language() -> None:
    here = await stage()
    async with at_work(here.parts) as server, speaker(server) as java, speaker(server) as cpp:
        await java.call(heartbeat("j", consumer("g", ORDERS)), language="JAVA", version=409)
        await cpp.call(heartbeat("c", consumer("g", ORDERS)), language="CPP", version=333)
        async with speaker(server) as admin:
            request = ResetOffsets(topic="orders", group="g", timestamp=here.times[2], is_force=True)
            assert (await admin.call(request)).body.offset_table == {queue(0): 2, queue(1): 0}
        for client in (java, cpp):
            while (told := await client.next_told()).code != RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
                pass
            notice = told.fields(ResetClientOffset)
            assert (notice.topic, notice.group, notice.timestamp) == ("orders", "g", here.times[2])
            assert (notice.is_force, told.is_oneway) == (True, True)
            if client is java:
                assert OffsetsByQueue.from_bytes(told.body).offset_table == {queue(0): 2, queue(1): 0}
            else:
                listed = OffsetList.from_bytes(told.body).offset_table
                assert [(one.queue_id, one.offset) for one in listed] == [(0, 2), (1, 0)]
    assert here.parts.offsets.get("g", "orders", 0) == 2


async def test_a_member_that_is_too_old_keeps_the_whole_group_where_it_is() -> None:
    here = await stage()
    async with at_work(here.parts) as server, speaker(server) as new, speaker(server) as old:
        await new.call(heartbeat("new", consumer("g", ORDERS)), version=409)
        await old.call(heartbeat("old", consumer("g", ORDERS)), version=27)
        code, remark = await new.refusal(ResetOffsets(topic="orders", group="g", timestamp=-1, is_force=True))
        assert code == ResponseCode.SYSTEM_ERROR
        assert "client old of group g does not support this" in remark
        assert not [told for told in new.told if told.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET]
    assert here.parts.offsets.get("g", "orders", 0) == 6


async def test_members_that_do_not_read_the_topic_are_left_alone() -> None:
    here = await stage()
    async with at_work(here.parts) as server, speaker(server) as client:
        await client.call(heartbeat("c", consumer("g", subscription("bills"))))
        await client.call(ResetOffsets(topic="orders", group="g", timestamp=-1, is_force=True))
        assert [told.code for told in client.told] == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]
    assert here.parts.offsets.get("g", "orders", 0) == 10


async def test_members_that_broadcast_are_told_and_nothing_is_stored_for_them() -> None:
    here = await stage()
    async with at_work(here.parts) as server, speaker(server) as client:
        await client.call(heartbeat("c", consumer("b", ORDERS, model=MessageModel.BROADCASTING)))
        await client.call(ResetOffsets(topic="orders", group="b", timestamp=-1))
        assert client.told[-1].code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    assert here.parts.offsets.of("b", "orders") == {}


# --- where members are


async def test_members_are_asked_where_they_are() -> None:
    here = await stage()
    async with at_work(here.parts) as server, speaker(server) as one, speaker(server) as two:
        await one.call(heartbeat("one", consumer("g", ORDERS)))
        await two.call(heartbeat("two", consumer("g", ORDERS)))
        async with speaker(server) as admin:
            await admin.raw.send(_frame(GetConsumerStatus(topic="orders", group="g")))
            await _answers(one, {queue(0): 5})
            await _answers(two, {}, code=ResponseCode.SYSTEM_ERROR)
            response = await admin.raw.read()
    assert response.code == ResponseCode.SUCCESS
    assert response.body == encode_json(
        {"consumerTable": {"one": {queue(0): 5}}, "messageQueueTable": {}},
    )


async def test_one_member_alone_can_be_asked() -> None:
    here = await stage()
    async with at_work(here.parts) as server, speaker(server) as one, speaker(server) as two:
        await one.call(heartbeat("one", consumer("g", ORDERS)))
        await two.call(heartbeat("two", consumer("g", ORDERS)))
        async with speaker(server) as admin:
            await admin.raw.send(_frame(GetConsumerStatus(topic="orders", group="g", client_addr="two")))
            await _answers(two, {queue(1): 4})
            assert b'"two":{{' in (await admin.raw.read()).body


async def test_nobody_can_be_asked_of_a_group_that_is_away() -> None:
    here = await stage()
    async with at_work(here.parts) as server, speaker(server) as admin:
        code, _ = await admin.refusal(GetConsumerStatus(topic="orders", group="g"))
    assert code == ResponseCode.SYSTEM_ERROR


async def _answers(client: Speaker, offsets: dict[MessageQueue, int], code: int = 0) -> None:
    while (asked := await client.next_told()).code != RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
        pass
    assert asked.fields(GetClientStatus).group == "g"
    await client.answer(asked, encode_json({"messageQueueTable": offsets}), code)


def _frame(request: GetConsumerStatus) -> bytes:
    return encode_frame(request_command(request, opaque=1))
