"""Pull consumers, manual and scheduled, with a real broker."""

import asyncio

import pytest

from ariane.client.consumer.pull import PullConsumer, PullContext, ScheduledPullConsumer
from ariane.client.consumer.pull_request import PullStatus
from ariane.client.consumer.push import PushConsumer
from ariane.errors import NoRoute
from ariane.model.route import MessageQueue
from tests.client.cluster_fixture import PATIENCE_S, LiveCluster, MessageCollector, fresh


async def test_a_pull_returns_messages_and_the_next_offset(live_cluster: LiveCluster) -> None:
    topic = await live_cluster.topic(queues=1)
    await live_cluster.send(topic, b"a", b"b", b"c")
    async with PullConsumer(live_cluster.nameserver, group=fresh("group")) as consumer:
        (queue,) = await consumer.queues(topic)
        result = await consumer.pull(queue, 0, count=2)
        assert result.status is PullStatus.FOUND
        assert [message.body for message in result.messages] == [b"a", b"b"]
        assert (result.next_offset, result.min_offset, result.max_offset) == (2, 0, 3)
        assert (await consumer.pull(queue, 3)).status is PullStatus.NO_NEW_MSG
        assert (await consumer.pull(queue, 9)).status is PullStatus.OFFSET_ILLEGAL
        nothing = await consumer.pull(queue, 0, "no-such-tag")
        assert (nothing.status, nothing.next_offset) == (PullStatus.NO_MATCHED_MSG, 3)


async def test_a_blocking_pull_waits_for_the_message(live_cluster: LiveCluster) -> None:
    topic = await live_cluster.topic(queues=1)
    await live_cluster.send(topic, b"before")
    async with PullConsumer(live_cluster.nameserver, group=fresh("group")) as consumer:
        (queue,) = await consumer.queues(topic)
        waiting = asyncio.ensure_future(consumer.pull_blocking(queue, 1))
        await consumer.max_offset(queue)  # the pull went out on the same connection before
        await live_cluster.send(topic, b"after")
        result = await asyncio.wait_for(waiting, PATIENCE_S)
    assert [message.body for message in result.messages] == [b"after"]


async def test_offsets_are_read_searched_and_updated(live_cluster: LiveCluster) -> None:
    topic, group = await live_cluster.topic(queues=1), fresh("group")
    await live_cluster.send(topic, b"a", b"b")
    async with PullConsumer(live_cluster.nameserver, group=group) as consumer:
        (queue,) = await consumer.queues(topic)
        assert (await consumer.min_offset(queue), await consumer.max_offset(queue)) == (0, 2)
        assert await consumer.search_offset(queue, 0) == 0
        stored = (await consumer.pull(queue, 0)).messages[0].store_timestamp_ms
        assert await consumer.earliest_store_time_ms(queue) == stored
        consumer.update_offset(queue, 2)
        assert await consumer.fetch_offset(queue) == 2
        await consumer.commit()
        assert await consumer.fetch_offset(queue, from_broker=True) == 2


async def test_updated_offsets_are_saved_on_close(live_cluster: LiveCluster) -> None:
    topic, group = await live_cluster.topic(queues=1), fresh("group")
    await live_cluster.send(topic, b"a")
    async with PullConsumer(live_cluster.nameserver, group=group) as consumer:
        (queue,) = await consumer.queues(topic)
        consumer.update_offset(queue, 1)
    assert await live_cluster.committed(group, topic) == [1]


async def test_a_message_that_is_sent_back_is_redelivered(live_cluster: LiveCluster) -> None:
    topic, group, collector = await live_cluster.topic(queues=1), fresh("group"), MessageCollector()
    await live_cluster.send(topic, b"later")
    pusher = PushConsumer(live_cluster.nameserver, group=group, handler=collector.put, start="latest")
    pusher.subscribe(topic, "nothing")
    async with pusher, PullConsumer(live_cluster.nameserver, group=fresh("other")) as reader:
        (queue,) = await reader.queues(topic)
        message = (await reader.pull(queue, 0)).messages[0]
        reader.group = group
        await reader.send_back(message)
        await collector.until_count(1)
    assert (collector.messages[0].body, collector.messages[0].attempt) == (b"later", 2)


async def test_the_listener_gets_the_assigned_queues(live_cluster: LiveCluster) -> None:
    topic = await live_cluster.topic()
    notifications: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
    consumer = PullConsumer(live_cluster.nameserver, group=fresh("group"))
    consumer.on_queues_changed(
        topic, lambda _topic, all_queues, mine: notifications.put_nowait((len(all_queues), len(mine)))
    )
    async with consumer:
        assert await asyncio.wait_for(notifications.get(), PATIENCE_S) == (4, 4)
        assert await consumer.queues_in_balance(topic) == await consumer.queues(topic)


async def test_the_error_for_an_unknown_topic_has_a_hint(live_cluster: LiveCluster) -> None:
    async with PullConsumer(live_cluster.nameserver, group=fresh("group")) as consumer:
        with pytest.raises(NoRoute, match="create it with"):
            await consumer.queues(fresh("missing"))


async def test_a_scheduled_callback_is_called_repeatedly_for_every_queue(live_cluster: LiveCluster) -> None:
    topic, collector = await live_cluster.topic(), MessageCollector()
    await live_cluster.send(topic, *(b"%d" % number for number in range(8)))
    consumer = ScheduledPullConsumer(live_cluster.nameserver, group=fresh("group"))

    @consumer.register(topic)
    async def pull(queue: MessageQueue, context: PullContext) -> None:
        result = await context.consumer.pull(queue, await context.consumer.fetch_offset(queue) or 0, count=1)
        for message in result.messages:
            collector.put(message)
        context.consumer.update_offset(queue, result.next_offset)
        context.next_delay_s = 0.0 if result.messages else 0.2

    async with consumer:
        await collector.until_count(8)
        assert sorted(collector.bodies) == sorted(b"%d" % number for number in range(8))
    assert await live_cluster.committed(consumer.group, topic) == [2, 2, 2, 2]


async def test_a_callback_that_raises_is_called_again(live_cluster: LiveCluster) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()
    consumer = ScheduledPullConsumer(live_cluster.nameserver, group=fresh("group"))

    @consumer.register(topic)
    async def pull(queue: MessageQueue, context: PullContext) -> None:
        collector.put(queue)
        if len(collector.messages) == 1:
            raise ValueError("the first time")

    async with consumer:
        await collector.until_count(2)
