"""Groups that someone invented by committing an offset: their number and their end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ariane.broker.groups.invented import PER_CONNECTION_MAX
from ariane.errors import RequestFailed
from ariane.model.ids import QueueOffset
from ariane.model.topic import TopicConfig
from ariane.rpc.caller import Caller
from ariane.testing import FakeClock
from ariane.wire.requests.clients import ConsumerData, Heartbeat, HeartbeatData
from ariane.wire.requests.offsets import UpdateConsumerOffset
from tests.broker.brokers import RunningBroker, running_broker
from tests.nameserver.servers import caller

KEPT_S = 60


def commit(group: str) -> UpdateConsumerOffset:
    return UpdateConsumerOffset(consumer_group=group, topic="orders", queue_id=0, commit_offset=QueueOffset(0))


@asynccontextmanager
async def opened(tmp_path: Path, clock: FakeClock) -> AsyncIterator[tuple[RunningBroker, Caller]]:
    async with (
        running_broker(tmp_path, clock=clock, auto_create_rate=0, invented_groups_kept_s=KEPT_S) as broker,
        caller() as calls,
    ):
        broker.parts.topics.put(TopicConfig(topic_name="orders", read_queue_nums=1, write_queue_nums=1))
        yield broker, calls


async def test_a_group_that_nobody_uses_is_deleted_with_its_offsets(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path, clock) as (broker, calls):
        await calls.call(broker.address, commit("idle"))
        await calls.call(broker.address, commit("busy"))
        assert broker.parts.offsets.get("idle", "orders", 0) == 0
        await clock.advance(0.7 * KEPT_S)
        await calls.call(broker.address, commit("busy"))
        await clock.advance(0.7 * KEPT_S)
        broker.parts.invented.sweep()
        assert broker.parts.groups.get("idle") is None
        assert broker.parts.offsets.topics_of("idle") == set()
        assert broker.parts.offsets.get("busy", "orders", 0) == 0


async def test_a_group_that_a_consumer_joined_is_kept(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path, clock) as (broker, calls):
        await calls.call(broker.address, commit("joined"))
        beat = HeartbeatData(client_id="c", consumer_data_set=[ConsumerData(group_name="joined")])
        await calls.call(broker.address, Heartbeat(body=beat))
        broker.parts.invented.sweep()
        assert len(broker.parts.invented) == 0
        await clock.advance(1.5 * KEPT_S)
        broker.parts.invented.sweep()
        assert broker.parts.offsets.get("joined", "orders", 0) == 0


async def test_a_group_that_existed_is_not_invented(tmp_path: Path) -> None:
    async with opened(tmp_path, FakeClock()) as (broker, calls):
        broker.parts.groups.find("there")
        await calls.call(broker.address, commit("there"))
        assert len(broker.parts.invented) == 0


async def test_one_connection_invents_only_so_many(tmp_path: Path) -> None:
    async with opened(tmp_path, FakeClock()) as (broker, calls), caller() as another:
        for number in range(PER_CONNECTION_MAX):
            await calls.call(broker.address, commit(f"g{number}"))
        with pytest.raises(RequestFailed, match="updateSubGroup"):
            await calls.call(broker.address, commit("one-more"))
        assert broker.parts.groups.get("one-more") is None
        await calls.call(broker.address, commit("g0"))
        await another.call(broker.address, commit("one-more"))
