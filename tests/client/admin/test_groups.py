"""Admin API for groups, members and lag, with a real broker: Ariane's, and Apache's if ARIANE_INTEROP=1."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ariane.client.admin import Admin
from ariane.client.consumer.push import PushConsumer
from ariane.errors import ClientError
from ariane.model.group import GroupConfig, MessageModel
from tests.broker.brokers import running_cluster
from tests.client.cluster_fixture import PATIENCE_S, LiveCluster, MessageCollector, fresh
from tests.nameserver.servers import caller, registration


@pytest.fixture
async def admin(live_cluster: LiveCluster) -> AsyncIterator[Admin]:
    async with Admin(live_cluster.nameserver) as admin:
        yield admin


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 - what another end of a socket does has no event
            await asyncio.sleep(0.02)


async def test_a_group_is_created_changed_and_deleted(admin: Admin) -> None:
    group = fresh("group")
    await admin.groups.put(GroupConfig(group_name=group, retry_max_times=3))
    assert group in await admin.groups.names()
    await admin.groups.update(group, consume_enable=False)
    (config,) = (await admin.groups.configs(group)).responses.values()
    assert (config.retry_max_times, config.consume_enable) == (3, False)
    await admin.groups.delete(group)
    assert group not in await admin.groups.names()
    with pytest.raises(ClientError, match="no broker knows group"):
        await admin.groups.update(group, consume_enable=True)


async def test_a_group_that_never_consumed_has_an_unknown_lag_and_not_zero(
    live_cluster: LiveCluster, admin: Admin
) -> None:
    topic, group = await live_cluster.topic(queues=2), fresh("group")
    await live_cluster.send(topic, b"a", b"b")
    lag = await admin.groups.lag(group, topic)
    assert [(queue.end, queue.offset, queue.lag) for queue in lag.queues] == [(1, None, None), (1, None, None)]
    assert lag.total is None
    assert lag.by_topic == {topic: None}
    assert lag.known_total == 0


async def test_lag_is_reported_by_queue_and_is_unknown_without_an_offset(
    live_cluster: LiveCluster, admin: Admin
) -> None:
    topic, group = await live_cluster.topic(queues=3), fresh("group")
    await live_cluster.send(topic, *(b"%d" % number for number in range(9)))
    one, two, three = await live_cluster.queues(topic)
    await admin.offsets.commit(group, one, 2)
    await admin.offsets.commit(group, two, 0)  # an offset like any other, and not "none"
    lag = await admin.groups.lag(group)
    assert [(each.queue, each.offset, each.lag) for each in lag.queues] == [
        (one, 2, 1),
        (two, 0, 3),
        (three, None, None),
    ]
    assert (lag.total, lag.known_total) == (None, 4)
    assert lag.queues[0].last_consumed_ms is not None
    assert lag.queues[1].last_consumed_ms is None
    await admin.offsets.commit(group, three, 3)
    assert (await admin.groups.lag(group)).total == 4


async def test_members_are_listed_with_their_subscriptions_and_queues(live_cluster: LiveCluster, admin: Admin) -> None:
    topic, collector = await live_cluster.topic(queues=2), MessageCollector()
    consumer = PushConsumer(live_cluster.nameserver, group=fresh("group"), start="earliest", handler=collector.put)
    consumer.subscribe(topic, "paid || refunded")
    await live_cluster.send(topic, b"one", TAGS="paid")
    assert not (await admin.groups.members(consumer.group)).is_online
    async with consumer:
        await collector.until_count(1)
        members = await admin.groups.members(consumer.group)
        assert [member.client_id for member in members.members] == [consumer.client_id]
        assert members.message_model is MessageModel.CLUSTERING
        assert members.subscribes_to(topic)
        info = await admin.clients.running_info(consumer.group, consumer.client_id)
        assert {queue.topic for queue in info.mq_table} >= {topic}
        assert (await admin.clients.running_infos(consumer.group)).responses.keys() == {consumer.client_id}

        async def positions_known() -> bool:
            positions = await admin.clients.positions(consumer.group, topic)
            return positions.get(consumer.client_id, {}).get(collector.messages[0].queue) == 1

        await until(positions_known)
        lag = await admin.groups.lag(consumer.group, topic, owners=True)
        assert {queue.owner for queue in lag.queues} == {consumer.client_id}
        assert consumer.group in await admin.topics.groups(topic)
    with pytest.raises(ClientError, match="has no member"):
        await admin.clients.running_info(consumer.group, "nobody")


async def test_a_summary_has_members_and_lag(live_cluster: LiveCluster, admin: Admin) -> None:
    topic, group = await live_cluster.topic(queues=1), fresh("group")
    await live_cluster.send(topic, b"a", b"b")
    (queue,) = await live_cluster.queues(topic)
    await admin.offsets.commit(group, queue, 1)
    (summary,) = await admin.groups.summaries([group])
    assert not summary.members.is_online
    assert summary.lag.total == 1


async def test_time_spans_show_how_old_a_queue_is(live_cluster: LiveCluster, admin: Admin) -> None:
    topic, group = await live_cluster.topic(queues=1), fresh("group")
    await live_cluster.send(topic, b"a", b"b")
    (queue,) = await live_cluster.queues(topic)
    await admin.offsets.commit(group, queue, 1)
    ((span,),) = (await admin.groups.time_spans(group, topic)).responses.values()
    assert span.message_queue == queue
    assert 0 < span.min_time_stamp <= span.max_time_stamp


async def test_deleting_a_group_can_delete_its_offsets_and_topics(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, Admin(cluster.nameserver) as admin:
        await admin.topics.create("T", queues=1)
        await admin.topics.create("%RETRY%g", queues=1)
        (queue,) = (await admin.topics.stats("T")).by_queue()
        await admin.offsets.commit("g", queue, 0)
        await admin.groups.delete("g", offsets=True, topics=True)
        assert (await admin.offsets.get("g", "T")).offsets == {}
        assert "%RETRY%g" not in await admin.topics.names()


async def test_a_broker_that_is_down_makes_the_total_unknown(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, Admin(cluster.nameserver, timeout_s=2) as admin, caller() as dead:
        await admin.topics.create("T", queues=1)
        (queue,) = (await admin.topics.stats("T")).by_queue()
        await admin.offsets.commit("g", queue, 0)
        assert (await admin.groups.lag("g")).total == 0
        await dead.call(cluster.nameserver, registration("T", broker="broker-b", address="127.0.0.1:1"))
        lag = await admin.groups.lag("g")
        assert (lag.total, lag.known_total, lag.is_complete) == (None, 0, False)
        assert not (await admin.groups.members("g")).is_complete
