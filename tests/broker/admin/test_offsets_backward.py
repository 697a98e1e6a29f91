"""Commits below the stored offset: stored when a tool, a seek or a reset moves a group back, otherwise ignored."""

import pytest

from ariane.broker.groups.offsets import RESET_S, ConsumerOffsets
from ariane.model.group import ConsumeType
from ariane.model.ids import QueueOffset
from ariane.testing import FakeClock
from ariane.wire.exchange import request_command
from ariane.wire.frame import encode_frame
from ariane.wire.requests.clients import ConsumerData
from ariane.wire.requests.offsets import GetConsumerOffset, ResetOffsets, UpdateConsumerOffset
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

PUSH = consumer("g", subscription("orders"))
PULL = ConsumerData(
    group_name="g",
    consume_type=ConsumeType.CONSUME_ACTIVELY,
    message_model=PUSH.message_model,
    consume_from_where=PUSH.consume_from_where,
    subscription_data_set=PUSH.subscription_data_set,
)


def broker_with_messages() -> GroupBroker:
    broker = group_broker()
    broker.topic("orders", 1)
    put(broker.store, *(draft(b"x", "orders", 0) for _ in range(10)))
    broker.offsets.commit("g", "orders", 0, 7)
    return broker


async def commit(client: RawGroupClient, offset: int, *, oneway: bool = False, seek: bool | None = None) -> int:
    """The offset that is stored afterwards."""
    request = UpdateConsumerOffset("g", "orders", 0, QueueOffset(offset), seek)
    if oneway:
        await client.raw.send(encode_frame(request_command(request, opaque=0, oneway=True)))
    else:
        await client.call(request)
    return (await client.call(GetConsumerOffset("g", "orders", 0))).offset


@pytest.mark.parametrize(
    ("group", "is_member", "oneway", "seek", "stored"),
    [
        pytest.param(PUSH, True, True, None, 7, id="a push consumer of Apache's"),
        pytest.param(PUSH, True, False, None, 7, id="a push consumer that waits for the response"),
        pytest.param(None, False, True, None, 7, id="a consumer before its first heartbeat after a restart"),
        pytest.param(PUSH, False, True, None, 7, id="a push consumer of Apache's over the VIP port"),
        pytest.param(PUSH, False, False, None, 3, id="a tool, while members are online"),
        pytest.param(None, False, False, None, 3, id="a tool, for a group without members"),
        pytest.param(PULL, True, True, None, 3, id="a pull consumer of Apache's"),
        pytest.param(PULL, False, True, None, 3, id="a pull consumer of Apache's over the VIP port"),
        pytest.param(None, False, False, False, 7, id="our consumer before its first heartbeat after a restart"),
        pytest.param(PUSH, True, False, False, 7, id="our consumer"),
        pytest.param(PUSH, True, False, True, 3, id="our consumer after a seek or a reset"),
    ],
)
async def test_who_may_commit_a_lower_offset(
    group: ConsumerData | None, is_member: bool, oneway: bool, seek: bool | None, stored: int
) -> None:
    broker = broker_with_messages()
    async with running(broker) as server, connected_client(server) as one, connected_client(server) as other:
        if group is not None:
            await one.call(heartbeat("one", group))
        client = one if is_member or group is None else other
        assert await commit(client, 3, oneway=oneway, seek=seek) == stored
        assert await commit(client, 8, oneway=oneway, seek=seek) == 8


async def test_after_a_reset_members_move_back_to_its_offset_and_no_further() -> None:
    """Apache's client repeats its old offset while it waits for its handlers, and then commits that of the reset."""
    broker = broker_with_messages()
    async with running(broker) as server, connected_client(server) as member, connected_client(server) as tool:
        await member.call(heartbeat("one", PUSH, producers=()))
        to_4 = ResetOffsets(topic="orders", group="g", timestamp=0, is_force=True, queue_id=0, offset=QueueOffset(4))
        await tool.call(to_4)
        assert await commit(member, 7, oneway=True) == 7
        assert await commit(member, 3, oneway=True) == 7
        assert await commit(member, 4, oneway=True) == 4


async def test_a_reset_admits_lower_offsets_for_a_minute_and_in_its_queue_only() -> None:
    clock = FakeClock()
    offsets = ConsumerOffsets(None, monotonic=clock.monotonic)
    for queue_id in (0, 1):
        offsets.commit("g", "orders", queue_id, 9)
    offsets.reset("g", "orders", 0, 4)
    assert offsets.advance("g", "orders", 0, 9)
    assert not offsets.advance("g", "orders", 1, 5)
    assert offsets.advance("g", "orders", 0, 5)
    await clock.advance(RESET_S)
    assert offsets.advance("g", "orders", 0, 6)
    assert not offsets.advance("g", "orders", 0, 5)
    assert offsets.of("g", "orders") == {0: 6, 1: 9}


def test_an_offset_that_is_the_same_or_the_first_is_no_way_back() -> None:
    offsets = ConsumerOffsets(None)
    assert offsets.advance("g", "orders", 0, 0)
    assert offsets.advance("g", "orders", 0, 5)
    assert offsets.advance("g", "orders", 0, 5)
    assert offsets.get("g", "orders", 0) == 5
