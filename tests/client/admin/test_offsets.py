"""Moving groups, online and offline, against a real broker: ours, and Apache's when ARIANE_INTEROP=1."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from ariane.client.admin import Admin
from ariane.client.consumer.push import PushConsumer
from ariane.errors import ClientError
from ariane.model.route import MessageQueue
from tests.client.cluster_fixture import PATIENCE_S, Basket, Ground, fresh


@pytest.fixture
async def admin(ground: Ground) -> AsyncIterator[Admin]:
    async with Admin(ground.nameserver) as admin:
        yield admin


async def committed(consumer: PushConsumer, admin: Admin, queue: MessageQueue, offset: int) -> None:
    """Returns when the broker has stored `offset`."""
    async with asyncio.timeout(PATIENCE_S):
        while (await admin.offsets.get(consumer.group, queue.topic)).offsets.get(queue) != offset:
            await consumer.commit()


async def offline_group(ground: Ground, admin: Admin, *, offset: int) -> tuple[str, str, MessageQueue]:
    """A topic with five messages in one queue, and a group that has consumed `offset` of them."""
    topic, group = await ground.topic(queues=1), fresh("group")
    await ground.send(topic, b"0", b"1", b"2", b"3", b"4")
    (queue,) = await ground.queues(topic)
    await admin.offsets.commit(group, queue, offset)
    return topic, group, queue


async def test_offsets_are_told_where_there_are_some(ground: Ground, admin: Admin) -> None:
    topic, group, queue = await offline_group(ground, admin, offset=3)
    told = await admin.offsets.get(group, topic)
    assert told.offsets == {queue: 3}
    assert (await admin.offsets.get(fresh("group"), topic)).offsets == {}
    with pytest.raises(ClientError, match="0 or more"):
        await admin.offsets.commit(group, queue, -1)


async def test_a_preview_tells_what_is_skipped_and_repeated_and_changes_nothing(ground: Ground, admin: Admin) -> None:
    topic, group, queue = await offline_group(ground, admin, offset=3)
    back = await admin.offsets.preview(group, topic, "earliest")
    assert (back.moves[0].target, back.skips, back.repeats, back.is_online) == (0, 0, 3, False)
    ahead = await admin.offsets.preview(group, topic, "latest")
    assert (ahead.moves[0].target, ahead.skips, ahead.repeats) == (5, 2, 0)
    assert (await admin.offsets.get(group, topic)).offsets == {queue: 3}


async def test_without_an_offset_nobody_knows_what_is_skipped(ground: Ground, admin: Admin) -> None:
    topic, group, _ = await offline_group(ground, admin, offset=3)
    other = await ground.topic(queues=1)
    await ground.send(other, b"x")
    plan = await admin.offsets.preview(group, other, "latest")
    assert (plan.moves[0].current, plan.skips, plan.repeats) == (None, None, None)
    assert topic != other


async def test_an_offline_group_goes_wherever_it_is_told(ground: Ground, admin: Admin) -> None:
    topic, group, queue = await offline_group(ground, admin, offset=3)
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


async def test_without_force_no_queue_goes_forward(ground: Ground, admin: Admin) -> None:
    topic, group, queue = await offline_group(ground, admin, offset=3)
    plan = await admin.offsets.reset(group, topic, "latest", force=False)
    assert plan.moves == ()
    assert (await admin.offsets.get(group, topic)).offsets == {queue: 3}


async def test_an_offset_outside_the_queue_and_an_unknown_group_are_refused(ground: Ground, admin: Admin) -> None:
    topic, group, queue = await offline_group(ground, admin, offset=3)
    with pytest.raises(ClientError, match="which goes from 0 to 5"):
        await admin.offsets.reset(group, topic, {queue: 6})
    elsewhere = MessageQueue(topic=topic, broker_name=queue.broker_name, queue_id=9)
    with pytest.raises(ClientError, match="does not exist"):
        await admin.offsets.reset(group, topic, {elsewhere: 0})
    with pytest.raises(ClientError, match="check its name"):
        await admin.offsets.reset(fresh("misspelt"), topic, "earliest")
    with pytest.raises(ClientError, match="use 'earliest'"):
        await admin.offsets.reset(group, topic, "newest")  # type: ignore[arg-type]


async def test_running_members_are_moved_back_and_get_the_messages_again(ground: Ground, admin: Admin) -> None:
    topic, basket = await ground.topic(queues=1), Basket()
    (queue,) = await ground.queues(topic)
    await ground.send(topic, b"a", b"b", b"c")
    consumer = PushConsumer(ground.nameserver, group=fresh("group"), start="earliest", handler=basket.put)
    consumer.subscribe(topic)
    async with consumer:
        await basket.until_count(3)
        await committed(consumer, admin, queue, 3)
        plan = await admin.offsets.preview(consumer.group, topic, "earliest")
        assert plan.is_online
        await admin.offsets.reset(consumer.group, topic, "earliest")
        await basket.until_count(6)
    assert sorted(basket.bodies) == [b"a", b"a", b"b", b"b", b"c", b"c"]


async def test_running_members_are_moved_to_the_end(ground: Ground, admin: Admin) -> None:
    topic, basket, may_go_on = await ground.topic(queues=1), Basket(), asyncio.Event()

    async def handle(message: object) -> None:
        basket.put(message)
        await may_go_on.wait()

    await ground.send(topic, *(b"%d" % number for number in range(40)))
    group = fresh("group")
    consumer = PushConsumer(
        ground.nameserver, group=group, start="earliest", handler=handle, max_concurrency=1, pull_batch=1
    )
    consumer.subscribe(topic)
    async with consumer:
        await basket.until_count(1)
        await consumer.commit()
        await admin.offsets.skip(group, topic)
        may_go_on.set()
        await ground.send(topic, b"new")
        await basket.until(lambda: b"new" in basket.bodies)
    assert len(basket.messages) < 41


async def test_running_members_go_to_an_offset_where_the_broker_can_do_that(ground: Ground, admin: Admin) -> None:
    topic, basket = await ground.topic(queues=1), Basket()
    (queue,) = await ground.queues(topic)
    await ground.send(topic, b"a", b"b", b"c")
    consumer = PushConsumer(ground.nameserver, group=fresh("group"), start="earliest", handler=basket.put)
    consumer.subscribe(topic)
    async with consumer:
        await basket.until_count(3)
        await committed(consumer, admin, queue, 3)
        (runtime,) = (await admin.cluster.runtime()).responses.values()
        if (runtime.version or "").startswith("Ariane"):
            await admin.offsets.reset(consumer.group, topic, {queue: 1})
            await basket.until_count(5)
            assert sorted(basket.bodies[3:]) == [b"b", b"c"]
        else:  # a release that knows times only: it must not take the request for "to the beginning"
            with pytest.raises(ClientError, match="cannot reset running members to an offset"):
                await admin.offsets.reset(consumer.group, topic, {queue: 1})
            assert (await admin.offsets.get(consumer.group, topic)).offsets == {queue: 3}


async def test_offsets_are_copied_to_another_group(ground: Ground, admin: Admin) -> None:
    topic, group, queue = await offline_group(ground, admin, offset=3)
    other = fresh("group")
    await admin.offsets.clone(group, other, topic, offline=True)
    assert (await admin.offsets.get(other, topic)).offsets == {queue: 3}


async def test_the_slowest_group_is_told(ground: Ground, admin: Admin) -> None:
    topic, slow, queue = await offline_group(ground, admin, offset=1)
    fast = fresh("group")
    await admin.offsets.commit(fast, queue, 4)
    assert await admin.offsets.correction(topic, fast) == {queue: 1}
    assert (await admin.offsets.get(slow, topic)).offsets == {queue: 1}
