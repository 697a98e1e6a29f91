"""What brokers and administrators ask of a running consumer."""

import asyncio
from typing import Any

import pytest

from ariane.client.consumer.lite_pull import LitePullConsumer
from ariane.client.consumer.message import Received
from ariane.client.consumer.push import PushConsumer
from ariane.errors import RequestFailed
from ariane.model.ids import QueueOffset
from ariane.wire.requests.clients import ConsumeDirectly, ConsumeOutcome, GetConsumerConnections, GetRunningInfo
from ariane.wire.requests.offsets import GetConsumerStatus, ResetOffsets
from tests.client.cluster_fixture import PATIENCE_S, Basket, Ground, fresh, until


def consumer_of(ground: Ground, **options: Any) -> PushConsumer:
    return PushConsumer(ground.nameserver, **{"group": fresh("group"), "start": "earliest", **options})


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_reset_repeats_the_messages_and_the_offset_is_stored(ground: Ground, ordered: bool) -> None:
    topic, basket = await ground.topic(queues=1), Basket()
    consumer = consumer_of(ground, handler=basket.put, ordered=ordered)
    consumer.subscribe(topic)
    await ground.send(topic, b"a", b"b")
    async with consumer:
        await basket.until_count(2)
        await consumer.commit()
        await ground.instance.call(
            ground.broker, ResetOffsets(topic=topic, group=consumer.group, timestamp=1, is_force=True)
        )
        await basket.until_count(4)
    assert basket.bodies == [b"a", b"b", b"a", b"b"]
    assert await ground.committed(consumer.group, topic) == [2]


async def test_a_reset_throws_away_what_is_in_hand(ground: Ground) -> None:
    topic, basket, may_finish = await ground.topic(queues=1), Basket(), asyncio.Event()

    async def handle(message: Received) -> bool:
        basket.put(message)
        if len(basket.messages) == 2:
            await may_finish.wait()
            return False
        return True

    consumer = consumer_of(ground, handler=handle, max_concurrency=1)
    consumer.subscribe(topic)
    await ground.send(topic, b"a", b"b")
    async with consumer:
        await basket.until_count(2)
        await consumer.commit()
        reset = ResetOffsets(topic=topic, group=consumer.group, timestamp=1, is_force=True)
        await ground.instance.call(ground.broker, reset)
        await until(lambda: list(consumer._running[1].offsets.of(topic).values()) == [0])
        may_finish.set()
        await basket.until_count(4)
    assert basket.bodies == [b"a", b"b", b"a", b"b"], (
        "and not a fifth time: what failed before the reset is not sent back"
    )
    assert all(message.attempt == 1 for message in basket.messages)


async def test_the_status_tells_the_offsets(ground: Ground) -> None:
    topic, basket = await ground.topic(queues=1), Basket()
    consumer = consumer_of(ground, handler=basket.put)
    consumer.subscribe(topic)
    await ground.send(topic, b"a")
    async with consumer:
        await basket.until_count(1)
        await consumer.commit()
        response = await ground.instance.call(ground.broker, GetConsumerStatus(topic, consumer.group))
        (queue,) = await ground.queues(topic)
        assert response.body.consumer_table[consumer.client_id] == {queue: QueueOffset(1)}


async def test_running_info_tells_queues_subscriptions_and_counts(ground: Ground) -> None:
    topic, basket = await ground.topic(queues=1), Basket()
    consumer = consumer_of(ground, handler=basket.put, ordered=True)
    consumer.subscribe(topic, "paid")
    await ground.send(topic, b"a", TAGS="paid")
    async with consumer:
        await basket.until_count(1)
        response = await ground.instance.call(ground.broker, GetRunningInfo(consumer.group, consumer.client_id))
    info = response.body
    (queue,) = await ground.queues(topic)
    assert info.properties["PROP_CONSUMEORDERLY"] == "true"
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert {one.topic: one.sub_string for one in info.subscription_set}[topic] == "paid"
    assert info.mq_table[queue].locked
    assert info.mq_table[queue].last_pull_timestamp > 0
    assert topic in info.status_table


async def test_one_message_can_be_handed_to_the_handler_directly(ground: Ground) -> None:
    topic, basket = await ground.topic(queues=1), Basket()

    async def handle(message: Received) -> None:
        basket.put(message)
        if len(basket.messages) > 2:
            raise ValueError("enough")

    consumer = consumer_of(ground, handler=handle)
    consumer.subscribe(topic)
    await ground.send(topic, b"a")
    async with consumer:
        await basket.until_count(1)
        request = ConsumeDirectly(consumer.group, consumer.client_id, basket.messages[0].offset_message_id)
        done = (await ground.instance.call(ground.broker, request)).body
        failed = (await ground.instance.call(ground.broker, request)).body
    assert basket.bodies == [b"a", b"a", b"a"]
    assert (done.consume_result, done.order) == (ConsumeOutcome.CR_SUCCESS, False)
    assert failed.consume_result is ConsumeOutcome.CR_THROW_EXCEPTION
    assert "enough" in str(failed.remark)


async def test_a_consumer_that_pulls_has_no_handler_to_call(ground: Ground) -> None:
    topic = await ground.topic(queues=1)
    await ground.send(topic, b"a")
    async with LitePullConsumer(ground.nameserver, group=fresh("group"), start="earliest") as consumer:
        consumer.subscribe(topic)
        (message,) = await consumer.poll(timeout_s=PATIENCE_S)
        request = ConsumeDirectly(consumer.group, consumer.client_id, message.offset_message_id)
        with pytest.raises(RequestFailed, match="no handler"):
            await ground.instance.call(ground.broker, request)


async def test_a_consumer_that_has_left_is_not_listed_any_more(ground: Ground) -> None:
    topic = await ground.topic(queues=1)
    consumer = consumer_of(ground, handler=print)
    consumer.subscribe(topic)
    request = GetConsumerConnections(consumer.group)
    async with consumer:
        listed = (await ground.instance.call(ground.broker, request)).body.connection_set
        assert [one.client_id for one in listed] == [consumer.client_id]
    with pytest.raises(RequestFailed):
        await ground.instance.call(ground.broker, request)
