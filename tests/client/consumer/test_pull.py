"""Pulling by hand, and on a schedule, against a real broker."""

import asyncio

import pytest

from ariane.client.consumer.pull import PullConsumer, PullContext, ScheduledPullConsumer
from ariane.client.consumer.pull_request import PullStatus
from ariane.client.consumer.push import PushConsumer
from ariane.errors import NoRoute
from ariane.model.route import MessageQueue
from tests.client.cluster_fixture import PATIENCE_S, Basket, Ground, fresh


async def test_a_pull_finds_messages_and_says_where_to_go_on(ground: Ground) -> None:
    topic = await ground.topic(queues=1)
    await ground.send(topic, b"a", b"b", b"c")
    async with PullConsumer(ground.nameserver, group=fresh("group")) as consumer:
        (queue,) = await consumer.queues(topic)
        result = await consumer.pull(queue, 0, count=2)
        assert result.status is PullStatus.FOUND
        assert [message.body for message in result.messages] == [b"a", b"b"]
        assert (result.next_offset, result.min_offset, result.max_offset) == (2, 0, 3)
        assert (await consumer.pull(queue, 3)).status is PullStatus.NO_NEW_MSG
        assert (await consumer.pull(queue, 9)).status is PullStatus.OFFSET_ILLEGAL
        nothing = await consumer.pull(queue, 0, "no-such-tag")
        assert (nothing.status, nothing.next_offset) == (PullStatus.NO_MATCHED_MSG, 3)


async def test_a_blocking_pull_waits_for_the_message(ground: Ground) -> None:
    topic = await ground.topic(queues=1)
    await ground.send(topic, b"before")
    async with PullConsumer(ground.nameserver, group=fresh("group")) as consumer:
        (queue,) = await consumer.queues(topic)
        waiting = asyncio.ensure_future(consumer.pull_blocking(queue, 1))
        await consumer.max_offset(queue)  # the pull went out on the same connection before
        await ground.send(topic, b"after")
        result = await asyncio.wait_for(waiting, PATIENCE_S)
    assert [message.body for message in result.messages] == [b"after"]


async def test_offsets_are_looked_up_searched_and_kept(ground: Ground) -> None:
    topic, group = await ground.topic(queues=1), fresh("group")
    await ground.send(topic, b"a", b"b")
    async with PullConsumer(ground.nameserver, group=group) as consumer:
        (queue,) = await consumer.queues(topic)
        assert (await consumer.min_offset(queue), await consumer.max_offset(queue)) == (0, 2)
        assert await consumer.search_offset(queue, 0) == 0
        stored = (await consumer.pull(queue, 0)).messages[0].store_timestamp_ms
        assert await consumer.earliest_store_time_ms(queue) == stored
        consumer.update_offset(queue, 2)
        assert await consumer.fetch_offset(queue) == 2
        await consumer.commit()
        assert await consumer.fetch_offset(queue, from_broker=True) == 2


async def test_what_is_updated_is_saved_at_the_end(ground: Ground) -> None:
    topic, group = await ground.topic(queues=1), fresh("group")
    await ground.send(topic, b"a")
    async with PullConsumer(ground.nameserver, group=group) as consumer:
        (queue,) = await consumer.queues(topic)
        consumer.update_offset(queue, 1)
    assert await ground.committed(group, topic) == [1]


async def test_a_message_that_is_sent_back_comes_to_the_group_again(ground: Ground) -> None:
    topic, group, basket = await ground.topic(queues=1), fresh("group"), Basket()
    await ground.send(topic, b"later")
    pusher = PushConsumer(ground.nameserver, group=group, handler=basket.put, start="latest")
    pusher.subscribe(topic, "nothing")
    async with pusher, PullConsumer(ground.nameserver, group=fresh("other")) as reader:
        (queue,) = await reader.queues(topic)
        message = (await reader.pull(queue, 0)).messages[0]
        reader.group = group
        await reader.send_back(message)
        await basket.until_count(1)
    assert (basket.messages[0].body, basket.messages[0].attempt) == (b"later", 2)


async def test_the_listener_hears_which_queues_are_ours(ground: Ground) -> None:
    topic = await ground.topic()
    told: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
    consumer = PullConsumer(ground.nameserver, group=fresh("group"))
    consumer.on_queues_changed(topic, lambda _topic, everything, mine: told.put_nowait((len(everything), len(mine))))
    async with consumer:
        assert await asyncio.wait_for(told.get(), PATIENCE_S) == (4, 4)
        assert await consumer.queues_in_balance(topic) == await consumer.queues(topic)


async def test_an_unknown_topic_names_the_cure(ground: Ground) -> None:
    async with PullConsumer(ground.nameserver, group=fresh("group")) as consumer:
        with pytest.raises(NoRoute, match="create it with"):
            await consumer.queues(fresh("missing"))


async def test_a_scheduled_callback_is_called_for_every_queue_until_it_has_read_it(ground: Ground) -> None:
    topic, basket = await ground.topic(), Basket()
    await ground.send(topic, *(b"%d" % number for number in range(8)))
    consumer = ScheduledPullConsumer(ground.nameserver, group=fresh("group"))

    @consumer.register(topic)
    async def pull(queue: MessageQueue, context: PullContext) -> None:
        result = await context.consumer.pull(queue, await context.consumer.fetch_offset(queue) or 0, count=1)
        for message in result.messages:
            basket.put(message)
        context.consumer.update_offset(queue, result.next_offset)
        context.next_delay_s = 0.0 if result.messages else 0.2

    async with consumer:
        await basket.until_count(8)
        assert sorted(basket.bodies) == sorted(b"%d" % number for number in range(8))
    assert await ground.committed(consumer.group, topic) == [2, 2, 2, 2]


async def test_a_callback_that_raises_is_called_again(ground: Ground) -> None:
    topic, basket = await ground.topic(queues=1), Basket()
    consumer = ScheduledPullConsumer(ground.nameserver, group=fresh("group"))

    @consumer.register(topic)
    async def pull(queue: MessageQueue, context: PullContext) -> None:
        basket.put(queue)
        if len(basket.messages) == 1:
            raise ValueError("the first time")

    async with consumer:
        await basket.until_count(2)
