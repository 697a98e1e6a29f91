"""Admin API for offsets: resets of running and offline groups; Ariane's broker, and Apache's if ARIANE_INTEROP=1."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from ariane.client.admin import Admin
from ariane.client.consumer.push import PushConsumer
from ariane.errors import ClientError
from ariane.model.route import MessageQueue
from tests.client.cluster_fixture import PATIENCE_S, LiveCluster, MessageCollector, fresh


@pytest.fixture
async def admin(live_cluster: LiveCluster) -> AsyncIterator[Admin]:
    async with Admin(live_cluster.nameserver) as admin:
        yield admin


async def committed(consumer: PushConsumer, admin: Admin, queue: MessageQueue, offset: int) -> None:
    """Returns when the broker has stored `offset`."""
    async with asyncio.timeout(PATIENCE_S):
        while (await admin.offsets.get(consumer.group, queue.topic)).offsets.get(queue) != offset:
            await consumer.commit()


async def offline_group(live_cluster: LiveCluster, admin: Admin, *, offset: int) -> tuple[str, str, MessageQueue]:
    """A topic with five messages in one queue, and a group that has consumed `offset` of them."""
    topic, group = await live_cluster.topic(queues=1), fresh("group")
    await live_cluster.send(topic, b"0", b"1", b"2", b"3", b"4")
    (queue,) = await live_cluster.queues(topic)
    await admin.offsets.commit(group, queue, offset)
    return topic, group, queue


async def test_stored_offsets_are_returned(live_cluster: LiveCluster, admin: Admin) -> None:
    topic, group, queue = await offline_group(live_cluster, admin, offset=3)
    offsets = await admin.offsets.get(group, topic)
    assert offsets.offsets == {queue: 3}
    assert (await admin.offsets.get(fresh("group"), topic)).offsets == {}
    with pytest.raises(ClientError, match="0 or more"):
        await admin.offsets.commit(group, queue, -1)


async def test_a_preview_shows_skipped_and_repeated_messages_and_changes_nothing(
    live_cluster: LiveCluster, admin: Admin
) -> None:
    topic, group, queue = await offline_group(live_cluster, admin, offset=3)
    back = await admin.offsets.preview(group, topic, "earliest")
    assert (back.moves[0].target, back.skips, back.repeats, back.is_online) == (0, 0, 3, False)
    ahead = await admin.offsets.preview(group, topic, "latest")
    assert (ahead.moves[0].target, ahead.skips, ahead.repeats) == (5, 2, 0)
    assert (await admin.offsets.get(group, topic)).offsets == {queue: 3}


async def test_without_an_offset_the_skipped_count_is_unknown(live_cluster: LiveCluster, admin: Admin) -> None:
    topic, group, _ = await offline_group(live_cluster, admin, offset=3)
    other = await live_cluster.topic(queues=1)
    await live_cluster.send(other, b"x")
    plan = await admin.offsets.preview(group, other, "latest")
    assert (plan.moves[0].current, plan.skips, plan.repeats) == (None, None, None)
    assert topic != other


async def test_an_offline_group_is_reset_to_any_target(live_cluster: LiveCluster, admin: Admin) -> None:
    topic, group, queue = await offline_group(live_cluster, admin, offset=3)
    await admin.offsets.reset(group, topic, "earliest")
    assert (await admin.offsets.get(group, topic)).offsets == {queue: 0}
    await admin.offsets.skip(group, topic)
    assert (await admin.offsets.get(group, topic)).offsets == {queue: 5}
    await admin.offsets.reset(group, topic, {queue: 2})
    assert (await admin.offsets.get(group, topic)).offsets == {queue: 2}
    message = await admin.messages.by_offset(queue, 0)
    assert message is not None
    await admin.offsets.reset(group, topic, datetime.fromtimestamp(message.store_timestamp_ms / 1000 - 60, UTC))
    assert (await admin.offsets.get(group, topic)).offsets == {queue: 0}


async def test_without_force_no_offset_moves_forward(live_cluster: LiveCluster, admin: Admin) -> None:
    topic, group, queue = await offline_group(live_cluster, admin, offset=3)
    plan = await admin.offsets.reset(group, topic, "latest", force=False)
    assert plan.moves == ()
    assert (await admin.offsets.get(group, topic)).offsets == {queue: 3}


async def test_an_offset_outside_the_queue_and_an_unknown_group_are_refused(
    live_cluster: LiveCluster, admin: Admin
) -> None:
    topic, group, queue = await offline_group(live_cluster, admin, offset=3)
    with pytest.raises(ClientError, match="which goes from 0 to 5"):
        await admin.offsets.reset(group, topic, {queue: 6})
    elsewhere = MessageQueue(topic=topic, broker_name=queue.broker_name, queue_id=9)
    with pytest.raises(ClientError, match="does not exist"):
        await admin.offsets.reset(group, topic, {elsewhere: 0})
    with pytest.raises(ClientError, match="check its name"):
        await admin.offsets.reset(fresh("misspelt"), topic, "earliest")
    with pytest.raises(ClientError, match="use 'earliest'"):
        await admin.offsets.reset(group, topic, "newest")  # type: ignore[arg-type]


async def test_running_members_are_reset_back_and_get_the_messages_again(
    live_cluster: LiveCluster, admin: Admin
) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()
    (queue,) = await live_cluster.queues(topic)
    await live_cluster.send(topic, b"a", b"b", b"c")
    consumer = PushConsumer(live_cluster.nameserver, group=fresh("group"), start="earliest", handler=collector.put)
    consumer.subscribe(topic)
    async with consumer:
        await collector.until_count(3)
        await committed(consumer, admin, queue, 3)
        plan = await admin.offsets.preview(consumer.group, topic, "earliest")
        assert plan.is_online
        await admin.offsets.reset(consumer.group, topic, "earliest")
        await collector.until_count(6)
    assert sorted(collector.bodies) == [b"a", b"a", b"b", b"b", b"c", b"c"]


async def test_running_members_are_reset_to_the_end(live_cluster: LiveCluster, admin: Admin) -> None:
    topic, collector, may_go_on = await live_cluster.topic(queues=1), MessageCollector(), asyncio.Event()

    async def handle(message: object) -> None:
        collector.put(message)
        await may_go_on.wait()

    await live_cluster.send(topic, *(b"%d" % number for number in range(40)))
    group = fresh("group")
    consumer = PushConsumer(
        live_cluster.nameserver, group=group, start="earliest", handler=handle, max_concurrency=1, pull_batch=1
    )
    consumer.subscribe(topic)
    async with consumer:
        await collector.until_count(1)
        await consumer.commit()
        await admin.offsets.skip(group, topic)
        may_go_on.set()
        await live_cluster.send(topic, b"new")
        await collector.until(lambda: b"new" in collector.bodies)
    assert len(collector.messages) < 41


async def test_running_members_are_reset_to_an_offset_if_the_broker_supports_it(
    live_cluster: LiveCluster, admin: Admin
) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()
    (queue,) = await live_cluster.queues(topic)
    await live_cluster.send(topic, b"a", b"b", b"c")
    consumer = PushConsumer(live_cluster.nameserver, group=fresh("group"), start="earliest", handler=collector.put)
    consumer.subscribe(topic)
    async with consumer:
        await collector.until_count(3)
        await committed(consumer, admin, queue, 3)
        (runtime,) = (await admin.cluster.runtime()).responses.values()
        if (runtime.version or "").startswith("Ariane"):
            await admin.offsets.reset(consumer.group, topic, {queue: 1})
            await collector.until_count(5)
            assert sorted(collector.bodies[3:]) == [b"b", b"c"]
        else:  # a release that knows times only: it must not take the request for "to the beginning"
            with pytest.raises(ClientError, match="cannot reset running members to an offset"):
                await admin.offsets.reset(consumer.group, topic, {queue: 1})
            assert (await admin.offsets.get(consumer.group, topic)).offsets == {queue: 3}


async def test_offsets_are_copied_to_another_group(live_cluster: LiveCluster, admin: Admin) -> None:
    topic, group, queue = await offline_group(live_cluster, admin, offset=3)
    other = fresh("group")
    await admin.offsets.clone(group, other, topic, offline=True)
    assert (await admin.offsets.get(other, topic)).offsets == {queue: 3}


async def test_the_slowest_group_is_reported(live_cluster: LiveCluster, admin: Admin) -> None:
    topic, slow, queue = await offline_group(live_cluster, admin, offset=1)
    fast = fresh("group")
    await admin.offsets.commit(fast, queue, 4)
    assert await admin.offsets.correction(topic, fast) == {queue: 1}
    assert (await admin.offsets.get(slow, topic)).offsets == {queue: 1}
